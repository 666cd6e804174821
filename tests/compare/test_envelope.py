"""The calibrated test on pretended runs: harmless differences pass, changes of the computation do not."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.compare import compare
from repro.compare.envelope import Distances, Envelope, distances, judge_envelope, quantile
from repro.errors import CompareError
from repro.tolerance import ToleranceSpec
from repro.trace import Trace
from repro.verdict import Comparability, Outcome, Verdict
from tests.compare.tracegen import Config, phase_of, ranks_of, trace_of

BASE = Config(steps=12, every=2)
NOISE = 2.0**-23
RUNS = {
    "calibration/threads-1": replace(BASE, noise=NOISE, noise_seed=1),
    "calibration/gradients-1": replace(BASE, noise=NOISE, noise_seed=2),
    "calibration/gradients-2": replace(BASE, noise=NOISE, noise_seed=3),
    "calibration/weights-1": replace(BASE, weight_noise=NOISE, noise_seed=4),
    "calibration/weights-2": replace(BASE, weight_noise=NOISE, noise_seed=5),
    "calibration/activations-1": replace(BASE, noise=NOISE, noise_seed=6),
    "calibration/activations-2": replace(BASE, noise=NOISE, noise_seed=7),
    "control/rate-1": replace(BASE, lr=BASE.lr * 1.01),
    "control/data-1": replace(BASE, data="other"),
}
ACROSS = Comparability(relation="across", reasons=("another card",))


def judged(candidate: Config, runs: dict[str, Config] | None = None, *, factor: float = 5) -> Verdict:
    target = trace_of(BASE, RUNS if runs is None else runs)
    spec = ToleranceSpec.parse({"factor": factor})
    return compare(target, trace_of(candidate), tolerance=spec, environment=ACROSS)


@pytest.mark.parametrize("seed", range(100, 120))
def test_harmless_replays_are_accepted(seed: int) -> None:
    verdict = judged(replace(BASE, noise=NOISE, noise_seed=seed))
    assert (verdict.outcome, verdict.kind, verdict.layer) == (
        Outcome.WITHIN_TOLERANCE,
        "within-envelope",
        "envelope",
    )
    assert verdict.envelope is not None
    assert verdict.envelope.horizon == 12
    assert 0 < float.fromhex(verdict.envelope.statistic) < 3
    assert len(verdict.envelope.runs) == 7
    assert verdict.first_divergence is not None
    assert verdict.sentence.startswith("Within tolerance: up to step 12 it is at most ")


@pytest.mark.parametrize(("fault", "begin"), [(1e-3, 1), (1e-2, 6), (-1e-2, 9)])
def test_changed_computation_is_rejected(fault: float, begin: int) -> None:
    verdict = judged(replace(BASE, noise=NOISE, noise_seed=200, fault=fault, fault_from=begin))
    assert (verdict.outcome, verdict.kind, verdict.layer) == (
        Outcome.DIVERGED,
        "envelope-exceeded",
        "envelope",
    )
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == begin
    assert verdict.sentence.startswith(f"Diverged at step {begin}, rank ")
    assert "harmless variants" in verdict.sentence


def test_exact_fields_still_count_across_stacks() -> None:
    verdict = judged(replace(BASE, lr=BASE.lr * 1.000001))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "hyper-parameters-differ")


THREADS = {f"calibration/threads-{number}": RUNS["calibration/threads-1"] for number in (2, 3)}


def without(*names: str) -> dict[str, Config]:
    return {name: config for name, config in RUNS.items() if not name.startswith(names)}


@pytest.mark.parametrize(
    ("runs", "lacks"),
    [
        ({}, "it holds 0 calibration runs of the 7 that are needed"),
        (without("calibration/threads"), "it holds 6 calibration runs of the 7 that are needed"),
        (without("control"), "it holds no negative control"),
        (
            {**without("calibration/weights"), **THREADS},
            "it holds no calibration run with noise in the weights",
        ),
    ],
)
def test_too_little_calibration_is_said(runs: dict[str, Config], lacks: str) -> None:
    verdict = judged(replace(BASE, noise=NOISE, noise_seed=9), runs)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "not-calibrated")
    assert lacks in verdict.sentence


def test_beyond_the_horizon_nothing_passes() -> None:
    loud = {
        name: replace(config, noise=0.5) for name, config in RUNS.items() if name.startswith("calibration")
    }
    verdict = judged(replace(BASE, noise=NOISE, noise_seed=9), {**RUNS, **loud})
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "beyond-horizon")


def test_steps_after_the_horizon_are_not_judged_and_that_is_said() -> None:
    """A control that is like the target from step 8 on: the horizon ends before."""
    target = trace_of(BASE, RUNS)
    control = ranks_of(RUNS["control/rate-1"])
    plain = ranks_of(BASE)
    for rank, events in enumerate(control):
        for index, event in enumerate(events):
            if event["ev"] == "step" and event["step"] >= 8:
                events[index] = next(
                    e for e in plain[rank] if e["ev"] == "step" and e["step"] == event["step"]
                )
    phases = [
        phase_of(control, name="control/rate-1") if phase.name == "control/rate-1" else phase
        for phase in target.phases
    ]
    candidate = trace_of(replace(BASE, noise=NOISE, noise_seed=9, fault=1e-2, fault_from=9))
    verdict = compare(Trace(phases=tuple(phases)), candidate, tolerance=ToleranceSpec(), environment=ACROSS)
    assert verdict.outcome == Outcome.WITHIN_TOLERANCE
    assert verdict.envelope is not None
    assert verdict.envelope.horizon == 6
    assert verdict.notes[-1].startswith(
        "Steps after 6 were not judged: there a harmless difference has grown"
    )


def test_other_device_numbers_leave_only_the_probe() -> None:
    def device(probe: str) -> dict[str, object]:
        return {"rng_probe": {"cpu": "a", "cuda:0": probe}}

    target = trace_of(replace(BASE, head=device("x")), RUNS)
    replay = replace(BASE, noise=NOISE, noise_seed=9, head=device("y"))
    verdict = compare(target, trace_of(replay), tolerance=ToleranceSpec(), environment=ACROSS)
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "device-rng-differs")
    probe = {f"probe/{name}": config for name, config in RUNS.items()}
    target = trace_of(
        replace(BASE, head=device("x")), {"probe/full": replace(BASE, head=device("x")), **probe}
    )
    again = trace_of(replay, {"probe/full": replay})
    verdict = compare(target, again, tolerance=ToleranceSpec(), environment=ACROSS)
    assert verdict.outcome == Outcome.WITHIN_TOLERANCE
    assert verdict.envelope is not None
    assert verdict.envelope.runs[0] == "probe/calibration/threads-1"


def test_the_probe_rejects_too() -> None:
    probe = {f"probe/{name}": config for name, config in RUNS.items()}
    target = trace_of(BASE, {**RUNS, "probe/full": BASE, **probe})
    fine, wrong = (replace(BASE, noise=NOISE, noise_seed=9, fault=fault) for fault in (0.0, 1e-2))
    verdict = compare(
        target, trace_of(fine, {"probe/full": wrong}), tolerance=ToleranceSpec(), environment=ACROSS
    )
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "envelope-exceeded")
    assert "phase probe/full" in verdict.sentence


def test_other_bits_on_an_equal_stack_get_a_second_opinion() -> None:
    target = trace_of(BASE, {**RUNS, "interrupted": replace(BASE, stop_after=4)})
    opinions = []
    for fault in (0.0, 1e-2):
        replay = replace(BASE, noise=NOISE, noise_seed=9, fault=fault)
        again = {"interrupted": replace(replay, stop_after=4, noise_seed=10 if fault else 9)}
        verdict = compare(target, trace_of(replay, again), tolerance=ToleranceSpec())
        assert (verdict.outcome, verdict.layer) == (Outcome.DIVERGED, "bitwise")
        assert verdict.envelope is not None
        opinions.append(" ".join(verdict.notes))
    assert "this looks like a kernel that is not deterministic." in opinions[0]
    assert "The candidate repeats its own first steps to the bit." in opinions[0]
    assert "this looks like another computation." in opinions[1]
    assert "The candidate does not repeat itself either." in opinions[1]


@settings(deadline=None)
@given(
    st.lists(st.floats(0, 1e6), min_size=1, max_size=12),
    st.integers(0, 12),
    st.sampled_from([0.5, 0.75, 0.9, 1.0]),
)
def test_quantile_is_the_usual_one(values: list[float], zeros: int, share: float) -> None:
    numpy = pytest.importorskip("numpy")
    expected = numpy.quantile([*values, *[0.0] * zeros], share)
    assert quantile(values, share, len(values) + zeros) == pytest.approx(expected, rel=1e-12)


@settings(deadline=None)
@given(st.floats(1, 50), st.floats(1, 50), st.integers(0, 30))
def test_a_larger_factor_accepts_no_less(one: float, other: float, seed: int) -> None:
    small, large = sorted((one, other))
    full = phase_of(ranks_of(BASE))
    harmless = [phase_of(ranks_of(RUNS[name]), name=name) for name in ("calibration/weights-1",)]
    candidate = phase_of(ranks_of(replace(BASE, noise=random.Random(seed).uniform(0, 1e-5), noise_seed=seed)))
    accepted = [
        judge_envelope(full, harmless, [], [(full, candidate)], factor).exceeded is None
        for factor in (small, large)
    ]
    assert accepted[1] >= accepted[0]


def test_distances_agree_with_the_tensors_themselves() -> None:
    """Tensors of up to 64 elements are their own sketch, so that the estimate is the distance."""
    other = replace(BASE, noise=1e-3, noise_seed=4)
    first = next(iter(distances(phase_of(ranks_of(BASE)), phase_of(ranks_of(other)))))
    assert first.step == 1
    assert set(first.params) == {(0, "blocks.0.weight"), (0, "blocks.1.bias"), (0, "head.weight")}
    assert all(0 < value < 1e-6 for value in first.params.values())
    with pytest.raises(CompareError) as caught:
        list(distances(phase_of(ranks_of(BASE)), phase_of(ranks_of(replace(BASE, world=1)))))
    assert caught.value.kind == "calibration-differs"


def test_floors_keep_a_zero_envelope_from_rejecting_the_last_bit() -> None:
    envelope = Envelope()
    found = Distances(step=1, scalars={(0, "loss"): 2.0**-23}, params={(0, "w"): 2.0**-24})
    assert envelope.statistic(envelope.ratios(found)) == 1.0
    assert envelope.scalar_ratio(found, "loss") == (1.0, (0, "loss"))
