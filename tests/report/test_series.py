from __future__ import annotations

import json
import math
import tracemalloc
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import TraceError
from repro.report.brief import brief_step
from repro.report.series import Curve, difference, phase_series
from repro.tolerance import Bound
from repro.trace import PhaseTrace, hexed, write_line
from tests.report.report_traces import phase_trace, rank_file


@given(st.lists(st.floats(-1e6, 1e6), min_size=1, max_size=300), st.integers(2, 40))
def test_thinning_keeps_both_extremes_and_every_step(values: list[float], limit: int) -> None:
    curve = Curve(limit=limit)
    for step, value in enumerate(values, 1):
        curve.add(step, value)
    buckets = curve.buckets
    assert len(buckets) <= limit
    assert min(bucket.low for bucket in buckets) == min(values)
    assert max(bucket.high for bucket in buckets) == max(values)
    covered = [step for bucket in buckets for step in range(bucket.first, bucket.last + 1)]
    assert covered == list(range(1, len(values) + 1))


def test_values_that_are_not_finite_are_counted_apart() -> None:
    curve = Curve()
    curve.add(1, math.nan)
    curve.add(1, 2.0)
    assert [(bucket.low, bucket.high, bucket.bad) for bucket in curve.buckets] == [(2.0, 2.0, 1)]


def test_a_long_trace_is_read_in_bounded_memory() -> None:
    phase = phase_trace(steps=4000, world=1)
    tracemalloc.start()
    series = phase_series(phase)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(series.loss.buckets) <= 400
    assert peak < 500_000


@given(
    st.recursive(
        st.none()
        | st.integers()
        | st.text()
        | st.sampled_from(['"loss":[', ',"step":9}', "]", "\\", ',"loss":[1']),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
        max_leaves=8,
    ),
    st.sampled_from([None, "0x1.8p+1", "nan"]),
    st.lists(st.sampled_from(["0x1.0p+0", "inf"]), max_size=3),
    st.integers(1, 10**9),
)
def test_a_brief_step_says_what_the_whole_line_says(
    odd: Any, norm: str | None, bits: list[str], step: int
) -> None:
    """Whatever stands in the members it skips, brief reading agrees with parsing, or leaves it to parsing."""
    loss = [{"bits": one, "dtype": "float32"} for one in bits]
    event = {
        "ev": "step",
        "grad_norm": norm,
        "grads": {"weight": odd},
        "inputs": odd,
        "loss": loss,
        "step": step,
    }
    line = write_line(event)
    brief = brief_step(line)
    assert brief is None or brief == {
        key: json.loads(line)[key] for key in ("ev", "grad_norm", "loss", "step")
    }
    assert (
        brief is not None
        or b"loss" in write_line({"ev": "x", "odd": odd})
        or b"step" in write_line({"odd": odd})
    )


def test_cost_is_taken_over_all_ranks() -> None:
    cost = phase_series(phase_trace(steps=10, world=3)).cost
    assert cost.timed_steps == 30
    assert cost.step_seconds == pytest.approx(1.5)
    assert cost.data_seconds == pytest.approx(0.12)
    assert (cost.memory_bytes, cost.device_bytes) == (900_000_010, 6_000_000_000)


def test_what_a_trace_does_not_say_is_unknown() -> None:
    head = write_line({"ev": "head", "format": "repro-trace/1"})
    file = rank_file(0, lambda: [head])
    cost = phase_series(PhaseTrace(name="full", first_step=0, world_size=1, ranks=(file,))).cost
    assert (cost.timed_steps, cost.memory_bytes, cost.device_bytes) == (0, None, None)


def test_equal_phases_do_not_differ() -> None:
    found = difference(phase_trace(steps=8), phase_trace(steps=8), "bitwise")
    assert (found.steps, found.equal, found.unpaired) == (16, 16, 0)
    assert {bucket.high for bucket in found.loss.buckets} == {0.0}


def test_differences_begin_where_the_noise_does_and_are_the_largest_of_any_rank() -> None:
    target, other = phase_trace(steps=8), phase_trace(steps=8, noise_from=5)
    found = difference(target, other, None)
    apart = {bucket.first: bucket.high for bucket in found.loss.buckets}
    assert [step for step, value in apart.items() if value > 0] == [5, 6, 7, 8]
    each = []
    for rank in range(2):
        losses = [
            [
                float.fromhex(event["loss"][0]["bits"])
                for event in one.ranks[rank].events()
                if event["ev"] == "step"
            ]
            for one in (target, other)
        ]
        each.append(abs(losses[0][7] - losses[1][7]))
    assert apart[8] == max(each)


def test_a_step_that_is_not_finite_never_looks_equal() -> None:
    found = difference(phase_trace(steps=4, nan_at=3), phase_trace(steps=4, nan_at=3), "bitwise")
    assert found.equal == 4
    assert sum(bucket.bad for bucket in found.loss.buckets) == 4


def test_a_resumed_phase_is_laid_on_the_same_steps() -> None:
    found = difference(phase_trace(steps=8), phase_trace("resumed", steps=4, first_step=4), "bitwise")
    assert (found.steps, found.equal, found.unpaired) == (8, 8, 0)
    assert [bucket.first for bucket in found.loss.buckets] == [5, 6, 7, 8]


def test_steps_of_one_side_are_counted() -> None:
    assert difference(phase_trace(steps=8), phase_trace(steps=6), None).unpaired == 4


def test_the_allowance_is_that_of_the_rule() -> None:
    target = phase_trace(steps=1, world=1)
    loss = float.fromhex(next(e for e in target.ranks[0].events() if e["ev"] == "step")["loss"][0]["bits"])
    bounds: dict[str, Any] = {"loss": Bound(rtol=(0.01).hex(), atol=(0.5).hex())}
    found = difference(target, target, bounds)
    assert found.loss_allowed.buckets[0].high == 0.5 + 0.01 * loss
    assert found.grad_norm_allowed.buckets[0].high == 0.0, "what is not named must be equal to the bit"
    assert difference(target, target, "calibrated").loss_allowed.buckets == []
    ulps = difference(target, target, {"loss": Bound(max_ulp=3)}).loss_allowed.buckets[0].high
    assert ulps == 3 * 2.0**-23 * 2.0 ** math.floor(math.log2(loss))


@pytest.mark.parametrize(
    "event",
    [
        {"ev": "step"},
        {"ev": "step", "step": "x"},
        {"ev": "step", "step": 1, "loss": [{"bits": 5}]},
        {"ev": "step", "step": 1, "loss": 7},
        {"ev": "time", "step": 1},
        {"ev": "mem", "rss_peak_bytes": "many"},
        {"ev": "step", "step": 1, "grad_norm": "0xzz"},
    ],
)
def test_events_that_nobody_verified_are_refused_in_words(event: dict[str, object]) -> None:
    good = {"ev": "mem", "rss_peak_bytes": 1}
    head = {"ev": "head", "format": "repro-trace/1"}
    lines = [write_line(one) for one in (head, good, event)]
    file = rank_file(0, lambda: lines)
    with pytest.raises(TraceError) as caught:
        phase_series(PhaseTrace(name="full", first_step=0, world_size=1, ranks=(file,)))
    assert caught.value.kind == "trace-malformed"


def test_gradient_accumulation_plots_the_mean_and_compares_each() -> None:
    def phase(second: float) -> PhaseTrace:
        losses = [{"bits": hexed(value), "dtype": "float32"} for value in (1.0, second)]
        lines = [
            write_line(event)
            for event in (
                {"ev": "head", "format": "repro-trace/1"},
                {"ev": "step", "step": 1, "loss": losses},
            )
        ]
        return PhaseTrace(name="full", first_step=0, world_size=1, ranks=(rank_file(0, lambda: lines),))

    assert phase_series(phase(2.0)).loss.buckets[0].high == 1.5
    assert difference(phase(2.0), phase(2.5), None).loss.buckets[0].high == 0.5
