"""The calibrated test on real training: harmless replays are accepted, mistakes are not.

All of it goes through the recorder: a small transformer with dropout, AdamW and clipping, 16 steps, on a CPU.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.compare import compare
from repro.tolerance import ToleranceSpec
from repro.trace import Trace
from repro.verdict import Comparability, Outcome, Verdict
from tests.compare.recording import record, recorded_phase

pytestmark = [pytest.mark.torch, pytest.mark.slow]

LAST_BIT = 2.0**-23
CALIBRATION = {
    "calibration/threads-1": "threads=2",
    "calibration/gradients-1": f"gradients={LAST_BIT} draw=1",
    "calibration/gradients-2": f"gradients={LAST_BIT} draw=2",
    "calibration/weights-1": f"weights={LAST_BIT} draw=3",
    "calibration/weights-2": f"weights={LAST_BIT} draw=4",
    "calibration/activations-1": f"activations={LAST_BIT} draw=5",
    "calibration/activations-2": f"activations={LAST_BIT} draw=6",
    "control/data-1": "data=1",
    "control/rate-1": "rate=1.01",
}
HARMLESS = {
    "again": "",
    "no-mkldnn": "nomkldnn=1",
    "math": "math=1",
    "loop": "loop=1",
    "math-threads": "math=1 threads=2",
    "math-loop": "math=1 loop=1",
    "everything": "math=1 threads=2 nomkldnn=1 loop=1",
    "noise-gradients": f"gradients={LAST_BIT} draw=9",
    "noise-activations": f"activations={LAST_BIT} draw=29",
    "noise-math": f"activations={LAST_BIT} draw=30 math=1",
}
FAULTY = {
    "smoothing-1e-4": "smooth=1e-4",
    "smoothing-1e-3": "smooth=1e-3",
    "penalty": "l2=1e-5",
    "clip-0.99": "clip=0.99",
    "clip-0.5": "clip=0.5",
    "frozen": "frozen=1",
    "position": "shift=1",
    "attention-scale": "_scale=1.001",
    "dropout-0.101": "_p=0.101",
    "dropout-0.11": "_p=0.11",
    "gelu": "_tanh=1",
    "one-label": "label=9",
    "one-late-label": "label=14",
    "lost-update": "lost=8",
    "bump-1e-4": "bump=5 by=1e-4",
    "bump-late": "bump=12 by=1e-3",
    "weights-1e-5": "weights=1e-5 draw=3",
    "gradients-1e-3": "gradients=1e-3 draw=3",
}
ISA = ("default", "avx2")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Trace files by variant."""
    folder = tmp_path_factory.mktemp("population")
    variants = {"full": "", **CALIBRATION, **HARMLESS, **FAULTY}
    found = {}
    runs = [("all", variants, {}), *((isa, {isa: ""}, {"ATEN_CPU_CAPABILITY": isa}) for isa in ISA)]
    for name, chosen, settings in runs:
        arguments = [f"{variant} {options}" for variant, options in chosen.items()]
        said = record("population.py", arguments, folder / name, REPRO_STEPS="16", **settings)
        for line in said.splitlines():
            variant, pid = line.split()
            (found[variant],) = (folder / name).glob(f"proc-*-{pid}.jsonl")
    return found


def against(files: dict[str, Path], variant: str) -> Verdict:
    target = [recorded_phase(files["full"]), *(recorded_phase(files[name], name) for name in CALIBRATION)]
    candidate = Trace(phases=(recorded_phase(files[variant]),))
    across = Comparability(relation="across")
    return compare(Trace(phases=tuple(target)), candidate, tolerance=ToleranceSpec(), environment=across)


@pytest.mark.parametrize("variant", [*HARMLESS, *ISA])
def test_harmless_replays_are_accepted(files: dict[str, Path], variant: str) -> None:
    verdict = against(files, variant)
    assert verdict.reproduced, verdict.sentence
    if verdict.envelope is not None:
        assert verdict.envelope.horizon == 16


@pytest.mark.parametrize("variant", FAULTY)
def test_mistakes_are_rejected(files: dict[str, Path], variant: str) -> None:
    verdict = against(files, variant)
    assert verdict.outcome == Outcome.DIVERGED, verdict.sentence


def test_the_gap_is_wide(files: dict[str, Path]) -> None:
    """No harmless replay uses half of what is allowed."""

    def largest(variant: str) -> float:
        envelope = against(files, variant).envelope
        if envelope is None:
            return 0.0
        statistics = envelope.statistic, envelope.loss_statistic, envelope.gradient_statistic
        return max(float.fromhex(text) for text in statistics)

    assert max(largest(variant) for variant in (*HARMLESS, *ISA)) < 2.5
