"""Everything a lock names, on this machine and byte for byte: what a build or a run starts from."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from repro.errors import LockError
from repro.lock import ArtifactLock, Lock
from repro.ports import ArtifactSource, Cache, Progress
from repro.resolve.artifacts import Artifacts, Role
from repro.resolve.files import hash_files, list_tree
from repro.resolve.freshness import compare_files
from repro.resolve.places import place_of

__all__ = ["hold_artifacts"]


def _differences(artifact: ArtifactLock, place: Path, progress: Progress) -> list[str]:
    listed = list_tree(place)
    progress.start(f"check {artifact.name}", total=sum(path.stat().st_size for _, path in listed))
    return compare_files(artifact.files, hash_files(listed, progress))


def hold_artifacts(
    lock: Lock,
    *,
    root: Path,
    cache: Cache,
    sources: Mapping[str, ArtifactSource],
    progress: Progress,
) -> dict[str, Path]:
    """Read every byte of every model and data set; bring again what is missing or spoilt in the cache.

    Returns:
        where each lies, by name.

    Raises:
        LockError: kind `artifact-differs` where files of the project, or what a source gives now, are not
            those that are locked.
        NetworkError: a source does not answer.
    """
    artifacts = Artifacts(root=root, cache=cache, sources=sources, progress=progress)
    roles: tuple[tuple[Role, tuple[ArtifactLock, ...]], ...] = (
        ("model", lock.models),
        ("dataset", lock.datasets),
    )
    held: dict[str, Path] = {}
    for role, locked in roles:
        for artifact in locked:
            place = place_of(artifact, root, cache)
            there = place.exists()
            told = _differences(artifact, place, progress) if there or artifact.kind == "path" else []
            if told and artifact.kind == "path":
                raise LockError(
                    "artifact-differs",
                    "; ".join(told),
                    where=artifact.name,
                    remedy="put the locked files back, or lock again",
                )
            if told or not there:
                place = artifacts.bring_again(artifact, role, lock.accelerators)
            held[artifact.name] = place
    return held
