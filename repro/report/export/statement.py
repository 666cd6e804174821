"""Members that in-toto statements share."""

from __future__ import annotations

from typing import Any

from repro.digest import Digest, hex_of
from repro.lock import FileLock
from repro.manifest import Manifest
from repro.statement import IMAGE_MEDIA_TYPE, MANIFEST_NAME, STATEMENT_TYPE

__all__ = ["descriptor", "file_descriptor", "statement", "subjects"]


def descriptor(name: str, digest: str | None = None, **members: Any) -> dict[str, Any]:
    """An in-toto v1 ResourceDescriptor; members that are None are left out."""
    digests = {"sha256": hex_of(digest)} if digest else None
    tree = {"name": name, "digest": digests, **members}
    return {key: value for key, value in tree.items() if value is not None}


def file_descriptor(file: FileLock) -> dict[str, Any]:
    """The descriptor of a file of the run folder or project."""
    return descriptor(file.path, file.digest)


def subjects(manifest: Manifest, manifest_digest: Digest) -> list[dict[str, Any]]:
    """What a run made known: its manifest, and its image where there was one."""
    found = [descriptor(MANIFEST_NAME, manifest_digest)]
    if manifest.image is not None:
        name = f"{manifest.project}-{manifest.accelerator}"
        digest = manifest.image.identity.manifest_digest
        found.append(descriptor(name, digest, mediaType=IMAGE_MEDIA_TYPE))
    return found


def statement(
    subject: list[dict[str, Any]], predicate_type: str, predicate: dict[str, Any]
) -> dict[str, Any]:
    """An in-toto Statement v1, not signed."""
    return {
        "_type": STATEMENT_TYPE,
        "subject": subject,
        "predicateType": predicate_type,
        "predicate": predicate,
    }
