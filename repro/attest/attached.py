"""A signed run as artifacts in a registry: what is attached to its image, and how it becomes a folder again.

Bundles are attached as cosign attaches them, one artifact each. The files they sign are one artifact more,
a layer each, named as `oras` names files; its media type is ours, and `docs/signing.md` describes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from repro.attest.envelope import open_bundle
from repro.attest.paths import check_name
from repro.bundle import BUNDLE_SUFFIX
from repro.digest import Digest, digest_bytes, hex_of, is_digest
from repro.errors import TrustError
from repro.manifest import Manifest
from repro.statement import REPLAY_TYPE, RUN_TYPE
from repro.strictjson import loads

__all__ = [
    "MAX_RUN_BYTES",
    "RUN_ARTIFACT",
    "TITLE",
    "bundle_annotations",
    "bundle_name",
    "run_annotations",
    "run_files",
]

RUN_ARTIFACT: Final = "application/vnd.repro-manifest.run.v1"
TITLE: Final = "org.opencontainers.image.title"
MAX_RUN_BYTES: Final = 16 << 30
"""All files of one run that are fetched from a registry together."""
MAX_FILES: Final = 1024

_CREATED = "org.opencontainers.image.created"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]{0,80}" + re.escape(BUNDLE_SUFFIX))


def bundle_annotations(data: bytes, manifest: Manifest, *, where: str) -> dict[str, str]:
    """Annotations by which cosign finds a bundle.

    Raises:
        TrustError: it is no bundle around a statement about a run or a replay.
    """
    return {
        _CREATED: manifest.created_at,
        "dev.sigstore.bundle.content": "dsse-envelope",
        "dev.sigstore.bundle.predicateType": _predicate_type(data, where),
    }


def _predicate_type(data: bytes, where: str) -> str:
    statement = loads(open_bundle(data, where=where).payload, where=where)
    kind = str(statement.get("predicateType")) if isinstance(statement, dict) else ""
    if kind not in (RUN_TYPE, REPLAY_TYPE):
        raise TrustError("E_STMT", f"the statement is of another kind, {kind!a}", where=where)
    return kind


def run_annotations(manifest: Manifest) -> dict[str, str]:
    """Annotations of the artifact that holds a run's files. They help people; nothing is decided by them."""
    return {
        _CREATED: manifest.created_at,
        "repro-manifest.project": manifest.project,
        "repro-manifest.run": manifest.run_id,
    }


def bundle_name(data: bytes, title: object, taken: Iterable[str]) -> str | None:
    """Where a bundle belongs in a run folder, by what it says; None where it is no bundle of ours.

    Args:
        data: the bundle.
        title: the name it was attached under, if any. It is a wish.
        taken: names that are in use.
    """
    try:
        kind = _predicate_type(data, "bundle")
    except TrustError:
        return None
    folder = "replays/" if kind == REPLAY_TYPE else ""
    wish = title if isinstance(title, str) and _NAME.fullmatch(title) else None
    if wish is None or folder + wish in taken:
        wish = f"{hex_of(digest_bytes(data))[:16]}{BUNDLE_SUFFIX}"
    return folder + wish


def run_files(document: Mapping[str, Any], *, where: str) -> dict[str, tuple[Digest, int]]:
    """Names, digests and sizes of the files in a run artifact, all of them plain.

    Raises:
        TrustError: kind `E_PATH` for a name that leads elsewhere or stands twice, `E_SIZE` where there is
            more than any run has, `E_SUBJECT` for what is no description of a file.
    """
    layers = document.get("layers")
    if document.get("artifactType") != RUN_ARTIFACT or not isinstance(layers, list):
        raise TrustError("E_SUBJECT", "this is no artifact with the files of a run", where=where)
    if len(layers) > MAX_FILES:
        raise TrustError("E_SIZE", f"{len(layers)} files are more than any run has", where=where)
    files: dict[str, tuple[Digest, int]] = {}
    for layer in layers:
        name, digest, size = _described(layer, where)
        check_name(name)
        if name in files:
            raise TrustError("E_PATH", "two files have one name", where=ascii(name))
        files[name] = digest, size
    _check_tree(files)
    if sum(size for _, size in files.values()) > MAX_RUN_BYTES:
        raise TrustError("E_SIZE", f"the run has more than {MAX_RUN_BYTES} bytes", where=where)
    return files


def _described(layer: Any, where: str) -> tuple[str, Digest, int]:
    annotations = layer.get("annotations") if isinstance(layer, dict) else None
    name = annotations.get(TITLE) if isinstance(annotations, dict) else None
    size = layer.get("size") if isinstance(layer, dict) else None
    if not isinstance(name, str) or not is_digest(str(layer.get("digest"))):
        raise TrustError("E_SUBJECT", "a file has no name or no digest", where=where)
    if not isinstance(size, int) or size < 0:
        raise TrustError("E_SUBJECT", f"{name!a} has no size", where=where)
    return name, Digest(layer["digest"]), size


def _check_tree(names: Iterable[str]) -> None:
    """No name may be a folder above another, nor differ from another by case alone."""
    known = set(names)
    if len({name.casefold() for name in known}) != len(known):
        raise TrustError("E_PATH", "two files have names that some systems take for one")
    for name in known:
        parts = name.split("/")
        if any("/".join(parts[:end]) in known for end in range(1, len(parts))):
            raise TrustError("E_PATH", "the name of a file is that of a folder too", where=ascii(name))
