"""What a pilot runs from, and the proof that its inputs are the locked ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repro.digest import digest_stream
from repro.errors import RunError
from repro.lock import ArtifactLock, Lock
from repro.spec import Spec

__all__ = ["Project", "require_artifacts"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """What a pilot runs from."""

    root: Path
    """Folder of `repro.yaml`; models and data sets of kind `path` lie below it."""
    spec: Spec
    lock: Lock
    accelerator: str
    image: str | None
    """Config digest of the image, or None on the host."""
    artifacts: Mapping[str, Path]
    """Where each model and data set of the lock lies on this machine, by name."""


def require_artifacts(lock: Lock, artifacts: Mapping[str, Path]) -> None:
    """Hash models and data sets and refuse any byte that is not the locked one.

    Raises:
        RunError: `artifact-missing` or `artifact-differs`, naming the file.
    """
    for artifact in (*lock.models, *lock.datasets):
        for file in artifact.files:
            _require_file(artifact, file.path, file.digest, artifacts[artifact.name])


def _require_file(artifact: ArtifactLock, path: str, expected: str, root: Path) -> None:
    place = root if root.is_file() else root / path
    if not place.is_file():
        raise RunError(
            "artifact-missing",
            f"{artifact.name} is not there",
            where=str(place),
            remedy="fetch it again with `repro lock`, or name its folder with --project",
        )
    with place.open("rb") as stream:
        digest, _ = digest_stream(stream)
    if digest != expected:
        raise RunError(
            "artifact-differs",
            f"{artifact.name} is not what was locked: expected {expected}, found {digest}",
            where=str(place),
            remedy="restore the locked bytes; or, if the change is meant, lock and capture again",
        )
