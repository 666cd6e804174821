"""Top of the page: what came of it, in a sentence each; then where, how far, and what can explain it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from repro.attest.outcome import Verification
from repro.manifest import Manifest
from repro.report.markup import Html, join, table, tag
from repro.report.replayed import Replayed
from repro.report.summary import verification_sentence
from repro.report.verdict import compared_text, distance_text, value_text, where
from repro.verdict import Outcome, Verdict

__all__ = ["outcome_banner", "replays_section"]

_LOOKS = {
    Outcome.BITWISE: ("good", "✓"),
    Outcome.WITHIN_TOLERANCE: ("good", "✓"),
    Outcome.DIVERGED: ("bad", "✗"),
    Outcome.INCOMPARABLE: ("open", "?"),
}
_CHECKED = {"VERIFIED": ("good", "✓"), "REJECTED": ("bad", "✗"), "INCOMPLETE": ("open", "?")}


def _line(look: tuple[str, str], word: str, about: str, sentence: str) -> Html:
    class_, mark = look
    return tag(
        "p",
        tag("b", f"{mark} {word}", class_="word"),
        tag("span", about, class_="about"),
        tag("span", sentence),
        class_=f"outcome {class_}",
    )


def outcome_banner(verification: Verification | None, replays: Sequence[Replayed]) -> Html:
    """One line for each replay, and one for the checks."""
    lines = [
        _line(_LOOKS[one.verdict.outcome], one.verdict.outcome, one.name, one.verdict.sentence)
        for one in replays
    ]
    if verification is None:
        lines.append(
            _line(("open", "?"), "NOT VERIFIED", "signed run", "This is what the folder says of itself.")
        )
    else:
        sentence = f"{verification_sentence(verification)}."
        lines.append(_line(_CHECKED[verification.verdict], verification.verdict, "signed run", sentence))
    return join(*lines)


def _places(verdict: Verdict) -> Iterator[tuple[str, ...]]:
    yield "compared", compared_text(verdict)
    if first := verdict.first_divergence:
        yield "first difference", where(first) + distance_text(first)
        yield "signed", tag("code", value_text(first.target))
        yield "now", tag("code", value_text(first.candidate))
    for note in verdict.notes[:40]:
        yield "note", note


def _explained(verdict: Verdict) -> Html | None:
    if not verdict.explanations:
        return None
    rows: list[tuple[str, ...]] = [
        (f"{one.category} {one.name}".rstrip(), one.target or "absent", one.candidate or "absent")
        for one in verdict.explanations[:200]
    ]
    return join(
        tag("h4", "Inputs that differ, the likeliest explanation first"),
        table(("input", "signed", "replay"), rows),
    )


def _deviations(verdict: Verdict) -> Html | None:
    if len(verdict.deviations) < 2:
        return None
    rows: list[tuple[str, ...]] = [
        (where(one), value_text(one.target), value_text(one.candidate), distance_text(one).strip(" ()"))
        for one in verdict.deviations[:200]
    ]
    head = ("where", "signed", "replay", "how far")
    return tag("details", tag("summary", f"The first {len(rows)} differences"), table(head, rows))


def _verdict(title: str, verdict: Verdict) -> Html:
    class_, mark = _LOOKS[verdict.outcome]
    return tag(
        "article",
        tag("h3", title, " ", tag("span", f"{mark} {verdict.outcome}", class_=f"badge {class_}")),
        tag("p", verdict.sentence),
        table((), list(_places(verdict))),
        _explained(verdict),
        _deviations(verdict),
    )


def replays_section(manifest: Manifest, replays: Sequence[Replayed]) -> Html:
    """Each replay's verdict, and those that the run holds about itself."""
    own = {"The run repeated": manifest.reproduced_itself, "The run resumed": manifest.resumed_exactly}
    return join(
        *(_verdict(f"Replay {one.name}", one.verdict) for one in replays),
        *(_verdict(title, verdict) for title, verdict in own.items() if verdict is not None),
    )
