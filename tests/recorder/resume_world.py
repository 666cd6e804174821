"""Ways to forget something when a run is resumed, and the recordings of a small program that does."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from repro.compare import compare_resume
from repro.trace import PhaseTrace, RankFile
from repro.verdict import Verdict
from tests.recorder.recorder_world import PROGRAMS, recorded_environment, run

__all__ = ["AT", "BUGS", "SOUND", "judged", "record_resumes"]

AT = 8
"""Step after which the program saved."""

BUGS = {
    "a weight": ("weights-not-restored", "params_before", AT),
    "accumulation": (None, "inputs", AT + 1),
    "average": ("evaluation-differs", "eval", 12),
    "buffers": ("evaluation-differs", "eval", 12),
    "epoch": ("data-position-lost", "inputs", AT + 1),
    "mode": (None, None, AT + 1),
    "numpy generator": ("rng-not-restored", "inputs", AT + 1),
    "optimizer": ("optimizer-not-restored", "hyper.lr", AT + 1),
    "order of parameters": ("optimizer-not-restored", "params", AT + 1),
    "position": ("data-position-lost", "inputs", AT + 1),
    "python generator": ("rng-not-restored", "inputs", AT + 1),
    "scaler": (None, "scaler.scale", AT + 1),
    "scheduler": ("scheduler-not-restored", "hyper.lr", AT + 2),
    "scheduler twice": ("scheduler-not-restored", "hyper.lr", AT + 1),
    "settings": (None, "hyper.weight_decay", AT + 1),
    "torch generator": ("rng-not-restored", "rng.torch", AT + 1),
    "worker seeds": ("data-position-lost", "inputs", AT + 1),
}
"""What was lost, the first observable that shows it, and the step at which it does."""

SOUND = ("nothing", "worker")
"""Ways that forget nothing."""


def record_resumes(place: Path) -> None:
    """Record the whole run, and each way of resuming it, below a folder."""
    plain = [way for way in BUGS if "worker" not in way]
    for ways in (["full", "nothing", *plain], ["full worker", "worker", "worker seeds"]):
        environment = recorded_environment(place / "trace", REPRO_EVERY="1")
        run([PROGRAMS / "resume.py", place, *ways], environment, options=["-W", "ignore"])


def phase(folder: Path, way: str, first_step: int = 0) -> PhaseTrace:
    pid = (folder / f"{way}.pid").read_text()
    (path,) = (folder / "trace").glob(f"proc-*-{pid}.jsonl")
    lines = partial(lambda place: place.read_bytes().splitlines(keepends=True), path)
    file = RankFile(rank=0, path=path.name, digest="", size=0, lines=lines)
    return PhaseTrace(name=way, first_step=first_step, world_size=1, ranks=(file,))


def judged(folder: Path, way: str) -> Verdict:
    """Compare a way of resuming with the run that was not interrupted."""
    full = "full worker" if "worker" in way else "full"
    return compare_resume(phase(folder, full), phase(folder, way, AT))
