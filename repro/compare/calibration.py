"""The phases a calibrated target holds beside its own, and the verdict that follows from them.

Names: `calibration/<kind>-<n>` for harmless runs, `control/<kind>-<n>` for negative controls. The fp32
probe is a second, short pilot with phases of its own: `probe/full`, `probe/calibration/weights-1`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from repro.compare.envelope import MIN_HORIZON, Exceeded, Judgement, judge_envelope
from repro.compare.plain import plain
from repro.compare.words import amount
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, Trace, hexed
from repro.verdict import Deviation, EnvelopeSummary, Kind, Outcome, TensorRatio, Verdict

__all__ = ["MIN_RUNS", "NEEDED_KINDS", "PROBE", "Pair", "calibrated", "opinion"]

PROBE = "probe/"
MIN_RUNS = 7
NEEDED_KINDS = frozenset({"activations", "weights"})
"""Without these the envelope begins near zero, and harmless runs on other hardware fall out of it."""

_OTHER_NUMBERS = (
    "Cannot tell: the accelerators draw different numbers from one seed, and there is no fp32 probe "
    "without dropout."
)

Pair = tuple[PhaseTrace, PhaseTrace]


def _below(target: Trace, folder: str) -> list[PhaseTrace]:
    return [phase for phase in target.phases if phase.name.startswith(folder)]


@dataclass(frozen=True, slots=True)
class _Test:
    """One calibrated test: of the run itself, or of its probe."""

    prefix: str
    full: PhaseTrace
    harmless: Sequence[PhaseTrace]
    controls: Sequence[PhaseTrace]
    pairs: Sequence[Pair]

    def lacks(self) -> str | None:
        """Say what is missing of a calibration, or None."""
        kinds = {phase.name.rpartition("/")[2].rpartition("-")[0] for phase in self.harmless}
        if len(self.harmless) < MIN_RUNS:
            return f"it holds {len(self.harmless)} calibration runs of the {MIN_RUNS} that are needed"
        if missing := NEEDED_KINDS - kinds:
            return f"it holds no calibration run with noise in the {' and '.join(sorted(missing))}"
        return None if self.controls else "it holds no negative control"

    def judge(self, factor: float) -> Judgement:
        return judge_envelope(self.full, self.harmless, self.controls, self.pairs, factor)


def _tests(target: Trace, pairs: Sequence[Pair]) -> list[_Test]:
    """The run's own test first, then the probe's where the target has one and it was run again."""
    tests = []
    for prefix in ("", PROBE):
        own = [pair for pair in pairs if pair[0].name.startswith(PROBE) == bool(prefix)]
        full = next((pair[0] for pair in own if pair[0].name == f"{prefix}full"), None)
        if full is not None:
            harmless = _below(target, f"{prefix}calibration/")
            tests.append(_Test(prefix, full, harmless, _below(target, f"{prefix}control/"), own))
    return tests


def _summary(test: _Test, found: Judgement, factor: str) -> EnvelopeSummary:
    return EnvelopeSummary(
        factor=factor,
        statistic=hexed(found.statistic),
        loss_statistic=hexed(found.loss_statistic),
        gradient_statistic=hexed(found.gradient_statistic),
        q90=hexed(found.q90),
        maximum=hexed(found.maximum),
        runs=tuple(phase.name for phase in test.harmless),
        controls=tuple(phase.name for phase in test.controls),
        horizon=found.horizon,
        last_step=found.last_step,
        worst=tuple(
            TensorRatio(rank=rank, tensor=plain(tensor), ratio=hexed(ratio))
            for (rank, tensor), ratio in found.worst
        ),
    )


def _exceeded(out: Exceeded, factor: float, ranks: int) -> tuple[Deviation, str]:
    rank, tensor = out.unit[0], plain(out.unit[1])
    deviation = Deviation(
        phase=out.phase,
        step=out.step,
        rank=rank,
        layer="envelope",
        kind="envelope-exceeded",
        observable=out.observable,
        tensor=tensor if out.observable == "params" else None,
        rel_diff=hexed(out.ratio),
        allowed=hexed(factor),
    )
    where = f"at step {out.step}" + (f", rank {rank}" if ranks > 1 else "")
    where += "" if out.phase == "full" else f", phase {out.phase}"
    subject = {
        "grad_norm": "the gradient norm is",
        "loss": "the loss is",
        "params": f"a quarter of the parameters, {tensor} most, are at least",
    }[out.observable]
    sentence = (
        f"Diverged {where}: {subject} {amount(out.ratio)} times as far from the target "
        f"as its harmless variants ever were, allowed {amount(factor)}."
    )
    return deviation, sentence


def calibrated(
    target: Trace,
    pairs: Sequence[Pair],
    tolerance: ToleranceSpec,
    *,
    device_rng: bool,
    common: Mapping[str, Any],
) -> Verdict:
    """Judge runs whose bits differ by the target's calibration.

    Args:
        pairs: ordinary phases of target and candidate.
        device_rng: whether accelerators of both draw the same numbers from one seed. If not, dropout alone
            makes the run itself another one, and only the probe counts.
        common: members of every verdict of this comparison.
    """
    factor = float.fromhex(tolerance.factor)
    tests = [test for test in _tests(target, pairs) if device_rng or test.prefix]
    if not tests:
        return _cannot("device-rng-differs", _OTHER_NUMBERS, common)
    if lacks := tests[0].lacks():
        sentence = f"Cannot tell: bits differ, and the target does not say how far they may; {lacks}."
        return _cannot("not-calibrated", sentence, common)
    judged = [(test, test.judge(factor)) for test in tests if test.lacks() is None]
    decided = [(test, found) for test, found in judged if found.horizon >= MIN_HORIZON]
    for test, found in decided:
        if found.exceeded is not None:
            deviation, sentence = _exceeded(found.exceeded, factor, test.full.world_size)
            places = {"first_divergence": deviation, "deviations": (deviation, *common.get("deviations", ()))}
            return Verdict(
                outcome=Outcome.DIVERGED,
                layer="envelope",
                kind="envelope-exceeded",
                sentence=sentence,
                envelope=_summary(test, found, tolerance.factor),
                **{**common, **places},
            )
    if not decided:
        sentence = (
            f"Cannot tell: already after step {judged[0][1].horizon} a harmless difference is as large as a "
            f"real change; fewer than {MIN_HORIZON} steps decide nothing."
        )
        return _cannot("beyond-horizon", sentence, common)
    return _within(_summary(*decided[0], tolerance.factor), common)


def opinion(
    target: Trace, pairs: Sequence[Pair], tolerance: ToleranceSpec
) -> tuple[EnvelopeSummary, str] | None:
    """Say what the calibrated test makes of bits that differ on an equal stack; None without calibration."""
    tests = [test for test in _tests(target, pairs) if not test.prefix and test.lacks() is None]
    if not tests:
        return None
    found = tests[0].judge(float.fromhex(tolerance.factor))
    if found.horizon < MIN_HORIZON:
        return None
    largest = amount(max(found.statistic, found.loss_statistic, found.gradient_statistic))
    guess = "a kernel that is not deterministic" if found.exceeded is None else "another computation"
    note = f"It is {largest} times as far away as harmless variants are: this looks like {guess}."
    return _summary(tests[0], found, tolerance.factor), note


def _cannot(kind: Kind, sentence: str, common: Mapping[str, Any]) -> Verdict:
    return Verdict(outcome=Outcome.INCOMPARABLE, layer=None, kind=kind, sentence=sentence, **common)


def _within(summary: EnvelopeSummary, common: Mapping[str, Any]) -> Verdict:
    notes = tuple(common["notes"])
    if summary.last_step > summary.horizon:
        notes += (
            f"Steps after {summary.horizon} were not judged: there a harmless difference has grown "
            "as large as a real change.",
        )
    statistics = summary.statistic, summary.loss_statistic, summary.gradient_statistic
    largest = max(float.fromhex(text) for text in statistics)
    sentence = (
        f"Within tolerance: up to step {summary.horizon} it is at most {amount(largest)} times as far "
        f"from the target as its harmless variants were, allowed {amount(float.fromhex(summary.factor))}."
    )
    return Verdict(
        outcome=Outcome.WITHIN_TOLERANCE,
        layer="envelope",
        kind="within-envelope",
        sentence=sentence,
        envelope=summary,
        **{**common, "notes": notes},
    )
