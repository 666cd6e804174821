"""Compare two recorded runs and come to a verdict."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from repro.compare.calibration import Pair
from repro.compare.conclude import Case
from repro.compare.environment import portable_rng, relation
from repro.compare.evidence import Evidence
from repro.compare.explain import explain
from repro.compare.judge import Judge
from repro.compare.repeat import DEVIATIONS, repetition
from repro.compare.walk import Walk
from repro.errors import CompareError
from repro.tolerance import ToleranceSpec
from repro.trace import Trace, is_ordinary
from repro.verdict import Comparability, Kind, Outcome, Verdict

__all__ = ["compare", "incomparable"]

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
    case = Case(
        target=target,
        pairs=pairs,
        walk=walk,
        rule=rule,
        tolerance=tolerance,
        environment=environment,
    )
    conclusion = case.verdict()
    if locks is not None and locks[0] != locks[1]:
        conclusion = case.stale(conclusion)
    if facts is None or conclusion.outcome == Outcome.BITWISE:
        return conclusion
    return _explained(conclusion, *facts)


def _paired(
    target: Trace,
    candidate: Trace | None,
    environment: Comparability | None,
    phases: Sequence[str] | None,
) -> tuple[list[Pair], Verdict | None]:
    """Pair the phases, or say why they cannot be."""
    if environment is not None and environment.relation == "not-covered":
        reasons = "; ".join(environment.reasons)
        sentence = f"Cannot tell: this environment is not one the target can be compared on ({reasons})."
        return [], incomparable("environment-not-covered", sentence, environment="not-covered")
    if candidate is None or not candidate.phases:
        return [], incomparable("did-not-run", "Cannot tell: the candidate did not come to its first step.")
    if phases is None:
        phases = [one.name for one in target.phases if is_ordinary(one.name)]
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


def _explained(verdict: Verdict, target: Mapping[str, Any], candidate: Mapping[str, Any]) -> Verdict:
    """Set the input differences beside a verdict; say so where there are none."""
    explanations = explain(target, candidate, first=verdict.first_divergence)
    notes = verdict.notes
    if not explanations and verdict.outcome == Outcome.DIVERGED and verdict.layer == "bitwise":
        notes = (*notes, _HIDDEN)
    return verdict.model_copy(update={"explanations": explanations, "notes": notes})
