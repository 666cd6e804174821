"""Curves of the signed run and its replays, and how far apart they are."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repro.manifest import Manifest
from repro.report.figure import Line, Marker, figure
from repro.report.markup import Html, join, tag
from repro.report.replayed import Replayed
from repro.report.series import Curve, Difference, PhaseSeries, difference, phase_series
from repro.report.words import as_float, count, number
from repro.tolerance import Rule, ToleranceSpec
from repro.trace import PhaseTrace, Trace
from repro.verdict import Verdict

__all__ = ["SIGNED", "Read", "curves_section", "read_all"]

SIGNED = "signed run"
_LOOKS = 5

Read = dict[tuple[str | None, str], PhaseSeries]
"""Series by name of the replay, None for the signed run, and name of the phase."""


@dataclass(frozen=True, slots=True)
class _Other:
    """A phase to lay over the signed one."""

    name: str
    phase: PhaseTrace
    series: PhaseSeries
    rule: Rule | None
    verdict: Verdict | None


def read_all(trace: Trace | None, replays: Sequence[Replayed]) -> Read:
    """Read every phase of every trace once.

    Raises:
        TraceError: a file breaks the format.
    """
    runs = [(None, trace), *((replay.name, replay.trace) for replay in replays)]
    return {(name, phase.name): phase_series(phase) for name, one in runs if one for phase in one.phases}


def _rule(verdict: Verdict, tolerance: ToleranceSpec) -> Rule | None:
    """The rule a verdict was made by."""
    if verdict.environment == "same":
        return tolerance.same
    return tolerance.across if verdict.environment == "across" else None


def _others(
    phase: PhaseTrace, trace: Trace, read: Read, manifest: Manifest, replays: Sequence[Replayed]
) -> list[_Other]:
    """The same phase of every replay; without replays, what the run repeated itself."""
    found = [
        _Other(
            replay.name,
            other,
            read[replay.name, other.name],
            _rule(replay.verdict, manifest.tolerance),
            replay.verdict,
        )
        for replay in replays
        if replay.trace is not None
        for other in replay.trace.phases
        if other.name == phase.name
    ]
    if replays or phase.name != "full":
        return found
    own = {"interrupted": manifest.reproduced_itself, "resumed": manifest.resumed_exactly}
    return [
        _Other(other.name, other, read[None, other.name], "bitwise", own.get(other.name))
        for other in trace.phases
        if other.name != "full"
    ]


def _marker(phase: str, others: Sequence[_Other]) -> Marker | None:
    """The first step at which any verdict says that something differs."""
    found = [
        other.verdict.first_divergence.step
        for other in others
        if other.verdict is not None and (first := other.verdict.first_divergence) and first.phase == phase
    ]
    return Marker(min(found), f"first difference: step {min(found)}") if found else None


def _overlay(
    title: str,
    signed: Curve,
    others: Sequence[tuple[str, Curve]],
    marker: Marker | None,
    note: str | None = None,
) -> Html:
    lines = [Line(SIGNED, "signed", signed)]
    lines += [Line(name, f"other-{index % _LOOKS}", curve) for index, (name, curve) in enumerate(others)]
    return figure(title, lines, marker=marker, note=note)


def _rule_note(other: _Other) -> str | None:
    """What was allowed, where no line can show it."""
    if other.rule == "bitwise":
        return "Equal bits are asked for: nothing but 0 is allowed."
    if other.rule == "calibrated":
        envelope = other.verdict.envelope if other.verdict else None
        if envelope is None:
            return "Judged by a calibrated envelope, which has no bound of one step."
        return (
            f"Judged by a calibrated envelope: {number(envelope.statistic)} times the envelope "
            f"where {number(envelope.factor)} times is allowed, up to step {envelope.horizon}."
        )
    return None


def _said(other: _Other, found: Difference, *, same_phase: bool) -> str:
    """How much is equal, in a sentence."""
    if not found.steps:
        return f"{other.name}: no step to compare."
    ranks = f" on {count(other.phase.world_size, 'rank')}" if other.phase.world_size > 1 else ""
    steps = f"{count(found.steps, 'recorded step')}{ranks}"
    alone = f" {count(found.unpaired, 'step')} on one side only." if found.unpaired and same_phase else ""
    if found.equal == found.steps:
        return f"{other.name}: loss and gradient norm are equal to the bit in {steps}.{alone}"
    return f"{other.name}: loss or gradient norm differ in {found.steps - found.equal} of {steps}.{alone}"


def _differences(phase: PhaseTrace, others: Sequence[_Other], marker: Marker | None) -> Iterator[Html]:
    found = [(other, difference(phase, other.phase, other.rule)) for other in others]
    for other, one in found:
        yield tag("p", _said(other, one, same_phase=other.phase.name == phase.name))
    apart = [(index, other, one) for index, (other, one) in enumerate(found) if one.equal < one.steps]
    notes = {note for _, other, _ in apart if (note := _rule_note(other))}
    for title, name in (("Difference of the loss", "loss"), ("Difference of the gradient norm", "grad_norm")):
        lines = [
            Line(other.name, f"other-{index % _LOOKS}", getattr(one, name)) for index, other, one in apart
        ]
        lines += [Line("allowed", "allowed", getattr(one, f"{name}_allowed")) for _, _, one in apart[:1]]
        yield figure(title, lines, log=True, marker=marker, note=" ".join(sorted(notes)) or None)
    yield _growth(phase.name, others, marker)


def _growth(phase: str, others: Sequence[_Other], marker: Marker | None) -> Html:
    lines = []
    for index, other in enumerate(others):
        curve = Curve()
        for point in other.verdict.growth if other.verdict else ():
            value = as_float(point.params)
            if point.phase == phase and value is not None:
                curve.add(point.step, value)
        if len(curve.buckets) > 1:
            lines.append(Line(other.name, f"other-{index % _LOOKS}", curve))
    return figure("Relative distance of the weights", lines, log=True, marker=marker)


def _phase(phase: PhaseTrace, read: Read, others: Sequence[_Other]) -> Html:
    signed, marker = read[None, phase.name], _marker(phase.name, others)
    rank = "" if phase.world_size == 1 else ", rank 0"
    return join(
        _overlay(f"Loss{rank}", signed.loss, [(o.name, o.series.loss) for o in others], marker),
        _overlay(
            f"Gradient norm{rank}",
            signed.grad_norm,
            [(o.name, o.series.grad_norm) for o in others],
            marker,
            note="As the optimizer used it: after unscaling and clipping.",
        ),
        *_differences(phase, others, marker),
    )


def curves_section(manifest: Manifest, trace: Trace | None, replays: Sequence[Replayed], read: Read) -> Html:
    """All phases: the full one in sight, others folded away unless only replays can be seen in them."""
    if trace is None:
        return tag("p", "The traces were not read: nobody vouches for the files of this folder.")
    parts = []
    for phase in trace.phases:
        others = _others(phase, trace, read, manifest, replays)
        if phase.name == "full":
            parts.append(_phase(phase, read, others))
        elif others:
            parts.append(tag("details", tag("summary", f"Phase {phase.name}"), _phase(phase, read, others)))
    return join(*parts)
