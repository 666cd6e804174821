"""Make statements about runs and sign them."""

from __future__ import annotations

import re

from repro.attest.dsse import encode_base64, pae
from repro.attest.envelope import seal
from repro.bundle import PAYLOAD_TYPE
from repro.digest import Digest, digest_bytes
from repro.lock import FileLock
from repro.manifest import InputRecord, Manifest, parse_manifest
from repro.ports import Signer, Timestamper
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

__all__ = ["run_payload", "sign", "signed_files"]

_COMMIT = re.compile(r"[0-9a-f]{40}")


def run_payload(manifest: bytes) -> bytes:
    """Derive the statement about a run from the exact bytes of its `manifest.json`.

    Everyone who signs a run signs these bytes, so that signatures can be counted together.

    Raises:
        TrustError: where the bytes are no manifest.
    """
    noun = parse_manifest(manifest, where=MANIFEST_NAME)
    files = signed_files(noun, manifest)
    identity = noun.image.identity if noun.image else None
    predicate = RunPredicate(
        tool=Tool(name=noun.tool.name, version=noun.tool.version),
        project=noun.project,
        run_id=noun.run_id,
        sequence=noun.sequence,
        created_at=noun.created_at,
        manifest=MANIFEST_NAME,
        files=tuple(SignedFile(name=file.path, role=_role(file, noun), size=file.size) for file in files),
        image=(
            SignedImage(
                name=f"{noun.project}:{noun.accelerator}", platform=f"{identity.os}/{identity.architecture}"
            )
            if identity
            else None
        ),
        inputs=tuple(_input(record) for record in noun.inputs),
    )
    return run_statement(
        predicate,
        [Digest(file.digest) for file in files],
        Digest(identity.manifest_digest) if identity else None,
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
