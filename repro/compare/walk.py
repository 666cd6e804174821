"""One pass over two runs, phase by phase, all ranks together, in order of step."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from repro.compare.event import group_findings, logical_step
from repro.compare.evidence import Evidence, Item
from repro.compare.finding import Finding
from repro.compare.held import of_steps
from repro.compare.judge import Judge
from repro.compare.lines import Group, Tally, differing_groups, event
from repro.compare.parts import structural
from repro.trace import PhaseTrace
from repro.verdict import Kind

__all__ = ["Walk", "group_differences", "merged_groups"]


def merged_groups(
    target: PhaseTrace, candidate: PhaseTrace, tallies: Sequence[Tally]
) -> Iterator[tuple[int, Group]]:
    """Yield rank and group for each differing step of all ranks, in order of step."""

    def of_rank(rank: int) -> Iterator[tuple[int, int, Group]]:
        lines = target.ranks[rank].lines(), candidate.ranks[rank].lines()
        for group in differing_groups(*lines, tallies[rank]):
            yield group.step, rank, group

    streams = (of_rank(rank) for rank in range(target.world_size))
    for _, rank, group in heapq.merge(*streams, key=lambda one: one[:2]):
        yield rank, group


def _before(lines: Sequence[bytes], step: int) -> list[bytes]:
    """Keep what took place before a step. An end does not: it says that no more steps come."""
    parsed = ((line, event(line)) for line in lines)
    return [line for line, value in parsed if value["ev"] != "end" and logical_step(value, 0) < step]


def group_differences(first_step: int, group: Group, tally: Tally) -> Iterator[Finding]:
    """Yield what differs in one step of one rank, and before a step that one side lacks."""
    sides = group.target, group.candidate
    if group.complete:
        yield from group_findings(*sides, first_step=first_step)
        return
    yield from group_findings(*(_before(lines, group.step) for lines in sides), first_step=first_step)
    kind: Kind = "steps-missing" if tally.target >= tally.candidate else "steps-extra"
    told = f"{tally.target} steps", f"{tally.candidate} steps"
    yield structural(first_step + group.step, kind, "steps", *told)


@dataclass(slots=True)
class Walk:
    """Compares phase after phase and keeps what it finds.

    With `exhaustive` every finding is looked at; else the walk only counts once enough failures are known.
    """

    evidence: Evidence
    judge: Judge
    exhaustive: bool = False
    phases: list[str] = field(default_factory=list)
    observables: set[str] = field(default_factory=set)
    """Observables in which anything differed, asked for or not."""
    first_steps: dict[str, int] = field(default_factory=dict)
    """Of those that are asked for, the first step at which they differed."""
    held: set[str] = field(default_factory=set)
    """Observables that the target holds."""
    steps: int = 0
    candidate_steps: int = 0
    ranks: int = 0

    def phase(self, target: PhaseTrace, candidate: PhaseTrace) -> None:
        """Compare one phase on all its ranks, which both sides must have as many of."""
        index = len(self.phases)
        self.phases.append(target.name)
        self.ranks = max(self.ranks, target.world_size)
        tallies = [Tally() for _ in target.ranks]
        growth = self.evidence.growth
        for rank, group in merged_groups(target, candidate, tallies):
            if growth.wants(group):
                growth.add(target.name, target.first_step, group)
            if not self.exhaustive and self.evidence.fails.closed(index, target.first_step + group.step):
                continue
            for finding in group_differences(target.first_step, group, tallies[rank]):
                self.take(index, target.name, rank, finding)
        self.held |= of_steps(target).union(*(filter(None, tally.between) for tally in tallies))
        self.steps += max(tally.target for tally in tallies)
        self.candidate_steps += max(tally.candidate for tally in tallies)

    def take(self, index: int, phase: str, rank: int, finding: Finding) -> None:
        """Judge a finding and keep it."""
        item = Item(index, phase, rank, finding, self.judge(finding))
        name, step = finding.observable, finding.step
        self.observables.add(name)
        if item.ruling.word != "waived":
            self.first_steps[name] = min(step, self.first_steps.get(name, step))
        self.evidence.add(item)
