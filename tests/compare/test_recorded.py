"""Verdicts about real training, recorded by the recorder: what was changed is what is named first."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

import pytest

from repro.compare import compare, compare_resume, self_replay
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, Trace
from repro.verdict import Outcome, Verdict
from tests.compare.recording import record, recorded_phase

pytestmark = pytest.mark.torch

AT, STEPS = 4, 10
CHANGED = 60
"""Position of the changed byte."""


@dataclass
class Bench:
    """Runs the program, each set of options once."""

    folder: Path
    runs: dict[tuple[str, ...], Path] = field(default_factory=dict)

    def record(self, *options: str, steps: int = STEPS, stop: int = 0) -> Path:
        """Return the trace file of a run."""
        key = (*options, str(stop))
        if key not in self.runs:
            trace = self.folder / f"run-{len(list(self.folder.glob('run-*')))}"
            settings = {"REPRO_STEPS": str(steps), **({"REPRO_STOP_AFTER": str(stop)} if stop else {})}
            record("tiny.py", ["--text", str(self.text()), *options], trace, **settings)
            (self.runs[key],) = trace.glob("proc-*.jsonl")
        return self.runs[key]

    def text(self, *, changed: bool = False) -> Path:
        path = self.folder / ("changed.txt" if changed else "text.txt")
        if not path.exists():
            data = bytearray(b"in the beginning was the word, and the word was with the pilot. " * 8)
            if changed:
                data[CHANGED] ^= 1
            path.write_bytes(data)
        return path

    def phase(self, *options: str, name: str = "full", first_step: int = 0, stop: int = 0) -> PhaseTrace:
        path = self.record(*options, steps=STEPS - first_step, stop=stop)
        return recorded_phase(path, name, first_step)


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


def against(bench: Bench, *options: str, tolerance: ToleranceSpec | None = None) -> Verdict:
    target, candidate = (Trace(phases=(phase,)) for phase in (bench.phase(), bench.phase(*options)))
    return compare(target, candidate, tolerance=tolerance or ToleranceSpec())


def test_again(bench: Bench) -> None:
    verdict = against(bench, "--seed", "3")
    assert (verdict.outcome, verdict.compared.steps) == (Outcome.BITWISE, STEPS)


@pytest.mark.parametrize(
    ("options", "kind", "step", "words"),
    [
        (["--lr", "0.0031"], "hyper-parameters-differ", 1, "hyper-parameter lr of optimizer 0 group 0"),
        (["--decay", "0.0101"], "hyper-parameters-differ", 1, "hyper-parameter weight_decay"),
        (["--seed", "4"], "weights-before-differ", 0, "5 of 5 initial weights differ first"),
        (["--gelu", "tanh"], "modules-differ", 0, "the module 3 differs first: GELU(approximate="),
        (["--smooth", "1e-3"], "loss-differs", 1, "the loss differs first"),
        (["--steps", "7"], "steps-missing", 8, "the candidate lacks this step: 10 steps in the target, 7"),
    ],
)
def test_first_cause(bench: Bench, options: list[str], kind: str, step: int, words: str) -> None:
    verdict = against(bench, *options)
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, kind)
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == step
    assert words in verdict.sentence


def test_one_byte_of_the_data(bench: Bench) -> None:
    """It is named at the first step that reads it."""
    verdict = against(bench, "--text", str(bench.text(changed=True)))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "inputs-differ")
    torch = pytest.importorskip("torch")
    order = torch.randperm(
        len(bench.text().read_bytes()) - 17, generator=torch.Generator().manual_seed(3)
    ).tolist()
    reads = [index // 8 + 1 for index, place in enumerate(order) if place <= CHANGED < place + 16]
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == reads[0]
    assert "the data differ first (inputs, number 0)" in verdict.sentence


def test_threads_are_another_stack(bench: Bench) -> None:
    verdict = against(bench, "--threads", "2")
    assert verdict.environment == "across"
    assert verdict.kind in ("equal", "not-calibrated")


def test_explicit_bounds(bench: Bench) -> None:
    def spec(rtol: float) -> ToleranceSpec:
        names = ("loss", "grad_norm", "grads", "params")
        return ToleranceSpec.parse({"same": {name: {"rtol": rtol, "atol": 0} for name in names}})

    assert against(bench, "--smooth", "1e-3", tolerance=spec(0.5)).outcome == Outcome.WITHIN_TOLERANCE
    tight = against(bench, "--smooth", "1e-3", tolerance=spec(1e-9))
    assert (tight.outcome, tight.layer) == (Outcome.DIVERGED, "bound")


def resumed(bench: Bench, *options: str) -> Verdict:
    saved = bench.folder / "state.pt"
    full = bench.phase("--save", str(saved))
    phase = bench.phase("--resume", str(saved), *options, name="resumed", first_step=AT)
    return compare_resume(full, phase)


def test_self_replay_and_exact_resume(bench: Bench) -> None:
    full = bench.phase("--save", str(bench.folder / "state.pt"))
    again = bench.phase("--save", str(bench.folder / "again.pt"), name="interrupted", stop=AT)
    verdict = self_replay(full, again)
    assert (verdict.outcome, verdict.compared.steps) == (Outcome.BITWISE, AT)
    verdict = resumed(bench)
    assert (verdict.outcome, verdict.compared.steps) == (Outcome.BITWISE, STEPS - AT)


@pytest.mark.parametrize(
    ("forget", "kind", "step"),
    [
        ("rng", "rng-not-restored", 5),
        ("optimizer", "optimizer-not-restored", 5),
        ("scheduler", "scheduler-not-restored", 6),
        ("data", "data-position-lost", 5),
    ],
)
def test_what_the_checkpoint_lost(bench: Bench, forget: str, kind: str, step: int) -> None:
    verdict = resumed(bench, "--forget", forget)
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, kind)
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == step
