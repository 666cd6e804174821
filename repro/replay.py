"""Run a verified pilot again and hand back what it recorded this time."""

from __future__ import annotations

from pathlib import Path

from repro.errors import RunError
from repro.manifest import VerifiedManifest
from repro.ports import Clock, OnLine, Runtime
from repro.run import OnPhase, PilotRun, Project, require_artifacts, run_pilot

__all__ = ["replay"]


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
