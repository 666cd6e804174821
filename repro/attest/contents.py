"""The run folder against what was signed: files, manifest, lock, traces."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from repro.attest.sign import payload_of
from repro.digest import Digest, digest_bytes, digest_json
from repro.errors import SpecError, TrustError
from repro.lock import ArtifactLock, BaseLock, Lock
from repro.manifest import InputRecord, Manifest, parse_manifest
from repro.statement import MANIFEST_NAME, RunStatement, parse_run_statement
from repro.strictjson import MAX_BYTES, loads
from repro.trace import event_name

if TYPE_CHECKING:
    from repro.ports import RunFolder

__all__ = ["Contents", "check_lock", "check_manifest", "check_traces", "read_contents"]

MAX_TRACE_BYTES = 1 << 30
MAX_HEAD_BYTES = 64 << 10
_KEPT = ("manifest", "spec", "lock")


@dataclass(frozen=True, slots=True)
class Contents:
    """Bytes that were hashed and found as signed; whatever is parsed later is parsed from them."""

    kept: dict[str, bytes] = field(default_factory=dict)
    """Manifest, spec and lock, by role."""
    heads: dict[str, bytes] = field(default_factory=dict)
    """Of each trace file, by name: the last line before its first step that says what recorded it."""


def read_contents(folder: RunFolder, statement: RunStatement) -> Contents:
    """Read every signed file once and compare it with its subject.

    Raises:
        TrustError: kind `E_PATH`, `E_SIZE` or `E_SUBJECT`.
    """
    digests = {subject.name: f"sha256:{subject.digest.sha256}" for subject in statement.subject}
    contents = Contents()
    for file in statement.predicate.files:
        if file.role in _KEPT or file.role == "trace":
            data = folder.read(file.name, limit=MAX_BYTES if file.role in _KEPT else MAX_TRACE_BYTES)
            digest, size = digest_bytes(data), len(data)
            if file.role == "trace":
                contents.heads[file.name] = _head(data)
            else:
                contents.kept[file.role] = data
        else:
            digest, size = folder.digest(file.name)
        if digest != digests[file.name]:
            message = "the file is not the one that was signed"
            raise TrustError("E_SUBJECT", message, where=file.name, remedy="obtain the run again")
        if size != file.size:
            raise TrustError("E_SUBJECT", f"{size} bytes, signed as {file.size}", where=file.name)
    return contents


def _head(trace: bytes) -> bytes:
    head = b""
    for line in io.BytesIO(trace):
        name = event_name(line)
        if name == b"step":
            break
        if name == b"head":
            head = line
    return head


def check_manifest(contents: Contents, statement: RunStatement) -> Manifest:
    """Parse the manifest and demand that the statement says what follows from it.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_MANIFEST` or `E_IMAGE`.
    """
    data = contents.kept["manifest"]
    manifest = parse_manifest(data, where=MANIFEST_NAME)
    follows = parse_run_statement(payload_of(manifest, data), where=MANIFEST_NAME)
    image = manifest.image.identity.manifest_digest if manifest.image else None
    signed = [s.digest.sha256 for s in statement.subject if s.media_type is not None]
    if signed != ([image.removeprefix("sha256:")] if image else []):
        raise TrustError(
            "E_IMAGE", "the manifest names another image than the one signed", where=MANIFEST_NAME
        )
    for what in ("project", "run_id", "sequence", "created_at", "files", "image", "inputs"):
        if getattr(follows.predicate, what) != getattr(statement.predicate, what):
            message = f"manifest and statement do not agree about {what.replace('_', ' ')}"
            raise TrustError("E_MANIFEST", message, where=MANIFEST_NAME)
    if follows.subject != statement.subject:
        raise TrustError("E_MANIFEST", "manifest and statement name other digests", where=MANIFEST_NAME)
    return manifest


def check_lock(contents: Contents, manifest: Manifest) -> Lock:
    """The lock must belong to the spec, and the manifest to the lock.

    Raises:
        TrustError: kind `E_LOCK`, `E_IMAGE` where the image has another base, or what a lock or a spec that
            cannot be read is called.
    """
    lock = _parse_lock(contents.kept["lock"])
    accelerator = lock.accelerators.get(manifest.accelerator)
    if accelerator is None:
        raise TrustError("E_LOCK", f"nothing is locked for {manifest.accelerator}", where="repro.lock")
    _check_spec(contents.kept["spec"], lock, manifest.accelerator)
    packages = accelerator.packages
    signed = {file.path: file.digest for file in manifest.files}
    for path, digest in (
        (f"locks/requirements.{manifest.accelerator}.txt", packages.requirements),
        (f"locks/pylock.{manifest.accelerator}.toml", packages.pylock),
    ):
        if signed.get(path) != digest:
            raise TrustError("E_LOCK", "the file is not the one that the lock names", where=path)
    if (lock.seed, lock.determinism) != (manifest.seed, manifest.determinism):
        raise TrustError(
            "E_LOCK", "the run used another seed or determinism than was locked", where="repro.lock"
        )
    _check_base(manifest, accelerator.base)
    locked = {
        "base": {"base": accelerator.base.config_digest},
        "model": {artifact.name: _listing(artifact) for artifact in lock.models},
        "dataset": {artifact.name: _listing(artifact) for artifact in lock.datasets},
    }
    ran: dict[str, dict[str, str]] = {kind: {} for kind in locked}
    for record in manifest.inputs:
        _add(ran[record.kind], record)
    if ran != locked:
        raise TrustError(
            "E_LOCK", "the run's base, models or data sets are not those locked", where="repro.lock"
        )
    return lock


def _check_base(manifest: Manifest, base: BaseLock) -> None:
    """The image must stand on the layers of the locked base, and be for the same machines."""
    if manifest.image is None:
        return
    identity = manifest.image.identity
    if identity.diff_ids[: len(base.diff_ids)] != base.diff_ids:
        raise TrustError("E_IMAGE", "the image does not stand on the locked base", where="repro.lock")
    if (identity.os, identity.architecture) != (base.os, base.architecture):
        message = (
            f"the image is for {identity.os}/{identity.architecture}, the locked base for another machine"
        )
        raise TrustError("E_IMAGE", message, where="repro.lock")


def _add(records: dict[str, str], record: InputRecord) -> None:
    if record.name in records:
        raise TrustError("E_MANIFEST", f"the input {record.name!a} stands twice", where=MANIFEST_NAME)
    records[record.name] = record.digest


def _listing(artifact: ArtifactLock) -> Digest:
    return digest_json([file.tree() for file in sorted(artifact.files, key=lambda file: file.path)])


def _parse_lock(data: bytes) -> Lock:
    try:
        return Lock.parse(loads(data, where="repro.lock"))
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TrustError("E_LOCK", f"{place}: {first['msg']}", where="repro.lock") from None


def _check_spec(data: bytes, lock: Lock, accelerator: str) -> None:
    from repro.spec import Spec
    from repro.strictyaml import load, validate

    try:
        spec = validate(load(data, where="repro.yaml"), Spec, where="repro.yaml")
    except SpecError as error:
        raise TrustError("E_LOCK", error.message, where=error.where) from None
    if accelerator not in spec.accelerators:
        raise TrustError("E_LOCK", f"{accelerator} is not asked for", where="repro.yaml")
    if (spec.meaning(), spec.accelerator_meaning(accelerator)) != (
        lock.spec_digest,
        lock.accelerators[accelerator].spec_digest,
    ):
        raise TrustError("E_LOCK", "the lock was made for another repro.yaml", where="repro.lock")


def check_traces(contents: Contents, manifest: Manifest, lock: Lock) -> int:
    """Every phase has one trace for each rank, by the recorder and the torch that the run names.

    Raises:
        TrustError: kind `E_TRACE`, or what JSON that cannot be read is called.
    """
    signed = {file.path: file for file in manifest.files}
    packages = lock.accelerators[manifest.accelerator].packages.files
    torch = next((package.version for package in packages if package.name == "torch"), None)
    for phase in manifest.phases:
        if len(phase.trace) != phase.world_size:
            message = f"{len(phase.trace)} traces for {phase.world_size} ranks"
            raise TrustError("E_TRACE", message, where=phase.name)
        for rank, file in enumerate(phase.trace):
            if signed.get(file.path) != file or file.path not in contents.heads:
                raise TrustError("E_TRACE", "the trace is not among the signed files", where=file.path)
            head = loads(contents.heads[file.path], where=file.path, max_bytes=MAX_HEAD_BYTES)
            _check_head(head, manifest, torch, rank, file.path)
            if head.get("perturb") != phase.perturbation.get("REPRO_PERTURB"):
                message = "the trace is of another perturbation than its phase"
                raise TrustError("E_TRACE", message, where=file.path)
    return sum(len(phase.trace) for phase in manifest.phases)


def _check_head(head: Any, manifest: Manifest, torch: str | None, rank: int, where: str) -> None:
    if not isinstance(head, dict) or head.get("ev") != "head" or head.get("format") != "repro-trace/1":
        raise TrustError("E_TRACE", "the trace does not begin as one", where=where)
    if head.get("recorder") != manifest.tool.recorder:
        raise TrustError("E_TRACE", "the trace is by another recorder than the manifest names", where=where)
    if head.get("rank") != rank:
        raise TrustError("E_TRACE", f"the trace is not that of rank {rank}", where=where)
    library = head.get("torch")
    version = library.get("version") if isinstance(library, dict) else None
    if torch is not None and str(version).partition("+")[0] != torch.partition("+")[0]:
        raise TrustError("E_TRACE", f"the trace is by torch {version!a}, locked is {torch}", where=where)
