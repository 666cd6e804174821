"""The calibrated test: is a replay no further from the target than the target's own harmless variants?

The target was recorded again under perturbations that mean nothing (other thread count, last-bit noise in
weights, gradients and activations) and under a few that do mean something (negative controls). The first
give, per parameter tensor, how far a harmless difference has grown by each step; the second say up to which
step such growth can still be told from a real change. Everything is read side by side, step by step: no
table is kept. `docs/tolerance.md` states the method and its error rates.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from repro.compare.lines import STEP, Group, Tally, event
from repro.compare.measure import norm_of, scalar_change, tensor_change
from repro.compare.walk import merged_groups
from repro.errors import CompareError
from repro.manifest import CalibrationRecord, ErrorRates
from repro.trace import Event, PhaseTrace, hexed

__all__ = [
    "MIN_HORIZON",
    "PARAMETER_FLOOR",
    "QUANTILE",
    "SCALAR_FLOORS",
    "Distances",
    "Envelope",
    "Exceeded",
    "Judgement",
    "distances",
    "judge_envelope",
    "quantile",
    "record",
]

QUANTILE = 0.75
PARAMETER_FLOOR = 2.0**-24
SCALAR_FLOORS = {"loss": 2.0**-23, "grad_norm": 2.0**-17}
"""Of the gradient norm more, because it is summed in single precision in an order of the device's own."""
MIN_HORIZON = 3
"""Fewer decidable steps than these decide nothing."""

MEASURED = ErrorRates(harmless=106, harmless_rejected=0, faulty=110, faulty_accepted=0)
"""What `python -m tests.truth` counted; its table stands in `docs/proof.md`."""

_TINY = 1e-30
WORST = 10

Unit = tuple[int, str]
"""Rank and parameter name. A sharded tensor is one unit per shard; a replica is none."""


@dataclass(slots=True)
class Distances:
    """How far two runs are apart at one step; what is equal is left out."""

    step: int
    fingerprinted: bool = False
    """Whether parameters were recorded at this step."""
    scalars: dict[Unit, float] = field(default_factory=dict)
    """Rank and `loss` or `grad_norm` to |x - x'| / |x|, the largest of its backward passes."""
    params: dict[Unit, float] = field(default_factory=dict)
    """Unit to estimated distance over the norm of the target's tensor."""


def _scalars(event: Event) -> Iterator[tuple[str, str]]:
    yield from (("loss", root["bits"]) for root in event.get("loss", []) if "bits" in root)
    if "grad_norm" in event:
        yield "grad_norm", event["grad_norm"]


def _measure(a: Event, b: Event, rank: int, into: Distances) -> None:
    for (name, x), (_, y) in zip(_scalars(a), _scalars(b), strict=False):
        if x != y:
            apart = scalar_change(x, y, None)
            relative = (apart.absolute or 0.0) / max(apart.target, _TINY)
            into.scalars[rank, name] = max(relative, into.scalars.get((rank, name), 0.0))
    into.fingerprinted |= "params" in a
    for name, x in a.get("params", {}).items():
        y = b.get("params", {}).get(name)
        if y is None or x.get("rep") or (change := tensor_change(x, y)) is None:
            continue
        distance = math.inf if change.absolute is None else change.absolute
        into.params[rank, name] = distance / max(norm_of(x), _TINY)


def _is_step(group: Group) -> bool:
    return all(side and side[-1].startswith(STEP) for side in (group.target, group.candidate))


def distances(target: PhaseTrace, other: PhaseTrace) -> Iterator[Distances]:
    """Yield the distance at every step in which two phases of one layout differ, in order.

    Steps that only one of them has end the walk.

    Raises:
        CompareError: `calibration-differs` where they were not run on as many ranks.
    """
    if target.world_size != other.world_size:
        message = f"phase {other.name} ran with {other.world_size} ranks, not with {target.world_size}"
        raise CompareError("calibration-differs", message, remedy="capture the calibration again")
    tallies = [Tally() for _ in target.ranks]
    for step, groups in groupby(merged_groups(target, other, tallies), key=lambda one: one[1].step):
        found = Distances(target.first_step + step)
        for rank, group in groups:
            if group.complete and _is_step(group):
                _measure(event(group.target[-1]), event(group.candidate[-1]), rank, found)
        yield found


def quantile(values: Sequence[float], share: float, total: int) -> float:
    """Return the quantile of `values` and as many zeros as make them `total`; linear between neighbours."""
    ordered = sorted(values)
    zeros = max(total - len(ordered), 0)
    if not ordered or total == 0:
        return 0.0
    position = (zeros + len(ordered) - 1) * share
    low = math.floor(position)

    def at(index: int) -> float:
        return 0.0 if index < zeros else ordered[min(index - zeros, len(ordered) - 1)]

    first, second = at(low), at(low + 1)
    return first if first == second or position == low else first + (second - first) * (position - low)


@dataclass(slots=True)
class Envelope:
    """The largest distance of any harmless run so far, per unit and per scalar of a rank."""

    scalars: dict[Unit, float] = field(default_factory=dict)
    params: dict[Unit, float] = field(default_factory=dict)

    def take(self, found: Distances) -> None:
        """Widen by one harmless run at one step."""
        for mine, its in ((self.scalars, found.scalars), (self.params, found.params)):
            for unit, value in its.items():
                mine[unit] = max(value, mine.get(unit, 0.0))

    def ratios(self, found: Distances) -> dict[Unit, float]:
        """Distances of parameters in units of their envelope."""
        return {
            unit: value / max(self.params.get(unit, 0.0), PARAMETER_FLOOR)
            for unit, value in found.params.items()
        }

    def statistic(self, ratios: Mapping[Unit, float], share: float = QUANTILE) -> float:
        """The quantile over all units, those that are equal included."""
        return quantile(list(ratios.values()), share, len(self.params.keys() | ratios.keys()))

    def scalar_ratio(self, found: Distances, name: str) -> tuple[float, Unit]:
        """The largest ratio of any rank's loss or gradient norm, and whose it is."""
        ratios = (
            (value / max(self.scalars.get(unit, 0.0), SCALAR_FLOORS[name]), unit)
            for unit, value in found.scalars.items()
            if unit[1] == name
        )
        return max(ratios, default=(0.0, (0, name)))


@dataclass(frozen=True, slots=True)
class Exceeded:
    """The first place where a candidate left the envelope."""

    phase: str
    step: int
    observable: str
    """`params`, `loss` or `grad_norm`."""
    ratio: float
    unit: Unit
    """The unit that is furthest out."""


@dataclass(slots=True)
class Judgement:
    """What the calibrated test found up to the horizon."""

    statistic: float = 0.0
    loss_statistic: float = 0.0
    gradient_statistic: float = 0.0
    q90: float = 0.0
    maximum: float = 0.0
    worst: tuple[tuple[Unit, float], ...] = ()
    exceeded: Exceeded | None = None
    horizon: int = 0
    """Last step at which every negative control stands out; nothing later counts."""
    last_step: int = 0
    """Last step at which anything differed."""

    def merge(self, later: Judgement) -> None:
        """Take in what was found at later steps."""
        if later.statistic >= self.statistic:
            self.worst = later.worst or self.worst
        self.statistic = max(self.statistic, later.statistic)
        self.loss_statistic = max(self.loss_statistic, later.loss_statistic)
        self.gradient_statistic = max(self.gradient_statistic, later.gradient_statistic)
        self.q90 = max(self.q90, later.q90)
        self.maximum = max(self.maximum, later.maximum)
        self.exceeded = self.exceeded or later.exceeded


def _judge_step(envelope: Envelope, phase: str, found: Distances, factor: float) -> Judgement:
    ratios = envelope.ratios(found)
    worst = tuple(sorted(ratios.items(), key=lambda one: (-one[1], one[0]))[:WORST])
    loss, gradient = (envelope.scalar_ratio(found, name) for name in ("loss", "grad_norm"))
    result = Judgement(
        statistic=envelope.statistic(ratios),
        loss_statistic=loss[0],
        gradient_statistic=gradient[0],
        q90=envelope.statistic(ratios, 0.9),
        maximum=worst[0][1] if worst else 0.0,
        worst=worst,
    )
    for ratio, unit in (loss, gradient):
        if ratio > factor and result.exceeded is None:
            result.exceeded = Exceeded(phase, found.step, unit[1], ratio, unit)
    if result.statistic > factor and result.exceeded is None:
        result.exceeded = Exceeded(phase, found.step, "params", result.statistic, worst[0][0])
    return result


_HARMLESS, _CONTROL, _CANDIDATE = range(3)
_Stream = Iterator[tuple[int, int, str, Distances]]


def _stream(role: int, target: PhaseTrace, other: PhaseTrace) -> _Stream:
    for found in distances(target, other):
        yield found.step, role, other.name, found


def record(runs: int, controls: int, without_effect: Sequence[str]) -> CalibrationRecord:
    """State the method and its parameters, as they go into a signed manifest."""
    return CalibrationRecord(
        runs=runs,
        controls=controls,
        without_effect=tuple(without_effect),
        quantile=hexed(QUANTILE),
        parameter_floor=hexed(PARAMETER_FLOOR),
        scalar_floors={name: hexed(floor) for name, floor in SCALAR_FLOORS.items()},
        measured=MEASURED,
    )


def judge_envelope(
    full: PhaseTrace,
    harmless: Sequence[PhaseTrace],
    controls: Sequence[PhaseTrace],
    candidates: Iterable[tuple[PhaseTrace, PhaseTrace]],
    factor: float,
) -> Judgement:
    """Run the calibrated test.

    Args:
        full: the target's phase that the calibration belongs to.
        harmless: the target under perturbations that mean nothing.
        controls: the target under perturbations that mean something.
        candidates: pairs of the target's phase and the candidate's, each judged at its logical steps.
        factor: how many times the envelope is allowed.
    """
    streams = [
        *(_stream(_HARMLESS, full, other) for other in harmless),
        *(_stream(_CONTROL, full, other) for other in controls),
        *(_stream(_CANDIDATE, target, other) for target, other in candidates),
    ]
    envelope, settled, pending = Envelope(), Judgement(), Judgement()
    merged = heapq.merge(*streams, key=lambda one: one[:3])
    for step, entries in groupby(merged, key=lambda one: one[0]):
        standing: set[str] = set()
        for _, role, name, found in entries:
            if role == _HARMLESS:
                envelope.take(found)
            elif role == _CONTROL and envelope.statistic(envelope.ratios(found)) > factor:
                standing.add(name)
            elif role == _CANDIDATE:
                pending.merge(_judge_step(envelope, name, found, factor))
        if len(standing) == len(controls):
            settled.merge(pending)
            settled.horizon, pending = step, Judgement()
        settled.last_step = step
    return settled
