"""What there is to plot in a trace, read as a stream and thinned: memory is bounded, spikes stay visible."""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from repro.compare.measure import epsilon
from repro.errors import TraceError
from repro.report.brief import brief_step, steps_alone
from repro.tolerance import Bound, Rule, bound_for
from repro.trace import Event, PhaseTrace, RankFile, unhex

__all__ = ["Bucket", "Cost", "Curve", "Difference", "PhaseSeries", "difference", "phase_series"]

MAX_BUCKETS = 400


@dataclass(slots=True)
class Bucket:
    """Neighbouring steps, and the smallest and largest value among them."""

    first: int
    last: int
    low: float = math.inf
    high: float = -math.inf
    bad: int = 0
    """Values that are not finite; they are in neither `low` nor `high`."""

    def add(self, step: int, value: float) -> None:
        """Take in one value."""
        self.first, self.last = min(self.first, step), max(self.last, step)
        if math.isfinite(value):
            self.low, self.high = min(self.low, value), max(self.high, value)
        else:
            self.bad += 1

    def merge(self, other: Bucket) -> None:
        """Take in a neighbour."""
        self.first, self.last = min(self.first, other.first), max(self.last, other.last)
        self.low, self.high = min(self.low, other.low), max(self.high, other.high)
        self.bad += other.bad


@dataclass(slots=True)
class Curve:
    """One value a step, in at most `limit` buckets of equal width."""

    limit: int = MAX_BUCKETS
    width: int = 1
    """Steps a bucket holds."""
    _buckets: dict[int, Bucket] = field(default_factory=dict)

    def add(self, step: int, value: float) -> None:
        """Take in the value of a step; steps may come again (other ranks), and in any order."""
        self._buckets.setdefault(step // self.width, Bucket(step, step)).add(step, value)
        while len(self._buckets) > self.limit:
            self._halve()

    def _halve(self) -> None:
        self.width *= 2
        merged: dict[int, Bucket] = {}
        for place, bucket in self._buckets.items():
            if place // 2 in merged:
                merged[place // 2].merge(bucket)
            else:
                merged[place // 2] = bucket
        self._buckets = merged

    @property
    def buckets(self) -> list[Bucket]:
        """Buckets in the order of their steps."""
        return [self._buckets[place] for place in sorted(self._buckets)]


@dataclass(slots=True)
class Cost:
    """Time and memory of a phase; None where the trace does not say."""

    timed_steps: int = 0
    step_seconds: float = 0.0
    """Sums over ranks and steps, as are the next two."""
    data_seconds: float = 0.0
    recorder_seconds: float = 0.0
    memory_bytes: int | None = None
    """Largest of any rank's process."""
    device_bytes: int | None = None
    """Largest that any rank's tensors took on its accelerator."""

    def add(self, event: Event) -> None:
        """Take in a `time` or `mem` event."""
        if event["ev"] == "time" and "step" in event:
            self.timed_steps += 1
            self.step_seconds += unhex(event["s"])
            self.data_seconds += unhex(event.get("data_wait_s", "0x0.0p+0"))
            self.recorder_seconds += unhex(event.get("recorder_s", "0x0.0p+0"))
        elif event["ev"] == "mem":
            self.memory_bytes = _larger(self.memory_bytes, event.get("rss_peak_bytes"))
            self.device_bytes = _larger(self.device_bytes, event.get("allocated_peak_bytes"))


@dataclass(slots=True)
class PhaseSeries:
    """One phase of one run: curves of rank 0, cost of all ranks."""

    name: str
    world_size: int
    loss: Curve = field(default_factory=Curve)
    """Mean of the backward passes' roots of a step."""
    grad_norm: Curve = field(default_factory=Curve)
    cost: Cost = field(default_factory=Cost)


@dataclass(slots=True)
class Difference:
    """Absolute differences of two phases per step, the largest over ranks, and what was allowed."""

    loss: Curve = field(default_factory=Curve)
    grad_norm: Curve = field(default_factory=Curve)
    loss_allowed: Curve = field(default_factory=Curve)
    grad_norm_allowed: Curve = field(default_factory=Curve)
    steps: int = 0
    """Pairs of steps, over ranks."""
    equal: int = 0
    """Pairs in which both loss and gradient norm are equal."""
    unpaired: int = 0
    """Steps that only one side has, over ranks."""


def _larger(known: int | None, value: int | None) -> int | None:
    return value if known is None else known if value is None else max(known, value)


@contextmanager
def _members_checked(phase: str) -> Iterator[None]:
    """Say that an event lacks what its kind must have, where nobody verified the file."""
    try:
        yield
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise TraceError(
            "trace-malformed",
            f"an event has not the members of its kind: {error!r:.80}",
            where=f"phase {phase}",
            remedy="record the run again; a trace is never mended by hand",
        ) from None


def _losses(event: Event) -> list[tuple[float, str | None]]:
    return [(unhex(one["bits"]), one.get("dtype")) for one in event.get("loss", []) if "bits" in one]


def _norm(event: Event) -> float | None:
    return unhex(event["grad_norm"]) if event.get("grad_norm") is not None else None


def phase_series(phase: PhaseTrace) -> PhaseSeries:
    """Read a phase once, every rank.

    Raises:
        TraceError: a file breaks the format.
    """
    series = PhaseSeries(phase.name, phase.world_size)
    with _members_checked(phase.name):
        for file in phase.ranks:
            for event in file.events(brief=brief_step):
                series.cost.add(event)
                if event["ev"] == "step" and file.rank == 0:
                    _plot(series, phase.first_step + event["step"], event)
    return series


def _plot(series: PhaseSeries, step: int, event: Event) -> None:
    if losses := _losses(event):
        series.loss.add(step, sum(value for value, _ in losses) / len(losses))
    if (norm := _norm(event)) is not None:
        series.grad_norm.add(step, norm)


def _steps(file: RankFile, first_step: int) -> Iterator[tuple[int, Event]]:
    return (
        (first_step + event["step"], event)
        for event in file.events(brief=steps_alone)
        if event["ev"] == "step"
    )


def _pairs(
    target: Iterator[tuple[int, Event]], candidate: Iterator[tuple[int, Event]]
) -> Iterator[tuple[int, Event | None, Event | None]]:
    """Put two streams side by side by step; a step of one side alone has None on the other."""
    a, b = next(target, None), next(candidate, None)
    while a is not None or b is not None:
        if b is None or (a is not None and a[0] < b[0]):
            assert a is not None
            yield a[0], a[1], None
            a = next(target, None)
        elif a is None or b[0] < a[0]:
            yield b[0], None, b[1]
            b = next(candidate, None)
        else:
            yield a[0], a[1], b[1]
            a, b = next(target, None), next(candidate, None)


def difference(target: PhaseTrace, candidate: PhaseTrace, rule: Rule | None) -> Difference:
    """Put two phases side by side, step by step. Steps before the later of the two beginnings are left out.

    Args:
        target: the signed phase.
        candidate: the other one; a rank that only one of them has is left out.
        rule: what the comparison allowed; None where nobody says.

    Raises:
        TraceError: a file breaks the format.
    """
    found = Difference()
    begin = max(target.first_step, candidate.first_step)
    with _members_checked(target.name):
        for mine, other in zip(target.ranks, candidate.ranks, strict=False):
            for step, a, b in _pairs(_steps(mine, target.first_step), _steps(other, candidate.first_step)):
                if step > begin:
                    _compare(found, step, a, b, rule)
    return found


def _compare(found: Difference, step: int, a: Event | None, b: Event | None, rule: Rule | None) -> None:
    if a is None or b is None:
        found.unpaired += 1
        return
    losses, others = _losses(a), _losses(b)
    apart = [_distance(x, y) for (x, _), (y, _) in zip(losses, others, strict=False)]
    if len(losses) != len(others):
        apart.append(math.inf)
    if apart:
        found.loss.add(step, max(apart))
        for (x, dtype), (y, _) in zip(losses, others, strict=False):
            _allow(found.loss_allowed, step, rule, "loss", dtype, max(abs(x), abs(y)))
    norm, other = _norm(a), _norm(b)
    if norm is not None and other is not None:
        apart.append(_distance(norm, other))
        found.grad_norm.add(step, apart[-1])
        _allow(found.grad_norm_allowed, step, rule, "grad_norm", None, max(abs(norm), abs(other)))
    found.steps += 1
    found.equal += not any(apart)


def _distance(x: float, y: float) -> float:
    """Absolute difference; infinite where either is not finite, for such a step never passes."""
    return abs(x - y) if math.isfinite(x) and math.isfinite(y) else math.inf


def _allow(
    curve: Curve, step: int, rule: Rule | None, observable: str, dtype: str | None, magnitude: float
) -> None:
    limit = rule if rule is None or isinstance(rule, str) else bound_for(rule, observable, dtype)
    if limit == "bitwise":
        curve.add(step, 0.0)
    elif isinstance(limit, Bound) and math.isfinite(magnitude):
        curve.add(step, _allowed(limit, dtype or "float64", magnitude))


def _allowed(bound: Bound, dtype: str, magnitude: float) -> float:
    """The bound as an absolute difference; an ulp is that of the larger of the two values."""
    if bound.max_ulp is not None:
        exponent = math.frexp(magnitude)[1] - 1 if magnitude else -126
        return math.ldexp(bound.max_ulp * epsilon(dtype), exponent)
    assert bound.rtol is not None
    assert bound.atol is not None
    return float.fromhex(bound.atol) + float.fromhex(bound.rtol) * magnitude
