"""Compare two recorded runs and come to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.compare.environment import portable_rng, relation
from repro.compare.evidence import Evidence, Item
from repro.compare.explain import explain
from repro.compare.judge import Judge
from repro.compare.repeat import DEVIATIONS, repetition
from repro.compare.walk import Walk
from repro.compare.words import diverged, place, what
from repro.errors import CompareError
from repro.tolerance import MEASURED, Rule, ToleranceSpec
from repro.trace import PhaseTrace, Trace
from repro.verdict import Comparability, Compared, Kind, Outcome, Verdict

__all__ = ["compare", "incomparable"]

CALIBRATION, CONTROL = "calibration/", "control/"
_EXACT = ("inputs", "modules", "weights before", "hyper-parameters", "rng", "scaler")
_HIDDEN = "No recorded input differs: the cause is not recorded, or it is hidden non-determinism."


def incomparable(kind: Kind, sentence: str, **members: Any) -> Verdict:
    """Make the verdict that nothing can be told, and why."""
    return Verdict(outcome=Outcome.INCOMPARABLE, layer=None, kind=kind, sentence=sentence, **members)


def compare(
    target: Trace,
    candidate: Trace | None,
    *,
    tolerance: ToleranceSpec,
    environment: Comparability | None = None,
    locks: tuple[str, str] | None = None,
    facts: tuple[Mapping[str, Any], Mapping[str, Any]] | None = None,
    phases: Sequence[str] | None = None,
) -> Verdict:
    """Say whether the candidate reproduced the target.

    Args:
        target: the run that is to be reproduced. Where it has a phase `interrupted`, its exact observables
            are enforced only as far as the target repeated them itself.
        candidate: the new run, or None where the pilot did not come to its first step.
        tolerance: what may differ, on an equal stack and across stacks.
        environment: which of the two it is; None lets the heads of the traces decide.
        locks: digest of the lock the target ran with, and of the one the candidate ran with. Where they
            differ the outcome is INCOMPARABLE; what differs in the traces is told all the same.
        facts: what is known of the inputs of both; see `explain`.
        phases: names of the phases to compare; None is every phase of the target that is no calibration.

    Raises:
        TraceError: a file breaks the format.
        CompareError: `phase-unknown` where `phases` names none of the target's.
    """
    pairs, verdict = _paired(target, candidate, environment, phases)
    if verdict is not None:
        return verdict
    environment = environment or relation(*pairs[0])
    rule = tolerance.same if environment.relation == "same" else tolerance.across
    unstable = _unstable(target)
    judge = Judge(rule=rule, unstable=unstable, portable_rng=all(portable_rng(*pair) for pair in pairs))
    walk = Walk(evidence=Evidence(limit=DEVIATIONS), judge=judge)
    for pair in pairs:
        walk.phase(*pair)
    conclusion = _conclude(walk, rule, environment)
    if locks is not None and locks[0] != locks[1]:
        conclusion = _stale(conclusion, walk)
    if facts is None or conclusion.outcome == Outcome.BITWISE:
        return conclusion
    return _explained(conclusion, *facts)


def _paired(
    target: Trace,
    candidate: Trace | None,
    environment: Comparability | None,
    phases: Sequence[str] | None,
) -> tuple[list[tuple[PhaseTrace, PhaseTrace]], Verdict | None]:
    """Pair the phases, or say why they cannot be."""
    if environment is not None and environment.relation == "not-covered":
        reasons = "; ".join(environment.reasons)
        sentence = f"Cannot tell: this environment is not one the target can be compared on ({reasons})."
        return [], incomparable("environment-not-covered", sentence, environment="not-covered")
    if candidate is None or not candidate.phases:
        return [], incomparable("did-not-run", "Cannot tell: the candidate did not come to its first step.")
    if phases is None:
        phases = [one.name for one in target.phases if not one.name.startswith((CALIBRATION, CONTROL))]
    known = [{one.name: one for one in side.phases} for side in (target, candidate)]
    absent = [name for name in phases if name not in known[0]]
    if absent or not phases:
        message = f"the target has no phase {', '.join(absent) or 'to compare'}"
        raise CompareError("phase-unknown", message, remedy="name phases that it has")
    if missing := [name for name in phases if name not in known[1]]:
        sentence = f"Cannot tell: the candidate did not run the phase {', '.join(missing)}."
        return [], incomparable("phases-differ", sentence)
    pairs = [(known[0][name], known[1][name]) for name in phases]
    for a, b in pairs:
        if a.world_size != b.world_size:
            sentence = (
                f"Cannot tell: phase {a.name} ran with {a.world_size} ranks in the target "
                f"and {b.world_size} in the candidate; sums are taken in another order."
            )
            return [], incomparable("world-size-differs", sentence)
        if a.first_step != b.first_step:
            sentence = (
                f"Cannot tell: phase {a.name} began after step {a.first_step} in the target "
                f"and after step {b.first_step} in the candidate."
            )
            return [], incomparable("phases-differ", sentence)
    return pairs, None


def _unstable(target: Trace) -> frozenset[str]:
    """Return what the target did not repeat itself; nothing where it was recorded once."""
    phases = {phase.name: phase for phase in target.phases}
    if "full" not in phases or "interrupted" not in phases:
        return frozenset()
    return repetition(phases["full"], phases["interrupted"])[1]


def _conclude(walk: Walk, rule: Rule, environment: Comparability) -> Verdict:
    """Turn what was found into a verdict: failures first, then what cannot be told, then what holds."""
    evidence = walk.evidence
    waived = tuple(sorted(evidence.waived))
    compared = Compared(
        phases=tuple(walk.phases),
        ranks=walk.ranks,
        steps=walk.steps,
        observables=(*_EXACT, *MEASURED),
        not_enforced=waived,
    )
    common: dict[str, Any] = {
        "rule": rule if isinstance(rule, str) else "explicit",
        "environment": environment.relation,
        "compared": compared,
        "notes": _notes(waived),
    }
    if not walk.steps:
        return incomparable("target-did-not-run", "Cannot tell: the target has no steps.", **common)
    if not walk.candidate_steps:
        return incomparable(
            "did-not-run", "Cannot tell: the candidate did not come to its first step.", **common
        )
    if group := evidence.fails.first_group():
        return _verdict(
            Outcome.DIVERGED, group, evidence.fails.sorted(), walk, diverged(group, ranks=walk.ranks), common
        )
    if group := evidence.untold.first_group():
        return _untold(group, walk, common)
    if evidence.holds.items or evidence.waived_results:
        return _within(walk, rule, common)
    ranks = "1 rank" if walk.ranks == 1 else f"{walk.ranks} ranks"
    sentence = f"Reproduced to the bit: {walk.steps} steps on {ranks}, phases {', '.join(walk.phases)}."
    return Verdict(outcome=Outcome.BITWISE, layer="bitwise", kind="equal", sentence=sentence, **common)


def _stale(verdict: Verdict, walk: Walk) -> Verdict:
    """Say that the two were not run from one lock, and what differs first all the same."""
    group = walk.evidence.fails.first_group()
    seen = f"{place(group[0], ranks=walk.ranks)}, {what(group)}" if group else "no recorded bit differs"
    sentence = f"Not comparable: the candidate ran from another lock than the target; {seen}."
    return verdict.model_copy(
        update={
            "outcome": Outcome.INCOMPARABLE,
            "kind": "reference-stale",
            "layer": None,
            "sentence": sentence,
        }
    )


def _verdict(
    outcome: Outcome, group: list[Item], items: list[Item], walk: Walk, sentence: str, common: dict[str, Any]
) -> Verdict:
    return Verdict(
        outcome=outcome,
        layer=group[0].ruling.layer,
        kind=group[0].finding.kind,
        sentence=sentence,
        first_divergence=group[0].deviation(),
        deviations=tuple(item.deviation() for item in items),
        growth=walk.evidence.growth.growth(),
        **common,
    )


def _untold(group: list[Item], walk: Walk, common: dict[str, Any]) -> Verdict:
    where, words = place(group[0], ranks=walk.ranks), what(group)
    verdict = _verdict(Outcome.INCOMPARABLE, group, walk.evidence.untold.sorted(), walk, "", common)
    if group[0].finding.both_not_finite:
        sentence = f"Cannot tell: {where}, {words}; a run that is not finite never passes."
        return verdict.model_copy(update={"sentence": sentence})
    sentence = (
        f"Cannot tell: {where}, {words}, but the target did not repeat its own results either, "
        "so equal bits cannot be asked of a replay."
    )
    return verdict.model_copy(update={"sentence": sentence, "kind": "not-self-reproducible"})


def _within(walk: Walk, rule: Rule, common: dict[str, Any]) -> Verdict:
    """Say that different bits are allowed, where they begin, and what came closest to its bound."""
    evidence = walk.evidence
    if rule == "calibrated":
        return incomparable(
            "not-calibrated",
            "Cannot tell: bits differ, and the target holds no calibration that says how far they may.",
            **common,
        )
    group, closest = evidence.holds.first_group(), evidence.closest
    if not group:
        names = ", ".join(sorted(evidence.waived_results))
        sentence = f"Within tolerance: only what the rule does not judge differs ({names})."
        return Verdict(
            outcome=Outcome.WITHIN_TOLERANCE, layer="bound", kind="within-bounds", sentence=sentence, **common
        )
    sentence = (
        f"Within tolerance: equal to the bit until {place(group[0], ranks=walk.ranks)}, where {what(group)}"
    )
    if closest is not None and closest is not group[0]:
        sentence += f"; closest to its bound {place(closest, ranks=walk.ranks)}: {what([closest])}"
    verdict = _verdict(Outcome.WITHIN_TOLERANCE, group, evidence.holds.sorted(), walk, f"{sentence}.", common)
    return verdict.model_copy(update={"kind": "within-bounds"})


def _notes(waived: Sequence[str]) -> tuple[str, ...]:
    if not waived:
        return ()
    return (f"Not asked for, although it differs: {', '.join(waived)}.",)


def _explained(verdict: Verdict, target: Mapping[str, Any], candidate: Mapping[str, Any]) -> Verdict:
    """Set the input differences beside a verdict; say so where there are none."""
    explanations = explain(target, candidate, first=verdict.first_divergence)
    notes = verdict.notes
    if not explanations and verdict.outcome == Outcome.DIVERGED and verdict.layer == "bitwise":
        notes = (
            *notes,
            _HIDDEN,
        )
    return verdict.model_copy(update={"explanations": explanations, "notes": notes})
