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
from repro.cli.machine import accelerators_here
from repro.cli.project import file_cache
from repro.compare.proof import prove
from repro.manifest import PhaseRecord
from repro.proof import Proof
from repro.run import (
    PilotRun,
    files_written,
    open_checkpoint,
    pilot_environment,
    require_artifacts,
    require_one_process_each,
    run_bare,
    run_full,
    run_pilot,
    run_probe,
)

__all__ = ["probe_pilot", "prove_pilot", "record_pilot", "scratch"]

_OPENING = "open the checkpoint in a process of its own"
PHASES = {
    "bare": "run: bare, to prove that recording changes nothing",
    "probe/full": "run: the first steps in float32",
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


def _say(name: str) -> str:
    return PHASES.get(name) or f"run: {name.replace('/', ' ')}"


def record_pilot(ready: Ready, folder: Path, console: Console, *, calibration_runs: int = 0) -> PilotRun:
    """Look at the bytes of a ready project's inputs, run every phase, and open the checkpoint.

    Raises:
        RunError: an input differs from the lock, the pilot starts more or fewer processes than there are
            accelerators, or it failed.
        EngineError: the engine went away.
    """
    require_artifacts(ready.project.lock, ready.project.artifacts)
    _require_processes(ready)
    run = run_pilot(
        ready.project,
        folder,
        runtime=ready.runtime,
        clock=SystemClock(),
        on_phase=lambda name: console.start(_say(name)),
        on_line=lambda line: console.advance(0, note=line),
        calibration_runs=calibration_runs,
    )
    if run.checkpoint is None:
        return run
    console.start(_OPENING)
    trace = open_trace(run.folder, run.phases).phase("full")
    return open_checkpoint(
        ready.project, run, trace, runtime=ready.runtime, on_line=lambda line: console.advance(0, note=line)
    )


def prove_pilot(ready: Ready, folder: Path, console: Console) -> tuple[PilotRun, Proof]:
    """Run the pilot recorded, then bare, and compare what both ended with.

    Raises:
        RunError: an input differs from the lock, or the pilot failed.
        CompareError: a run did not say how it ended.
    """
    require_artifacts(ready.project.lock, ready.project.artifacts)
    phases = [_trial(ready, folder, console, name) for name in ("full", "bare")]
    environment = pilot_environment(ready.project.spec, ready.project.accelerator)
    trace = open_trace(folder, phases)
    proof = prove(trace.phase("bare"), trace.phase("full"), files=files_written(folder))
    return PilotRun(phases=tuple(phases), checkpoint=None, folder=folder, environment=environment), proof


def probe_pilot(ready: Ready, folder: Path, console: Console) -> PhaseRecord:
    """Record the first steps of the pilot in float32.

    Raises:
        RunError: the pilot failed, or was not recorded.
    """
    return _trial(ready, folder, console, "probe/full")


def _trial(ready: Ready, folder: Path, console: Console, name: str) -> PhaseRecord:
    console.start(PHASES[name])
    run = {"full": run_full, "bare": run_bare, "probe/full": run_probe}[name]
    return run(
        ready.project,
        folder,
        runtime=ready.runtime,
        clock=SystemClock(),
        on_line=lambda line: console.advance(0, note=line),
    )


def _require_processes(ready: Ready) -> None:
    project = ready.project
    pilot, accelerator = project.spec.pilot, project.accelerator
    devices = accelerators_here(accelerator, ready.engine)
    environment = pilot_environment(project.spec, accelerator)
    for command in filter(None, (pilot.command, pilot.resume)):
        require_one_process_each(command, accelerator, devices, environment)
