"""Where the models and data sets of a lock lie on this machine."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from repro.digest import digest_json, hex_of
from repro.lock import ArtifactLock, FileLock, Lock
from repro.ports import Cache

__all__ = ["place_of", "places", "tree_digest"]


def tree_digest(files: Iterable[FileLock]) -> str:
    """Return the digest of a listing: paths, sizes and digests, sorted by path."""
    return digest_json([file.tree() for file in sorted(files, key=lambda file: file.path)])


def place_of(artifact: ArtifactLock, root: Path, cache: Cache) -> Path:
    """Return where an artifact lies: a `path` in the project, others in the cache, by content."""
    if artifact.kind == "path":
        return root / artifact.requested
    return cache.folder / "inputs" / hex_of(tree_digest(artifact.files))


def places(lock: Lock, root: Path, cache: Cache) -> dict[str, Path]:
    """Return the place of every model and data set, by name; whether anything is there is not looked at."""
    return {artifact.name: place_of(artifact, root, cache) for artifact in (*lock.models, *lock.datasets)}
