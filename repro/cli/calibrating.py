"""What a capture's calibration came to: controls that did nothing are left out, and the method is stated."""

from __future__ import annotations

from dataclasses import replace

from repro.adapters.tracefiles import open_trace
from repro.cli.console import Console
from repro.compare.envelope import distances, record
from repro.manifest import CalibrationRecord
from repro.run import PilotRun

__all__ = ["calibrated_run"]


def calibrated_run(run: PilotRun, console: Console) -> tuple[PilotRun, CalibrationRecord | None]:
    """Leave out controls without effect; return the run and the record of its calibration, if it has one.

    A control must differ from the run to be of use. Another order of the data, say, changes nothing where a
    program takes its data by no sampler of torch's.
    """
    trace = open_trace(run.folder, run.phases)
    kinds = {phase.name: phase.name.partition("/")[0] for phase in trace.phases}
    if "calibration" not in kinds.values():
        return run, None
    full = trace.phase("full")
    controls = [phase for phase in trace.phases if kinds[phase.name] == "control"]
    idle = tuple(phase.name for phase in controls if next(distances(full, phase), None) is None)
    for name in idle:
        console.line(f"{name} changed nothing in this pilot; it is left out")
    kept = tuple(phase for phase in run.phases if phase.name not in idle)
    runs = sum(kind == "calibration" for kind in kinds.values())
    return replace(run, phases=kept), record(runs, len(controls) - len(idle), idle)
