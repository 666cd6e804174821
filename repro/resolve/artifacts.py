"""Models and data sets: from a reference that may move to files by content."""

from __future__ import annotations

from pathlib import Path

from repro.errors import LockError
from repro.lock import ArtifactLock
from repro.ports import Progress
from repro.resolve.contents import examine
from repro.resolve.files import hash_files, list_tree
from repro.spec import ArtifactSpec

__all__ = ["lock_path"]


def target_of(artifact: ArtifactSpec) -> str:
    """Return where the pilot sees an artifact: a `path` where it lies, others below `inputs/`."""
    return artifact.target or (artifact.reference if artifact.kind == "path" else f"inputs/{artifact.name}")


def lock_path(artifact: ArtifactSpec, *, root: Path, progress: Progress) -> ArtifactLock:
    """Lock a file or folder of the project by its content.

    Raises:
        LockError: `input-missing`, `artifact-empty`, or as `list_tree` and `examine` say.
    """
    listed = list_tree(root / artifact.reference)
    if not listed:
        raise LockError(
            "artifact-empty",
            f"{artifact.reference} holds no file",
            where=artifact.name,
            remedy="put the files there, or correct the path in repro.yaml",
        )
    warnings = examine(listed, where=artifact.reference)
    progress.start(f"hash {artifact.name}", total=sum(path.stat().st_size for _, path in listed))
    files = hash_files(listed, progress)
    return ArtifactLock(
        name=artifact.name,
        kind="path",
        requested=artifact.reference,
        target=target_of(artifact),
        files=files,
        total_bytes=sum(file.size for file in files),
        warnings=tuple(warnings),
    )
