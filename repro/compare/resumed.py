"""Whether a run resumed from a checkpoint goes on as if it had never stopped, and if not, what was lost."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from repro.compare.event import event_findings
from repro.compare.evidence import Evidence
from repro.compare.finding import Finding, Stage
from repro.compare.judge import Judge
from repro.compare.lines import STEP, deterministic, event
from repro.compare.parts import tensors
from repro.compare.repeat import DEVIATIONS, repetition
from repro.compare.walk import Walk
from repro.compare.words import place, what
from repro.errors import CompareError
from repro.trace import Event, PhaseTrace, RankFile, write_line
from repro.verdict import Compared, Kind, Outcome, Verdict

__all__ = ["compare_resume", "diagnose"]

_LOST: dict[str, str] = {
    "data-position-lost": "the position in the data was lost",
    "optimizer-not-restored": "the optimizer was not restored",
    "rng-not-restored": "random number generators were not restored",
    "scheduler-not-restored": "the learning-rate schedule was not restored",
    "weights-not-restored": "the weights were not restored",
}


_RATE = re.compile(rb'"lr":"([^"\\]*)"')


@dataclass(slots=True)
class _Boundary:
    """What one rank recorded around the checkpoint."""

    params: Mapping[str, Any] | None = None
    """Fingerprints right after the checkpoint's step, or of the resumed model before its first step."""
    states: list[Event] = field(default_factory=list)
    """`save` events on one side, `load` events on the other."""
    evaluations: list[Event] = field(default_factory=list)
    """Made between the checkpoint's step and the next one."""


def _boundary(lines: Iterable[bytes], step: int, kind: str) -> _Boundary:
    """Read what came after step `step` and before the next one."""
    found, seen = _Boundary(), 0
    for line in deterministic(lines):
        is_step = line.startswith(STEP)
        seen += is_step
        if seen > step:
            break
        if (is_step and seen == step) or (step == 0 and line.startswith(b'{"buffers":')):
            found.params = event(line).get("params")
        elif seen == step and b'"ev":"' + kind.encode() + b'"' in line[:200]:
            found.states.append(event(line))
        elif seen == step and b'"ev":"eval"' in line[:200]:
            found.evaluations.append(event(line))
    return found


def _after(lines: Iterable[bytes], step: int, offset: int) -> Iterator[bytes]:
    """Yield what came with and after the first step beyond `step`, numbered from `offset` on."""
    seen = 0
    for line in deterministic(lines):
        seen += line.startswith(STEP)
        if seen <= step:
            continue
        value = event(line)
        for key in ("step", "after"):
            if key in value:
                value[key] += offset
        yield write_line(value)


def _shifted(file: RankFile, step: int, offset: int) -> RankFile:
    return replace(file, lines=lambda: _after(file.lines(), step, offset))


def _at_checkpoint(step: int, saved: _Boundary, loaded: _Boundary) -> Iterator[Finding]:
    """Compare weights, checkpoint content and evaluation as they were with those of the new process."""
    if saved.params is not None and loaded.params is not None:
        kind: Kind = "weights-before-differ"
        yield from tensors(step, Stage.WEIGHTS_BEFORE, kind, "params_before", saved.params, loaded.params)
    for state in loaded.states:
        same = [one for one in saved.states if one["tensors"].keys() == state["tensors"].keys()]
        if same and not any(one["tensors"] == state["tensors"] for one in same):
            yield from event_findings(step, same[0], state)
    for again in loaded.evaluations:
        data = [one for one in saved.evaluations if one["inputs"] == again["inputs"]]
        if data and not any(one["outputs"] == again["outputs"] for one in data):
            yield from event_findings(step, data[0], again)


def diagnose(first_steps: Mapping[str, int], first: int, *, ahead: bool = False) -> Kind | None:
    """Name what a checkpoint did not bring back.

    Args:
        first_steps: for each observable that differs, the first step at which it does.
        first: number of the first resumed step.
        ahead: whether that step's learning rate is the one of a later step.

    An update made with lost optimizer state shows one step later in the loss where the update itself was not
    fingerprinted; a lost schedule shows one step late by nature.
    """

    def at(*names: str) -> int | None:
        steps = [step for name, step in first_steps.items() if name.split(".")[0] in names]
        return min(steps, default=None)

    earliest = min(first_steps.values(), default=None)
    if earliest is None:
        return None
    if at("params_before") is not None:
        return "weights-not-restored"
    if at("inputs") == earliest:
        # Data is augmented by what these draw; where data is taken from does not move them.
        host = [first_steps[name] for name in ("rng.python", "rng.numpy") if name in first_steps]
        return "rng-not-restored" if earliest in host else "data-position-lost"
    if at("hyper") == earliest:
        return "optimizer-not-restored" if earliest == first and not ahead else "scheduler-not-restored"
    if at("rng") == earliest:
        return "rng-not-restored"
    if at("loss", "grads", "grad_norm") == earliest:
        return {first: "weights-not-restored", first + 1: "optimizer-not-restored"}.get(earliest)  # type: ignore[return-value]
    return "optimizer-not-restored" if at("params") == earliest else None


def compare_resume(full: PhaseTrace, resumed: PhaseTrace, *, again: PhaseTrace | None = None) -> Verdict:
    """Compare the resumed steps with the same steps of the uninterrupted run, to the bit.

    Args:
        full: the uninterrupted run.
        resumed: the run that began from the checkpoint; its `first_step` says after which step.
        again: a second recording of `full`'s first steps; what that did not repeat is not asked for.

    Raises:
        CompareError: `resume-too-early` where the phase states no checkpoint step.
        TraceError: a file breaks the format.
    """
    offset = resumed.first_step
    if offset < 1:
        raise CompareError("resume-too-early", "the resumed phase states no step that it began after")
    compared = Compared(phases=(full.name, resumed.name))
    if full.world_size != resumed.world_size:
        sentence = (
            f"Cannot tell: {full.world_size} ranks ran before the checkpoint, {resumed.world_size} after it."
        )
        return Verdict(
            outcome=Outcome.INCOMPARABLE,
            layer=None,
            kind="world-size-differs",
            sentence=sentence,
            compared=compared,
        )
    unstable = repetition(full, again)[1] if again is not None else frozenset()
    walk = Walk(
        evidence=Evidence(limit=DEVIATIONS), judge=Judge(rule="bitwise", unstable=unstable), exhaustive=True
    )
    for rank, (before, after) in enumerate(zip(full.ranks, resumed.ranks, strict=True)):
        saved, loaded = _boundary(before.lines(), offset, "save"), _boundary(after.lines(), 0, "load")
        for finding in _at_checkpoint(offset, saved, loaded):
            walk.take(0, resumed.name, rank, finding)
    walk.phase(
        replace(full, name=resumed.name, ranks=tuple(_shifted(file, offset, 0) for file in full.ranks)),
        replace(resumed, first_step=0, ranks=tuple(_shifted(file, 0, offset) for file in resumed.ranks)),
    )
    return _concluded(walk, offset, compared, _later_rates(full.ranks[0].lines(), offset + 1))


def _later_rates(lines: Iterable[bytes], step: int) -> frozenset[str]:
    """Return the learning rates of every step after `step`, as the trace writes them."""
    steps = (line for line in deterministic(lines) if line.startswith(STEP))
    later = (line for number, line in enumerate(steps, 1) if number > step)
    return frozenset(rate.decode("ascii") for line in later for rate in _RATE.findall(line))


def _concluded(walk: Walk, offset: int, compared: Compared, later: frozenset[str]) -> Verdict:
    evidence = walk.evidence
    waived = tuple(sorted(evidence.waived))
    common: dict[str, Any] = {
        "rule": "bitwise",
        "compared": compared.model_copy(
            update={"ranks": walk.ranks, "steps": walk.candidate_steps, "not_enforced": waived}
        ),
        "notes": _notes(walk.candidate_steps),
    }
    if not walk.candidate_steps:
        sentence = "Cannot tell: the resumed run did not come to its first step."
        return Verdict(
            outcome=Outcome.INCOMPARABLE, layer=None, kind="did-not-run", sentence=sentence, **common
        )
    group, items = evidence.fails.first_group(), evidence.fails.sorted()
    outcome = Outcome.DIVERGED
    if not group:
        group, items, outcome = evidence.untold.first_group(), evidence.untold.sorted(), Outcome.INCOMPARABLE
    if not group:
        sentence = (
            f"Resumed exactly: steps {offset + 1} to {offset + walk.candidate_steps} equal those of the "
            "uninterrupted run to the bit."
        )
        return Verdict(outcome=Outcome.BITWISE, layer="bitwise", kind="equal", sentence=sentence, **common)
    ahead = group[0].finding.observable == "hyper.lr" and group[0].finding.candidate in later
    lost = diagnose(walk.first_steps, offset + 1, ahead=ahead) if outcome == Outcome.DIVERGED else None
    words = f"{place(group[0], ranks=walk.ranks)}: {what(group)}"
    sentence = f"Not resumed exactly {words}{f'; it looks as if {_LOST[lost]}' if lost else ''}."
    kind: Kind = lost or group[0].finding.kind
    if outcome == Outcome.INCOMPARABLE:
        kind = "non-finite" if group[0].finding.both_not_finite else "not-self-reproducible"
        sentence = (
            f"Cannot tell whether the run resumes exactly: {words}, and it does not repeat itself either."
        )
    return Verdict(
        outcome=outcome,
        layer=group[0].ruling.layer,
        kind=kind,
        sentence=sentence,
        first_divergence=group[0].deviation(),
        deviations=tuple(item.deviation() for item in items),
        growth=evidence.growth.growth(),
        **common,
    )


def _notes(steps: int) -> tuple[str, ...]:
    if steps > 1:
        return ()
    return ("Fewer than two steps followed the checkpoint: a lost schedule or optimizer may not show yet.",)
