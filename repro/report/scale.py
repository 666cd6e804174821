"""Where values lie on an axis, and which of them get a label."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from sys import float_info

__all__ = ["Scale", "linear_scale", "log_scale", "step_scale"]

FULL = 1000.0
"""Length of an axis in units of the drawing."""

_ZERO_LANE = 970.0
"""Where zero lies on an axis that has no place for it."""

_RAISED = str.maketrans("-0123456789", "⁻⁰¹²³⁴⁵⁶⁷⁸⁹")


@dataclass(frozen=True, slots=True)
class Scale:
    """One axis: `place` gives units from the left, or from the top; ticks are places and labels."""

    place: Callable[[float], float]
    ticks: tuple[tuple[float, str], ...]


def _nice_step(span: float, most: int) -> float:
    """Smallest of 1, 2, 5 times a power of ten that needs at most `most` ticks."""
    if span <= 0 or not math.isfinite(span):
        return 0.0
    power = 10.0 ** math.floor(math.log10(span / most))
    return next((power * m for m in (1, 2, 5, 10) if power * m * most >= span), power * 10)


def _label(value: float, step: float) -> str:
    if value != 0 and not 1e-4 <= abs(value) < 1e6:
        return f"{value:.4g}"
    return f"{value:.{max(0, -math.floor(math.log10(step)))}f}"


def linear_scale(values: Iterable[float]) -> Scale:
    """Upwards from the smallest to the largest value, with a little room at both ends.

    Values that are equal but for a hundredth lie on a line: an axis that blew their rounding up would
    show hills where there are none.
    """
    known = [value for value in values if math.isfinite(value)]
    low, high = (min(known), max(known)) if known else (0.0, 1.0)
    largest = max(abs(low), abs(high))
    room = 0.1 * (high / 2 - low / 2)
    if high - low <= largest / 100:
        room = largest / 10 or 1.0
    low, high = max(low - room, -float_info.max), min(high + room, float_info.max)
    half = high / 2 - low / 2

    def place(value: float) -> float:
        return FULL * (1 - (value / 2 - low / 2) / half)

    step = _nice_step(2 * half, 5)
    if not step or low + step == low:
        return Scale(place, ((place(low), f"{low:.6g}"), (place(high), f"{high:.6g}")))
    first = math.ceil(low / step)
    marks = [number * step for number in range(first, first + 8) if number * step <= high]
    return Scale(place, tuple((place(mark), _label(mark, step)) for mark in marks))


def log_scale(values: Iterable[float]) -> Scale:
    """Upwards by powers of ten; zero has a lane of its own at the bottom."""
    known = [value for value in values if math.isfinite(value)]
    powers = [math.log10(value) for value in known if value > 0] or [0.0]
    low, high = math.floor(min(powers)), math.ceil(max(powers))
    high = max(high, low + 1)
    length = 880.0 if min(known, default=1.0) <= 0 else FULL

    def place(value: float) -> float:
        return length * (high - math.log10(value)) / (high - low) if value > 0 else _ZERO_LANE

    stride = max(1, math.ceil((high - low) / 5))
    ticks = [
        (length * (high - power) / (high - low), f"10{str(power).translate(_RAISED)}")
        for power in range(low, high + 1, stride)
    ]
    return Scale(place, (*ticks, *(((_ZERO_LANE, "0"),) if length < FULL else ())))


def step_scale(first: int, last: int) -> Scale:
    """Steps from left to right, with labels on whole ones."""

    def place(step: float) -> float:
        return FULL * (step - first) / (last - first) if last > first else FULL / 2

    stride = max(1, round(_nice_step(float(last - first), 5)))
    marks = [*range(-(-first // stride) * stride, last + 1, stride)] or [first]
    return Scale(place, tuple((place(mark), str(mark)) for mark in marks))
