"""Run a verified pilot again and hand back what it recorded this time."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from repro.digest import digest_stream
from repro.errors import RunError
from repro.lock import ArtifactLock, Lock
from repro.manifest import VerifiedManifest
from repro.ports import Clock, OnLine, Runtime
from repro.run import OnPhase, PilotRun, Project, run_pilot

__all__ = ["replay", "require_artifacts"]


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


def replay(
    verified: VerifiedManifest,
    project: Project,
    folder: Path,
    *,
    runtime: Runtime,
    clock: Clock,
    on_phase: OnPhase,
    on_line: OnLine,
) -> PilotRun:
    """Run the pilot of a verified manifest again.

    Raises:
        RunError: `runtime-differs` where an image was signed and none is given, or the pilot's own faults.
    """
    if project.image is None and verified.manifest.runtime == "image":
        raise RunError(
            "runtime-differs",
            "the run was captured in an image and is to be replayed on the host",
            remedy="start an engine, see `repro doctor`",
        )
    require_artifacts(project.lock, project.artifacts)
    return run_pilot(project, folder, runtime=runtime, clock=clock, on_phase=on_phase, on_line=on_line)
