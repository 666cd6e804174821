from __future__ import annotations

import math
from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from repro.report.figure import Line, Marker, figure
from repro.report.scale import linear_scale, log_scale, step_scale
from repro.report.series import Curve

FINITE = st.floats(allow_nan=False, allow_infinity=False)


@given(st.lists(FINITE, min_size=1, max_size=8))
def test_every_value_has_a_place_in_the_drawing(values: list[float]) -> None:
    scale = linear_scale(values)
    assert all(-1 <= scale.place(value) <= 1001 for value in values)
    assert all(-1 <= at <= 1001 for at, _ in scale.ticks)
    assert 1 <= len(scale.ticks) <= 9


@given(FINITE, FINITE)
def test_larger_is_higher(a: float, b: float) -> None:
    low, high = sorted((a, b))
    scale = linear_scale([low, high])
    assert scale.place(high) <= scale.place(low)


@given(st.lists(st.floats(0, allow_infinity=False), min_size=1, max_size=8))
def test_a_log_axis_holds_zero_apart(values: list[float]) -> None:
    scale = log_scale(values)
    places = [scale.place(value) for value in values]
    assert all(-1 <= place <= 1001 for place in places)
    if 0.0 in values and (positive := [value for value in values if value]):
        assert scale.place(0.0) > max(scale.place(value) for value in positive)
    assert len(scale.ticks) <= 8


@given(st.integers(0, 10**9), st.integers(0, 10**9))
def test_steps_have_whole_labels_in_order(first: int, length: int) -> None:
    scale = step_scale(first, first + length)
    labels = [int(text) for _, text in scale.ticks]
    assert labels == sorted(set(labels))
    assert first <= labels[0]
    assert labels[-1] <= first + length
    assert len(labels) <= 8


def test_tick_labels_can_be_told_apart() -> None:
    for low, high in (
        (2.3000001, 2.3000002),
        (2.3, 2.4),
        (0, 1e-9),
        (-3, 1e12),
        (0.1, 0.12),
        (1e-300, 2e-300),
    ):
        labels = [text for _, text in linear_scale([low, high]).ticks]
        assert len(labels) > 1
        assert all(a != b for a, b in pairwise(labels)), labels


def curve(*values: float) -> Curve:
    made = Curve()
    for step, value in enumerate(values, 1):
        made.add(step, value)
    return made


def test_a_figure_says_what_it_shows() -> None:
    html = figure("Loss", [Line("signed", "signed", curve(3, 2, 1))], marker=Marker(2, "here"), note="so")
    assert 'aria-label="Loss, steps 1 to 3: signed"' in html
    assert "<title>step 2: signed 2</title>" in html
    assert '<span class="flag left" style="left:50.00%">here</span>' in html
    assert '<p class="note">so</p>' in html


def test_a_marker_outside_is_left_out() -> None:
    html = figure("Loss", [Line("signed", "signed", curve(3, 2))], marker=Marker(9, "here"))
    assert "here" not in html


def test_no_points_no_figure() -> None:
    assert figure("Loss", [Line("signed", "signed", Curve())]) == ""


def test_what_is_not_finite_is_marked_and_does_not_break_the_axis() -> None:
    html = figure("Loss", [Line("signed", "signed", curve(3, math.nan, math.inf, 1))])
    assert "not finite" in html
    assert "nan" not in html
    assert "inf " not in html


def test_only_values_that_are_not_finite_still_make_a_figure() -> None:
    assert "not finite" in figure("Loss", [Line("signed", "signed", curve(math.nan))])


def test_rounding_is_not_blown_up() -> None:
    scale = linear_scale([0.9999995, 1.0])
    assert abs(scale.place(1.0) - scale.place(0.9999995)) < 1
