"""Bring everything a lock names onto this machine: what a build or a run starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from repro.lock import ArtifactLock, Lock
from repro.ports import ArtifactSource, Cache, Progress, Resolver
from repro.resolve.artifacts import Artifacts, Role
from repro.resolve.files import list_tree
from repro.resolve.places import place_of

__all__ = ["hold"]


def _is_there(artifact: ArtifactLock, place: Path) -> bool:
    """Look at names and sizes; the run itself reads every byte."""
    if not place.is_dir():
        return False
    there = {name: path.stat().st_size for name, path in list_tree(place)}
    return there == {file.path: file.size for file in artifact.files}


def hold(
    lock: Lock,
    accelerators: Sequence[str],
    *,
    root: Path,
    cache: Cache,
    resolver: Resolver,
    sources: Mapping[str, ArtifactSource],
    progress: Progress,
) -> dict[str, Path]:
    """Bring what is missing; does no network work where nothing is.

    Args:
        accelerators: whose wheels are wanted.
        root: folder of the project; what it holds itself is not looked at.

    Returns:
        where each model and data set lies, by name.

    Raises:
        LockError: kinds `artifact-differs`, `wheel-gone`, `hash-contradiction`, where what can be had now
            is not what is locked.
        NetworkError: what must be asked does not answer.
    """
    for name in accelerators:
        resolver.fetch(lock.accelerators[name].packages, root=root, progress=progress)
    artifacts = Artifacts(root=root, cache=cache, sources=sources, progress=progress)
    held: dict[str, Path] = {}
    for artifact in (*lock.models, *lock.datasets):
        role: Role = "model" if artifact in lock.models else "dataset"
        place = place_of(artifact, root, cache)
        if artifact.kind != "path" and not _is_there(artifact, place):
            place = artifacts.bring_again(artifact, role, lock.accelerators)
        held[artifact.name] = place
    return held
