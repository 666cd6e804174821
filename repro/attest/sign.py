"""Make statements about runs and sign them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pydantic import ValidationError

from repro.attest.dsse import encode_base64, pae
from repro.attest.envelope import seal
from repro.bundle import PAYLOAD_TYPE
from repro.digest import Digest, digest_bytes
from repro.errors import TrustError
from repro.lock import FileLock
from repro.manifest import InputRecord, Manifest, parse_manifest
from repro.statement import (
    MANIFEST_NAME,
    InputDigest,
    Role,
    RunPredicate,
    SignedFile,
    SignedImage,
    SignedInput,
    Tool,
    run_statement,
)

if TYPE_CHECKING:
    from repro.ports import Signer, Timestamper

__all__ = ["payload_of", "run_payload", "sign", "signed_files"]

_COMMIT = re.compile(r"[0-9a-f]{40}")


def run_payload(manifest: bytes) -> bytes:
    """Derive the statement about a run from the exact bytes of its `manifest.json`.

    Everyone who signs a run signs these bytes, so that signatures can be counted together.

    Raises:
        TrustError: kind `E_MANIFEST` and others, where the bytes are no manifest that can be signed.
    """
    return payload_of(parse_manifest(manifest, where=MANIFEST_NAME), manifest)


def payload_of(noun: Manifest, data: bytes) -> bytes:
    """The same, where the bytes were parsed already.

    Raises:
        TrustError: kind `E_MANIFEST`.
    """
    files = signed_files(noun, data)
    image_digest = Digest(noun.image.identity.manifest_digest) if noun.image else None
    try:
        return run_statement(_predicate(noun, files), [Digest(file.digest) for file in files], image_digest)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"no statement follows from it: {error.title} {place}: {first['msg']}"
        raise TrustError("E_MANIFEST", message, where=MANIFEST_NAME) from None


def _predicate(manifest: Manifest, files: Sequence[FileLock]) -> RunPredicate:
    return RunPredicate(
        tool=Tool(name=manifest.tool.name, version=manifest.tool.version),
        project=manifest.project,
        run_id=manifest.run_id,
        sequence=manifest.sequence,
        created_at=manifest.created_at,
        manifest=MANIFEST_NAME,
        files=tuple(SignedFile(name=file.path, role=_role(file, manifest), size=file.size) for file in files),
        image=_image(manifest),
        inputs=tuple(_input(record) for record in manifest.inputs),
    )


def _image(manifest: Manifest) -> SignedImage | None:
    if manifest.image is None:
        return None
    identity = manifest.image.identity
    return SignedImage(
        name=f"{manifest.project}:{manifest.accelerator}",
        platform=f"{identity.os}/{identity.architecture}",
    )


def signed_files(manifest: Manifest, data: bytes) -> tuple[FileLock, ...]:
    """Every file a run's signature covers, `manifest.json` first."""
    own = FileLock(path=MANIFEST_NAME, size=len(data), digest=digest_bytes(data))
    return (own, manifest.spec, manifest.lock, *manifest.files)


def _role(file: FileLock, manifest: Manifest) -> Role:
    roles: dict[str, Role] = {
        MANIFEST_NAME: "manifest",
        manifest.spec.path: "spec",
        manifest.lock.path: "lock",
    }
    folders: dict[str, Role] = {"locks": "packages", "trace": "trace"}
    return roles.get(file.path) or folders.get(file.path.partition("/")[0], "other")


def _input(record: InputRecord) -> SignedInput:
    commit = record.commit if record.commit and _COMMIT.fullmatch(record.commit) else None
    return SignedInput(
        uri=f"docker://{record.requested}" if record.kind == "base" else f"{record.kind}:{record.name}",
        digest=InputDigest(sha256=record.digest.removeprefix("sha256:"), git_commit=commit),
    )


def sign(payload: bytes, signer: Signer, *, timestamper: Timestamper | None = None) -> bytes:
    """Sign a statement and return the bundle's bytes.

    Args:
        payload: the statement, exactly as it is to be read.
        signer: whose signature it is to be.
        timestamper: adds proof of when; the time of the signer's own clock proves nothing.
    """
    signature = signer.sign(pae(PAYLOAD_TYPE, payload))
    hint = encode_base64(bytes.fromhex(signer.fingerprint.removeprefix("sha256:")))
    return seal(
        payload,
        signature,
        signer=signer.certificate or hint,
        tokens=(timestamper.stamp(signature),) if timestamper else (),
    )
