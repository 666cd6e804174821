"""Training source and configuration by content."""

from __future__ import annotations

from pathlib import Path

from repro.errors import LockError
from repro.lock import FileLock
from repro.resolve.files import IGNORED, hash_files, list_tree
from repro.spec import Spec

__all__ = ["source_files"]


def source_files(spec: Spec, root: Path, *, ignored: tuple[str, ...] = IGNORED) -> tuple[FileLock, ...]:
    """Hash everything under `pilot.source`, with paths relative to `root`, sorted.

    What the project writes itself is no source: outputs, the lock, and data sets and
    models by path, which the pilot sees where they lie.

    Raises:
        LockError: `input-missing`, `source-empty`, or as `list_tree` says.
    """
    artifacts = [artifact.path for artifact in (*spec.models, *spec.datasets) if artifact.path is not None]
    own = [root / path for path in (*spec.pilot.outputs, *artifacts, "repro.lock", "locks")]
    listed: dict[str, Path] = {}
    for entry in spec.pilot.source:
        place = root / entry
        for relative, path in list_tree(place, ignored=ignored, without=own):
            name = entry if place.is_file() else (Path(entry) / relative).as_posix()
            listed[name] = path
    if not listed:
        raise LockError(
            "source-empty",
            "pilot.source holds no file",
            where="repro.yaml",
            remedy="list the training script and its configuration under pilot.source",
        )
    return hash_files(sorted(listed.items()))
