"""A trace that breaks its format is refused with a name, wherever it is read."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.compare import compare, compare_resume, self_replay
from repro.errors import CompareError, TraceError
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, Trace
from repro.verdict import Comparability
from tests.compare.test_envelope import BASE, NOISE, RUNS
from tests.compare.tracegen import phase_of, ranks_of, trace_of

TARGET = trace_of(BASE, RUNS)
NOISY = phase_of(ranks_of(replace(BASE, noise=NOISE, noise_seed=9)))
LINES = list(NOISY.ranks[0].lines())

JUNK: list[Any] = [None, 0, -1, "", "x", "nan", [], {}, [[]], {"a": 1}, True, "0x1.0p+0"]


@st.composite
def broken(draw: st.DrawFn) -> PhaseTrace:
    """One value of one line is another, or gone."""
    index = draw(st.integers(0, len(LINES) - 1))
    event = json.loads(LINES[index])
    place: Any = event
    while True:
        keys = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = draw(st.sampled_from(keys))
        deeper = isinstance(place[key], dict | list) and len(place[key]) > 0
        if not deeper or draw(st.integers(0, 3)) == 0:
            break
        place = place[key]
    if draw(st.booleans()):
        place[key] = draw(st.sampled_from(JUNK))
    else:
        del place[key]
    line = json.dumps(event, sort_keys=True, separators=(",", ":")).encode() + b"\n"
    lines = [*LINES[:index], line, *LINES[index + 1 :]]
    file = replace(NOISY.ranks[0], lines=lambda: iter(lines))
    return replace(NOISY, ranks=(file, *NOISY.ranks[1:]))


@settings(deadline=None, max_examples=80)
@given(broken(), st.sampled_from(["bitwise", "calibrated"]))
def test_a_broken_trace_never_ends_in_a_traceback(phase: PhaseTrace, rule: str) -> None:
    spec = ToleranceSpec.parse({"across": rule})
    across = Comparability(relation="across")
    works: list[Callable[[], object]] = [
        lambda: compare(TARGET, Trace(phases=(phase,)), tolerance=spec, environment=across),
        lambda: compare(TARGET, Trace(phases=(phase,)), tolerance=spec),
        lambda: self_replay(TARGET.phases[0], phase),
        lambda: compare_resume(TARGET.phases[0], replace(phase, first_step=2)),
    ]
    for work in works:
        with contextlib.suppress(TraceError, CompareError):
            work()


@pytest.mark.parametrize("probe", [1, "x", [[]], True])
def test_a_head_whose_probe_is_no_object_is_told_by_name(probe: Any) -> None:
    head, *rest = LINES
    told = json.dumps({**json.loads(head), "rng_probe": probe}, sort_keys=True, separators=(",", ":"))
    files = tuple(replace(file, lines=lambda: iter([told.encode() + b"\n", *rest])) for file in NOISY.ranks)
    candidate = Trace(phases=(replace(NOISY, ranks=files),))
    with pytest.raises(TraceError) as caught:
        compare(
            TARGET,
            candidate,
            tolerance=ToleranceSpec.parse({"across": "calibrated"}),
            environment=Comparability(relation="across"),
        )
    assert caught.value.kind == "trace-malformed"
