"""From what was found to the verdict: failures first, then what cannot be told, then what holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from repro.compare.calibration import Pair, calibrated, opinion
from repro.compare.environment import device_rng
from repro.compare.evidence import Item
from repro.compare.held import in_order
from repro.compare.repeat import self_replay
from repro.compare.walk import Walk
from repro.compare.words import diverged, place, what
from repro.tolerance import Rule, ToleranceSpec
from repro.trace import Trace
from repro.verdict import Comparability, Compared, Kind, Outcome, Verdict

__all__ = ["Case"]

STATED = 5
"""How many differences of the stacks a note tells."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A finished walk, and what it was walked for."""

    target: Trace
    pairs: Sequence[Pair]
    walk: Walk
    rule: Rule
    tolerance: ToleranceSpec
    environment: Comparability

    def verdict(self) -> Verdict:
        """Come to a conclusion."""
        evidence = self.walk.evidence
        if not self.walk.steps:
            return self._cannot("target-did-not-run", "Cannot tell: the target has no steps.")
        if not self.walk.candidate_steps:
            return self._cannot("did-not-run", "Cannot tell: the candidate did not come to its first step.")
        if group := evidence.fails.first_group():
            sentence = diverged(group, ranks=self.walk.ranks)
            verdict = self._at(Outcome.DIVERGED, group, evidence.fails.sorted(), sentence)
            return self._with_opinions(verdict) if verdict.layer == "bitwise" else verdict
        if group := evidence.untold.first_group():
            return self._untold(group)
        if evidence.holds.items or evidence.waived_results:
            return self._within_envelope() if self.rule == "calibrated" else self._within_bounds()
        ranks = "1 rank" if self.walk.ranks == 1 else f"{self.walk.ranks} ranks"
        phases = ", ".join(self.walk.phases)
        sentence = f"Reproduced to the bit: {self.walk.steps} steps on {ranks}, phases {phases}."
        return Verdict(
            outcome=Outcome.BITWISE, layer="bitwise", kind="equal", sentence=sentence, **self._common()
        )

    def stale(self, verdict: Verdict) -> Verdict:
        """Say that the two were not run from one lock, and what differs first all the same."""
        group = self.walk.evidence.fails.first_group()
        seen = f"{self._place(group[0])}, {what(group)}" if group else "no recorded bit differs"
        sentence = f"Not comparable: the candidate ran from another lock than the target; {seen}."
        members = {"outcome": Outcome.INCOMPARABLE, "kind": "reference-stale", "layer": None}
        return verdict.model_copy(update={**members, "sentence": sentence})

    def _common(self) -> dict[str, Any]:
        waived = tuple(sorted(self.walk.evidence.waived))
        return {
            "rule": self.rule if isinstance(self.rule, str) else "explicit",
            "environment": self.environment.relation,
            "compared": Compared(
                phases=tuple(self.walk.phases),
                ranks=self.walk.ranks,
                steps=self.walk.steps,
                observables=in_order(self.walk.held),
                not_enforced=waived,
            ),
            "notes": self._notes(waived),
        }

    def _notes(self, waived: Sequence[str]) -> tuple[str, ...]:
        notes = []
        if self.environment.relation == "across" and self.environment.reasons:
            told = "; ".join(self.environment.reasons[:STATED])
            more = len(self.environment.reasons) - STATED
            notes.append(f"On another stack: {told}{f'; and {more} more' if more > 0 else ''}.")
        if waived:
            notes.append(f"Not asked for, although it differs: {', '.join(waived)}.")
        return tuple(notes)

    def _place(self, item: Item) -> str:
        return place(item, ranks=self.walk.ranks)

    def _cannot(self, kind: Kind, sentence: str) -> Verdict:
        return Verdict(
            outcome=Outcome.INCOMPARABLE, layer=None, kind=kind, sentence=sentence, **self._common()
        )

    def _at(self, outcome: Outcome, group: list[Item], items: list[Item], sentence: str) -> Verdict:
        return Verdict(
            outcome=outcome,
            layer=group[0].ruling.layer,
            kind=group[0].finding.kind,
            sentence=sentence,
            **self._places(group, items),
            **self._common(),
        )

    def _places(self, group: list[Item], items: list[Item]) -> dict[str, Any]:
        return {
            "first_divergence": group[0].deviation() if group else None,
            "deviations": tuple(item.deviation() for item in items),
            "growth": self.walk.evidence.growth.growth(),
        }

    def _with_opinions(self, verdict: Verdict) -> Verdict:
        """Add what the calibration says of other bits, and whether the candidate repeats its own."""
        update: dict[str, Any] = {}
        notes = list(verdict.notes)
        if (judged := opinion(self.target, self.pairs, self.tolerance)) is not None:
            update["envelope"] = judged[0]
            notes.append(judged[1])
        phases = {phase.name: phase for _, phase in self.pairs}
        if "full" in phases and "interrupted" in phases:
            again = self_replay(phases["full"], phases["interrupted"])
            if again.outcome == Outcome.BITWISE:
                notes.append("The candidate repeats its own first steps to the bit.")
            else:
                notes.append(f"The candidate does not repeat itself either. {again.sentence}")
        return verdict.model_copy(update={**update, "notes": tuple(notes)})

    def _untold(self, group: list[Item]) -> Verdict:
        words = f"{self._place(group[0])}, {what(group)}"
        if group[0].finding.both_not_finite:
            kind, sentence = "non-finite", f"Cannot tell: {words}; a run that is not finite never passes."
        else:
            kind = "not-self-reproducible"
            sentence = (
                f"Cannot tell: {words}, but the target did not repeat its own results either, "
                "so equal bits cannot be asked of a replay."
            )
        verdict = self._at(Outcome.INCOMPARABLE, group, self.walk.evidence.untold.sorted(), sentence)
        return verdict.model_copy(update={"kind": kind})

    def _within_bounds(self) -> Verdict:
        """Say that other bits are allowed, where they begin, and what came closest to its bound."""
        evidence = self.walk.evidence
        group, closest = evidence.holds.first_group(), evidence.closest
        members: dict[str, Any] = {"layer": "bound", "kind": "within-bounds"}
        if not group:
            names = ", ".join(sorted(evidence.waived_results))
            sentence = f"Within tolerance: only what the rule does not judge differs ({names})."
            return Verdict(outcome=Outcome.WITHIN_TOLERANCE, sentence=sentence, **members, **self._common())
        sentence = f"Within tolerance: bits depart {self._place(group[0])}, where {what(group)}"
        if closest is not None and closest is not group[0]:
            sentence += f"; closest to its bound {self._place(closest)}, {what([closest])}"
        verdict = self._at(Outcome.WITHIN_TOLERANCE, group, evidence.holds.sorted(), f"{sentence}.")
        return verdict.model_copy(update=members)

    def _within_envelope(self) -> Verdict:
        evidence = self.walk.evidence
        places = self._places(evidence.holds.first_group(), evidence.holds.sorted())
        return calibrated(
            self.target,
            self.pairs,
            self.tolerance,
            device_rng=all(device_rng(*pair) for pair in self.pairs),
            common={**self._common(), **places},
        )
