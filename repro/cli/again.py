"""A replay that differs although no recorded input does is run once more: does it at least repeat itself?"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from repro.adapters.clock import SystemClock
from repro.adapters.tracefiles import open_trace
from repro.cli.console import Console
from repro.cli.flow import Ready
from repro.cli.judging import Judged
from repro.compare import spread_note
from repro.run import run_full
from repro.verdict import Outcome

__all__ = ["run_again"]


def run_again(judged: Judged, opened: Ready, folder: Path, console: Console) -> Judged:
    """Measure the spread from run to run, where it could be all there is; add it to the verdict's notes.

    Raises:
        RunError: the pilot failed the second time.
        EngineError: the engine went away.
    """
    verdict = judged.verdict
    if verdict.outcome != Outcome.DIVERGED or verdict.explanations:
        return judged
    console.start("run: every step once more, to see whether the replay repeats itself")
    place = folder / "again"
    place.mkdir()
    record = run_full(
        opened.project,
        place,
        runtime=opened.runtime,
        clock=SystemClock(),
        on_line=lambda line: console.advance(0, note=line),
    )
    first = open_trace(judged.run.folder, judged.run.phases).phase("full")
    note = spread_note(first, open_trace(place, [record]).phase("full"), verdict)
    return replace(judged, verdict=verdict.model_copy(update={"notes": (*verdict.notes, note)}))
