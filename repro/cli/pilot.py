"""Run the pilot for capture and replay: phases said as they begin, steps as they come."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.adapters.clock import SystemClock
from repro.adapters.tracefiles import open_trace
from repro.cli.console import Console
from repro.cli.flow import Ready
from repro.cli.project import file_cache
from repro.run import PilotRun, open_checkpoint, require_artifacts, run_pilot

__all__ = ["record_pilot", "scratch"]

_OPENING = "open the checkpoint in a process of its own"
PHASES = {
    "full": "run: every step",
    "interrupted": "run: up to the checkpoint, where the process ends",
    "resumed": "run: resumed from the checkpoint in a new process",
}


@contextmanager
def scratch() -> Iterator[Path]:
    """Give an empty folder on the cache's file system, and remove it in the end."""
    parent = file_cache().folder / "scratch"
    parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=parent, prefix="pilot-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def record_pilot(ready: Ready, folder: Path, console: Console) -> PilotRun:
    """Look at the bytes of a ready project's inputs, run every phase, and open the checkpoint.

    Raises:
        RunError: an input differs from the lock, or the pilot failed.
        EngineError: the engine went away.
    """
    require_artifacts(ready.project.lock, ready.project.artifacts)
    run = run_pilot(
        ready.project,
        folder,
        runtime=ready.runtime,
        clock=SystemClock(),
        on_phase=lambda name: console.start(PHASES[name]),
        on_line=lambda line: console.advance(0, note=line),
    )
    if run.checkpoint is None:
        return run
    console.start(_OPENING)
    trace = open_trace(run.folder, run.phases).phase("full")
    return open_checkpoint(
        ready.project, run, trace, runtime=ready.runtime, on_line=lambda line: console.advance(0, note=line)
    )
