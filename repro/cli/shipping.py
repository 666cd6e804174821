"""Images on their way: from the engine to a registry, and from wherever a person has one into the engine."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.reference import parse_reference
from repro.adapters.registry import Registry, RegistryImage
from repro.adapters.registry_copy import copy_image
from repro.adapters.registry_push import RegistryWriter
from repro.build.archive import open_archive
from repro.build.layout import open_layout
from repro.build.load import image_name, load_image
from repro.build.oci import Layer
from repro.build.push import push_image
from repro.build.saved import SavedImage, open_saved
from repro.cli.console import Console
from repro.cli.evidence import ENGINE, OCI
from repro.cli.flow import Supply
from repro.cli.pilot import scratch
from repro.digest import canonical_json
from repro.errors import BuildError, LockError, RunError
from repro.image import ImageIdentity, ImageRecord
from repro.manifest import Manifest

__all__ = ["push_built", "save_image", "signed_image"]


def push_built(record: ImageRecord, where: str, *, engine: DockerEngine, console: Console) -> str:
    """Push a built image; return the reference that names it by its digest.

    Args:
        where: `[oci://]registry/repository[:tag]`.

    Raises:
        LockError: `base-reference-invalid`.
        BuildError: `image-differs`, `push-differs`, or `image-absent` where the engine holds it no more.
        NetworkError: the registry does not answer as it should.
    """
    identity = record.identity
    reference = parse_reference(where.removeprefix(OCI))
    if reference.digest not in (None, identity.manifest_digest):
        raise BuildError(
            "push-differs",
            f"the image is {identity.manifest_digest}, not the one this reference names",
            where=where,
            remedy="push to a tag, or to no more than the repository",
        )
    with scratch() as folder, RegistryWriter(reference, os.environ) as registry:
        held = _held(engine, identity)
        console.start("saving")
        image = save_image(engine, held, folder)
        push_image(image, identity, registry, tag=reference.tag, progress=console)
    return f"{OCI}{reference.name}@{identity.manifest_digest}"


def save_image(engine: DockerEngine, image: str, folder: Path) -> SavedImage:
    """Save an image, by the engine's own id, into an empty folder, and open it there."""
    archive = folder / "saved.tar"
    with archive.open("wb") as file:
        for chunk in engine.save(image):
            file.write(chunk)
    return open_saved(archive, scratch=folder)


def _held(engine: DockerEngine, identity: ImageIdentity) -> str:
    held = engine.find(identity.config_digest, diff_ids=identity.diff_ids)
    if held is None:
        raise BuildError(
            "image-absent",
            "the engine does not hold the image",
            where=identity.config_digest,
            remedy="build it with `repro build`",
        )
    return held.id


def signed_image(source: str | None, manifest: Manifest, console: Console) -> Supply:
    """Return how an engine comes to hold the image that was signed.

    Where that image is not to be found, and must be rebuilt, what is returned answers None.

    Args:
        source: `engine`, `oci://registry/repository[:tag | @digest]`, an OCI image layout, or an archive;
            None is the engine.
        manifest: a verified one.

    Raises:
        RunError: `no-signed-image` where the run had none and a source was named.
    """
    if source is not None and manifest.image is None:
        raise RunError(
            "no-signed-image", "the run was on the host, so no image of it was signed",
            remedy="replay it with --runtime host, and without --image",
        )  # fmt: skip
    return partial(_supply, source or ENGINE, manifest, console)


def _supply(source: str, manifest: Manifest, console: Console, engine: DockerEngine) -> ImageRecord | None:
    record = manifest.image
    if record is None:
        return None
    signed = record.identity
    held = engine.find(signed.config_digest, diff_ids=signed.diff_ids) is not None
    if source != ENGINE:
        with scratch() as folder:
            image = _brought(source, signed, folder, console, held=held)
            if image is not None:
                layers = [Layer(layer.diff_id, layer.size, layer.chunks) for layer in image.layers]
                name = image_name(manifest.project, manifest.accelerator)
                load_image(engine, canonical_json(image.config), layers, name=name, progress=console)
                held = True
    if not held:
        console.line(f"the signed image is not in {source}: it is rebuilt from the signed lock")
    return record if held else None


def _brought(
    source: str, signed: ImageIdentity, folder: Path, console: Console, *, held: bool
) -> SavedImage | None:
    """Read the signed image where a person says it lies; None where a registry has none, or need not send it.

    Raises:
        RunError: `image-differs` where another image lies there.
    """
    console.start(f"looking for the signed image in {source}")
    if source.startswith(OCI):
        root = _fetched(source, signed, folder, console, held=held)
        return open_layout(root, scratch=folder) if root is not None else None
    path = Path(source)
    if not path.exists():
        raise BuildError(
            "image-absent",
            "no file or folder has this name",
            where=source,
            remedy="name an archive, an OCI image layout or oci://…, or leave --image out to rebuild it",
        )
    read = open_layout if path.is_dir() else open_archive
    image = read(path, scratch=folder, wanted=signed.manifest_digest)
    _require_signed(image.config_digest, signed, source)
    return image


def _fetched(
    source: str, signed: ImageIdentity, folder: Path, console: Console, *, held: bool
) -> Path | None:
    reference = parse_reference(source.removeprefix(OCI))
    if reference.tag is None and reference.digest is None:
        reference = replace(reference, digest=signed.manifest_digest)
    with Registry(reference, os.environ) as registry:
        try:
            found: RegistryImage = registry.base(source, architecture=signed.architecture)
        except LockError as error:
            if error.kind != "base-not-found":
                raise
            return None
        _require_signed(found.lock.config_digest, signed, source)
        if held:
            return None
        copy_image(registry, found, folder / "layout", progress=console)
    return folder / "layout"


def _require_signed(found: str, signed: ImageIdentity, where: str) -> None:
    if found != signed.config_digest:
        raise RunError(
            "image-differs",
            f"the image there is {found}, and {signed.config_digest} was signed",
            where=where,
            remedy="name the image that was signed, or leave --image out: it is then found in the engine, "
            "or rebuilt from the signed lock",
        )
