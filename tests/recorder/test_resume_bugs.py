"""What people forget to save or restore, reproduced one by one: each is found, at its step, by its sign."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from repro.compare import compare_resume
from repro.trace import PhaseTrace, RankFile
from repro.verdict import Outcome, Verdict
from tests.recorder.recorder_world import PROGRAMS, recorded_environment, run

pytestmark = pytest.mark.torch

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


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("resume")
    plain = [way for way in BUGS if "worker" not in way]
    for ways in (["full", "nothing", *plain], ["full worker", "worker", "worker seeds"]):
        environment = recorded_environment(place / "trace", REPRO_EVERY="1")
        run([PROGRAMS / "resume.py", place, *ways], environment, options=["-W", "ignore"])
    return place


def phase(folder: Path, way: str, first_step: int = 0) -> PhaseTrace:
    pid = (folder / f"{way}.pid").read_text()
    (path,) = (folder / "trace").glob(f"proc-*-{pid}.jsonl")
    lines = partial(lambda place: place.read_bytes().splitlines(keepends=True), path)
    file = RankFile(rank=0, path=path.name, digest="", size=0, lines=lines)
    return PhaseTrace(name=way, first_step=first_step, world_size=1, ranks=(file,))


def judged(folder: Path, way: str) -> Verdict:
    full = "full worker" if "worker" in way else "full"
    return compare_resume(phase(folder, full), phase(folder, way, AT))


@pytest.mark.parametrize("way", ["nothing", "worker"])
def test_nothing_lost_is_bitwise(folder: Path, way: str) -> None:
    verdict = judged(folder, way)
    assert (verdict.outcome, verdict.kind) == (Outcome.BITWISE, "equal"), verdict.sentence


@pytest.mark.parametrize("way", BUGS)
def test_what_was_lost_is_found(folder: Path, way: str) -> None:
    kind, observable, step = BUGS[way]
    verdict = judged(folder, way)
    assert verdict.outcome == Outcome.DIVERGED
    first = verdict.first_divergence
    assert first is not None
    assert first.step == step, verdict.sentence
    assert kind in (None, verdict.kind), verdict.sentence
    assert observable in (None, first.observable), verdict.sentence
