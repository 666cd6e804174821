"""Whether a run repeats itself: a second recording of its first steps against the first one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from repro.compare.evidence import Evidence
from repro.compare.judge import Judge
from repro.compare.lines import STEP, deterministic
from repro.compare.walk import Walk
from repro.compare.words import amount, place, what
from repro.trace import PhaseTrace, RankFile
from repro.verdict import Compared, Growth, Outcome, Verdict

__all__ = ["repetition", "self_replay", "spread_note"]

_END = b'{"ev":"end"'
DEVIATIONS = 20


def _until(lines: Iterable[bytes], steps: int) -> Iterator[bytes]:
    """Yield what belongs to the first steps, with what followed the last of them, without the end."""
    seen = 0
    for line in deterministic(lines):
        seen += line.startswith(STEP)
        if seen > steps:
            return
        if not line.startswith(_END):
            yield line


def _shortened(file: RankFile, steps: int) -> RankFile:
    lines: Callable[[], Iterable[bytes]] = lambda: _until(file.lines(), steps)  # noqa: E731
    return replace(file, lines=lines)


def _steps_of(phase: PhaseTrace) -> int:
    return min(sum(line.startswith(STEP) for line in deterministic(file.lines())) for file in phase.ranks)


def repetition(full: PhaseTrace, again: PhaseTrace) -> tuple[Verdict, frozenset[str]]:
    """Return the verdict of `self_replay`, and every observable that was not repeated."""
    steps = _steps_of(again)
    sides = [
        replace(side, ranks=tuple(_shortened(file, steps) for file in side.ranks)) for side in (full, again)
    ]
    walk = Walk(evidence=Evidence(limit=DEVIATIONS), judge=Judge(rule="bitwise"), exhaustive=True)
    walk.phase(*sides)
    group = walk.evidence.fails.first_group() or walk.evidence.untold.first_group()
    compared = Compared(phases=(full.name, again.name), ranks=walk.ranks, steps=walk.steps)
    if not group:
        sentence = f"The run repeats itself to the bit, over {steps} steps on {walk.ranks} ranks."
        verdict = Verdict(
            outcome=Outcome.BITWISE,
            layer="bitwise",
            kind="equal",
            sentence=sentence,
            rule="bitwise",
            compared=compared,
        )
        return verdict, frozenset()
    items = walk.evidence.fails.sorted() or walk.evidence.untold.sorted()
    verdict = Verdict(
        outcome=Outcome.DIVERGED,
        layer=group[0].ruling.layer,
        kind=group[0].finding.kind,
        sentence=f"The run does not repeat itself: {place(group[0], ranks=walk.ranks)}, {what(group)}.",
        rule="bitwise",
        compared=compared,
        first_divergence=group[0].deviation(),
        deviations=tuple(item.deviation() for item in items),
        growth=walk.evidence.growth.growth(),
    )
    return verdict, frozenset(walk.observables)


def self_replay(full: PhaseTrace, again: PhaseTrace) -> Verdict:
    """Compare a phase with a second recording of its first steps, to the bit.

    `again` may have been ended on purpose: what `full` did after that does not count.

    Raises:
        TraceError: a file breaks the format.
    """
    return repetition(full, again)[0]


def spread_note(first: PhaseTrace, again: PhaseTrace, verdict: Verdict) -> str:
    """Say how far a candidate is from itself, beside how far its verdict found it from the target.

    Raises:
        TraceError: a trace breaks the format.
    """
    itself = self_replay(first, again)
    if itself.outcome == Outcome.BITWISE:
        return (
            "Run once more, the candidate gives the same bits: it is deterministic here, and what tells it "
            "from the target is not recorded."
        )
    own, other = _largest(itself.growth), _largest(verdict.growth)
    told = [
        f"{name} by up to {amount(own[name])} (from the target by {amount(other.get(name, 0.0))})"
        for name in own
    ]
    apart = f": {' and '.join(told)}" if told else ""
    return (
        f"Hidden non-determinism: run once more, the candidate differs from itself{apart}. {itself.sentence}"
    )


def _largest(growth: Iterable[Growth]) -> dict[str, float]:
    """Largest relative distance of loss and of weights."""
    found: dict[str, float] = {}
    for one in growth:
        for name, text in (("the loss", one.loss), ("the weights", one.params)):
            if text is not None:
                found[name] = max(found.get(name, 0.0), float.fromhex(text))
    return found
