"""Findings kept in bounded memory: the first ones of each kind of ruling, and how a difference grows."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, field

from repro.compare.finding import Finding
from repro.compare.judge import Ruling
from repro.compare.lines import STEP, Group, event
from repro.compare.measure import norm_of, scalar_change, tensor_change
from repro.compare.plain import plain
from repro.trace import Event, hexed
from repro.verdict import Deviation, Growth

__all__ = ["Evidence", "GrowthLog", "Item", "Shelf"]


@dataclass(frozen=True, slots=True)
class Item:
    """A finding with its place and what was ruled."""

    phase_index: int
    phase: str
    rank: int
    finding: Finding
    ruling: Ruling

    @property
    def group(self) -> tuple[int, int, int, int]:
        """Phase, step, stage, rank: what comes first, causes before effects."""
        return self.phase_index, self.finding.step, self.finding.stage, self.rank

    @property
    def order(self) -> tuple[tuple[int, int, int, int], bool, float, str, str]:
        """Inside a group the largest relative difference comes first; `initial_lr` tells what `lr` does."""
        change, observable = self.finding.change, self.finding.observable
        relative = change.relative if change is not None else None
        derived = observable.startswith("hyper.initial_")
        return self.group, derived, -(relative or 0.0), observable, self.finding.tensor or ""

    def deviation(self) -> Deviation:
        """Write it as the verdict states it."""
        finding, change = self.finding, self.finding.change
        relative = change.relative if change is not None else None
        absolute = change.absolute if change is not None else None
        return Deviation(
            phase=self.phase,
            step=finding.step,
            rank=self.rank,
            layer=self.ruling.layer,
            kind=finding.kind,
            observable=plain(finding.observable),
            tensor=_plain(finding.tensor),
            target=_plain(finding.target),
            candidate=_plain(finding.candidate),
            abs_diff=None if absolute is None else hexed(absolute),
            rel_diff=None if relative is None else hexed(relative),
            ulp_diff=change.ulp if change is not None else None,
            allowed=None if self.ruling.allowed is None else hexed(self.ruling.allowed),
        )


def _plain(text: str | None) -> str | None:
    return None if text is None else plain(text)


@dataclass(slots=True)
class Shelf:
    """The first items in order, at least `limit` of them where there are as many.

    Items arrive step by step, but not in order inside two neighbouring steps; so one more step is taken in
    after the limit is reached.
    """

    limit: int
    items: list[Item] = field(default_factory=list)
    last: tuple[int, int] | None = None
    """Phase and step after which nothing is taken in any more."""

    def add(self, item: Item) -> None:
        """Take an item in unless enough came before it."""
        place = item.group[:2]
        if self.last is None and len(self.items) >= self.limit:
            newest = max(one.group[:2] for one in self.items)
            self.last = (newest[0], newest[1] + 1)
        if self.last is None or place <= self.last:
            self.items.append(item)

    def closed(self, phase_index: int, step: int) -> bool:
        """Whether nothing at or after this place can still be taken in."""
        return self.last is not None and (phase_index, step) > self.last

    def sorted(self) -> list[Item]:
        """Return the first items in order, `limit` at most."""
        return sorted(self.items, key=lambda item: item.order)[: self.limit]

    def first_group(self) -> list[Item]:
        """Return everything at the first phase, step, stage and rank, in order."""
        if not self.items:
            return []
        first = min(item.group for item in self.items)
        return sorted((item for item in self.items if item.group == first), key=lambda item: item.order)


@dataclass(slots=True)
class GrowthLog:
    """Distances at up to `limit` steps that carry fingerprints, thinned evenly as more come."""

    limit: int = 64
    _stride: int = 1
    _points: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    def wants(self, group: Group) -> bool:
        """Say whether the step of this group is to be measured."""
        if group.step % self._stride or not group.complete:
            return False
        sides = group.target, group.candidate
        if sides[0][-1:] == sides[1][-1:]:
            return False
        return all(side and side[-1].startswith(STEP) and b'"params":{' in side[-1] for side in sides)

    def add(self, phase: str, first_step: int, group: Group) -> None:
        """Measure one rank at one step."""
        a, b = event(group.target[-1]), event(group.candidate[-1])
        point = self._points.setdefault((phase, first_step + group.step), [0.0, 0.0, 0.0])
        point[0] = max(point[0], _loss_distance(a, b))
        for squared, norm in _squares(a, b):
            point[1] += squared
            point[2] += norm
        while len(self._points) > self.limit:
            self._stride *= 2
            self._points = {
                place: value
                for place, value in self._points.items()
                if (place[1] - first_step) % self._stride == 0
            }

    def growth(self) -> tuple[Growth, ...]:
        """Write the points as the verdict states them."""
        return tuple(
            Growth(
                phase=phase,
                step=step,
                loss=hexed(loss),
                params=hexed(math.sqrt(squared / norm)) if norm else None,
            )
            for (phase, step), (loss, squared, norm) in self._points.items()
        )


def _loss_distance(a: Event, b: Event) -> float:
    pairs = zip(a.get("loss", []), b.get("loss", []), strict=False)
    changes = (scalar_change(x["bits"], y["bits"], None) for x, y in pairs if "bits" in x and "bits" in y)
    return max((change.relative or 0.0 for change in changes), default=0.0)


def _squares(a: Event, b: Event) -> Iterator[tuple[float, float]]:
    """Yield squared distance and squared norm of each parameter, replicas once."""
    for name, x in a.get("params", {}).items():
        y = b.get("params", {}).get(name)
        if y is None or x.get("rep"):
            continue
        change = tensor_change(x, y)
        yield ((change.absolute or 0.0) ** 2 if change else 0.0), norm_of(x) ** 2


@dataclass(slots=True)
class Evidence:
    """Everything a comparison found, sorted by what was ruled."""

    limit: int
    fails: Shelf = field(init=False)
    holds: Shelf = field(init=False)
    untold: Shelf = field(init=False)
    waived: set[str] = field(default_factory=set)
    """Observables that differ and are not asked for."""
    waived_results: set[str] = field(default_factory=set)
    """Those of them that the rule waives, so that bits are not equal in what was computed."""
    closest: Item | None = None
    """Of what holds, the one that uses most of what it is allowed."""
    growth: GrowthLog = field(default_factory=GrowthLog)

    def __post_init__(self) -> None:
        self.fails, self.holds, self.untold = (Shelf(self.limit) for _ in range(3))

    def add(self, item: Item) -> None:
        """Put a finding where it belongs."""
        if item.ruling.word == "waived":
            self.waived.add(item.finding.observable)
            if item.ruling.layer != "exact":
                self.waived_results.add(item.finding.observable)
        elif item.ruling.word == "holds":
            self.holds.add(item)
            if self.closest is None or _use(item) > _use(self.closest):
                self.closest = item
        else:
            (self.fails if item.ruling.word == "fails" else self.untold).add(item)


def _use(item: Item) -> float:
    change, allowed = item.finding.change, item.ruling.allowed
    if change is None or change.absolute is None or allowed is None:
        return -1.0
    return change.absolute / allowed if allowed else math.inf if change.absolute else 0.0
