"""Where an auditor has the image, the models and the data sets, as functions that verify asks."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from repro.attest.verify import FindFiles, FindImage
from repro.image import ImageIdentity
from repro.lock import ArtifactLock, FileLock

__all__ = ["OCI", "find_files", "find_image"]

ENGINE = "engine"
OCI = "oci://"


def find_image(where: str | None) -> FindImage | None:
    """Look in the engine, a registry, or an OCI layout below a folder; None where nobody asked."""
    if where is None:
        return None

    def find(signed: ImageIdentity) -> ImageIdentity | None:
        # Imported here: most verifications ask for no image, and need not wait for the engine's library.
        from repro.adapters.imagefinder import engine_image, layout_image

        if where.startswith(OCI):
            return _in_registry(where, signed)
        if where != ENGINE:
            return layout_image(Path(where), signed)
        from repro.adapters.docker_engine import DockerEngine

        with DockerEngine.connect() as engine:
            return engine_image(engine, signed)

    return find


def _in_registry(where: str, signed: ImageIdentity) -> ImageIdentity | None:
    from repro.adapters.imagefinder import registry_image
    from repro.adapters.reference import parse_reference
    from repro.adapters.registry import Registry

    with Registry(parse_reference(where.removeprefix(OCI)), os.environ) as registry:
        return registry_image(registry, signed)


def find_files(folder: Path | None) -> FindFiles | None:
    """Hash what lies below a folder where the pilot saw it, or under its own name; None where not asked."""
    if folder is None:
        return None

    def find(artifact: ArtifactLock, ignored: Sequence[str]) -> Iterable[FileLock] | None:
        from repro.resolve.files import hash_tree

        for place in (folder / artifact.target, folder / artifact.name):
            if place.exists():
                return hash_tree(place, ignored=ignored)
        return None

    return find
