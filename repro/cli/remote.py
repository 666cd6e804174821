"""Runs in registries: attach a folder to its image there, and bring what is attached back as a folder."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from repro.adapters.clock import SystemClock
from repro.adapters.reference import Reference, parse_reference
from repro.adapters.referrers import Referrers
from repro.adapters.runfolder import DiskRunFolder
from repro.attest.attached import (
    RUN_ARTIFACT,
    TITLE,
    bundle_annotations,
    bundle_name,
    run_annotations,
    run_files,
)
from repro.attest.keyring import Trust
from repro.attest.sign import signed_files
from repro.attest.signature import examine_run
from repro.bundle import BUNDLE_SUFFIX, BUNDLE_TYPE
from repro.cli.evidence import OCI
from repro.cli.runs import read_manifest
from repro.digest import CHUNK_BYTES, Digest, digest_bytes
from repro.errors import FileError, LockError, NetworkError, TrustError
from repro.lock import FileLock
from repro.manifest import Manifest, parse_manifest
from repro.statement import MANIFEST_NAME
from repro.strictjson import MAX_BYTES

__all__ = ["Attached", "attach_run", "attached_run"]

RunFiles = dict[str, tuple[Digest, int]]


@dataclass(frozen=True, slots=True)
class Attached:
    """What a run became in a registry."""

    image: str
    artifacts: tuple[tuple[str, str], ...]
    """Name of what was attached, and digest of its artifact."""

    def tree(self) -> dict[str, Any]:
        """Return plain values for JSON."""
        return {"image": self.image, "attached": dict(self.artifacts)}


def attach_run(run: Path, where: str) -> Attached:
    """Push a run's files and bundles as referrers of its image.

    Raises:
        FileError: `not-a-run`, or `not-signed` where no bundle lies there.
        TrustError: `E_IMAGE` where the run had no image, or the registry holds another; `E_SUBJECT` where
            the folder is not what was signed.
        NetworkError: the registry does not answer as it should.
    """
    manifest = read_manifest(run)
    reference, image = _place(where, manifest)
    folder = DiskRunFolder(run)
    bundles = [name for name in folder.names() if name.endswith(BUNDLE_SUFFIX)]
    if not any("/" not in name for name in bundles):
        remedy = "sign it first: repro sign RUN --key KEY"
        raise FileError(
            "not-signed", "the folder holds no signature of the run", where=str(run), remedy=remedy
        )
    with Referrers(reference, os.environ) as registry:
        subject = (image, registry.size(image))
        files = [_push_file(registry, folder, file) for file in _whole(folder, run)]
        made = [("run", registry.attach(subject, RUN_ARTIFACT, files, run_annotations(manifest)))]
        for name in bundles:
            data = folder.read(name, limit=MAX_BYTES)
            annotations = bundle_annotations(data, manifest, where=name)
            layer = _push(registry, data, BUNDLE_TYPE, name.rpartition("/")[2])
            made.append((name, registry.attach(subject, BUNDLE_TYPE, [layer], annotations)))
    return Attached(f"{reference.name}@{image}", tuple(made))


def _place(where: str, manifest: Manifest) -> tuple[Reference, str]:
    reference = _reference(where)
    if manifest.image is None:
        message = "the run had no image, so there is none to attach it to"
        raise TrustError("E_IMAGE", message, remedy="capture it with --runtime image")
    image = manifest.image.identity.manifest_digest
    if reference.digest not in (None, image):
        raise TrustError("E_IMAGE", f"the run is of image {image}", where=where)
    return reference, image


def _reference(where: str) -> Reference:
    if not where.startswith(OCI):
        raise click.UsageError(f"write {OCI}registry/repository, not {where}")
    reference = parse_reference(where.removeprefix(OCI))
    if reference.tag is not None:
        raise click.UsageError("name an image by its digest: a tag may move")
    return reference


def _whole(folder: DiskRunFolder, run: Path) -> tuple[FileLock, ...]:
    """Every signed file, each as its digest says: a folder that was changed is not handed on."""
    data = folder.read(MANIFEST_NAME, limit=MAX_BYTES)
    files = signed_files(parse_manifest(data, where=MANIFEST_NAME), data)
    for file in files:
        if folder.digest(file.path) != (file.digest, file.size):
            message = f"{file.path} is not the file that was signed"
            raise TrustError("E_SUBJECT", message, where=str(run), remedy="obtain the run again")
    return files


def _push_file(registry: Referrers, folder: DiskRunFolder, file: FileLock) -> dict[str, Any]:
    registry.push_blob(file.digest, file.size, partial(_chunks, folder.root / file.path))
    return _layer("application/octet-stream", file.digest, file.size, file.path)


def _chunks(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        while chunk := stream.read(CHUNK_BYTES):
            yield chunk


def _push(registry: Referrers, data: bytes, media_type: str, title: str) -> dict[str, Any]:
    digest = digest_bytes(data)
    registry.push_blob(digest, len(data), lambda: iter((data,)))
    return _layer(media_type, digest, len(data), title)


def _layer(media_type: str, digest: str, size: int, title: str) -> dict[str, Any]:
    return {"mediaType": media_type, "digest": digest, "size": size, "annotations": {TITLE: title}}


@contextmanager
def attached_run(where: str, trust: Trust, wanted: str | None) -> Iterator[tuple[Path, Digest]]:
    """Bring the run that is attached to an image into a folder, which is gone afterwards.

    Everything is checked by its digest, and nothing by its name: what a registry leaves out makes the
    folder incomplete, and the verification of it fails.

    Args:
        where: `oci://registry/repository@sha256:…`, an image.
        trust: tells runs that somebody trusted signed from those that were only put there.
        wanted: id of the run, where several are attached.

    Yields:
        the folder, and the digest of the image.

    Raises:
        FileError: `several-runs` where more than one was signed and none was named.
        NetworkError: the registry does not answer as it should.
    """
    reference = _reference(where)
    if reference.digest is None:
        raise click.UsageError(f"name the image by its digest: {OCI}{reference.name}@sha256:…")
    with tempfile.TemporaryDirectory(prefix="repro-") as name, Referrers(reference, os.environ) as registry:
        folder = Path(name)
        bundles, runs = _look(registry, reference.digest)
        for place, data in bundles.items():
            _write(folder, place, iter((data,)))
        chosen = _chosen(runs, bundles, trust, wanted, where)
        for place, (digest, size) in (chosen or {}).items():
            _write(folder, place, _limited(registry.blob(digest), size, place))
        yield folder, Digest(reference.digest)


def _look(registry: Referrers, image: str) -> tuple[dict[str, bytes], list[RunFiles]]:
    bundles: dict[str, bytes] = {}
    runs: list[RunFiles] = []
    for descriptor in registry.attached(image):
        digest = descriptor["digest"]
        try:
            document = registry.document(digest)
            if (document.get("subject") or {}).get("digest") != image:
                continue
            if document.get("artifactType") == RUN_ARTIFACT:
                runs.append(run_files(document, where=digest))
            elif document.get("artifactType") == BUNDLE_TYPE:
                _keep(registry, document, bundles)
        except (TrustError, LockError, AttributeError) as error:
            click.echo(f"ignored {digest}: {error}", err=True)
    return bundles, runs


def _keep(registry: Referrers, document: dict[str, Any], bundles: dict[str, bytes]) -> None:
    for layer in document.get("layers") or ():
        data = registry.read("blobs", layer["digest"], limit=MAX_BYTES)
        title = (layer.get("annotations") or {}).get(TITLE)
        place = bundle_name(data, title, bundles)
        if place is not None and data not in bundles.values():
            bundles[place] = data


def _chosen(
    runs: list[RunFiles], bundles: dict[str, bytes], trust: Trust, wanted: str | None, where: str
) -> RunFiles | None:
    """The files that a trusted statement is about; what else was put there cannot get in the way."""
    now = SystemClock().now()
    signed: dict[str, str] = {}
    for name, data in bundles.items():
        _, statement = examine_run(data, name=name, trust=trust, now=now)
        if statement is not None and wanted in (None, statement.predicate.run_id):
            digests = (s.digest.sha256 for s in statement.subject if s.name == MANIFEST_NAME)
            signed |= {f"sha256:{digest}": statement.predicate.run_id for digest in digests}
    found = {
        files[MANIFEST_NAME][0]: files
        for files in runs
        if MANIFEST_NAME in files and files[MANIFEST_NAME][0] in signed
    }
    if len(found) > 1:
        ids = ", ".join(sorted(signed[digest] for digest in found))
        message = f"{len(found)} signed runs are attached: {ids}"
        raise FileError("several-runs", message, where=where, remedy="name one with --expect-run")
    return next(iter(found.values()), None)


def _limited(chunks: Iterator[bytes], size: int, name: str) -> Iterator[bytes]:
    """Stop where a registry gives more than it said; too little or other bytes are found by verification."""
    for chunk in chunks:
        size -= len(chunk)
        if size < 0:
            raise NetworkError(
                "registry-wrong-bytes", "the registry gives more bytes than it named", where=name
            )
        yield chunk


def _write(folder: Path, name: str, chunks: Iterator[bytes]) -> None:
    place = folder / name
    place.parent.mkdir(parents=True, exist_ok=True)
    with place.open("xb") as stream:
        for chunk in chunks:
            stream.write(chunk)
