"""One run and what came of it as Markdown, for a pull request or a CI step's summary."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice

from repro.attest.outcome import Verification
from repro.manifest import Manifest
from repro.report.manifest import manifest_rows
from repro.report.markdown import code, escaped, row
from repro.report.verdict import compared_text, distance_text, main_explanations, value_text, where
from repro.report.verification import MARKS
from repro.report.words import count
from repro.verdict import Verdict

__all__ = ["replays_markdown", "summary_markdown", "verification_sentence"]

_MOST = 40
"""Rows that a table of a summary holds: whoever wants them all opens the report or the files."""


def verification_sentence(verification: Verification) -> str:
    """What the checks came to, in one sentence without the verdict's word."""
    wanted = [check for check in verification.checks if check.wanted]
    passed = sum(check.state == "passed" for check in wanted)
    by = f", signed by {', '.join(verification.principals)}" if verification.principals else ""
    failed = next((check for check in wanted if check.state != "passed"), None)
    first = f"; {failed.name}: {failed.detail}" if failed else ""
    return f"{passed} of {count(len(wanted), 'check')} passed{by}{first}"


def _outcome(verification: Verification | None, verdicts: Mapping[str, Verdict]) -> str:
    """The first sentence: the outcome of the replays, else of the checks, else that nobody checked."""
    if verdicts:
        names = {name: f" ({escaped(name, limit=80)})" if len(verdicts) > 1 else "" for name in verdicts}
        return "  \n".join(
            f"**{verdict.outcome}**{names[name]}: {escaped(verdict.sentence)}"
            for name, verdict in islice(verdicts.items(), _MOST)
        )
    if verification is not None:
        return f"**{verification.verdict}**: {escaped(verification_sentence(verification))}."
    return "**Not verified**: this is what the folder says of itself; `repro verify` checks it."


def _bounded(rows: Iterable[str]) -> Iterator[str]:
    left = iter(rows)
    yield from islice(left, _MOST)
    if more := sum(1 for _ in left):
        yield row("…", f"and {more} more")


def _checks(verification: Verification) -> Iterator[str]:
    yield f"### Checks: {verification.verdict}"
    yield ""
    yield row("", "check", "found")
    yield row("---", "---", "---")
    yield from _bounded(
        row(
            MARKS[check.state] if check.wanted else "–",
            escaped(check.name),
            escaped(check.detail) + (f" {code(check.code)}" if check.code else ""),
        )
        for check in verification.checks
    )
    for warning in verification.warnings[:_MOST]:
        yield row("–", "warning", escaped(warning))
    if verification.unsigned:
        names = ", ".join(code(name) for name in verification.unsigned[:5])
        yield row("–", "unsigned", f"{count(len(verification.unsigned), 'file')}: {names}")
    yield ""


def _replay(name: str, verdict: Verdict) -> Iterator[str]:
    """Where it first differs, what limits it, what can explain it."""
    yield f"### {escaped(name, limit=80)}: {verdict.outcome}"
    yield ""
    yield row("", "")
    yield row("---", "---")
    yield row("compared", escaped(compared_text(verdict)))
    if first := verdict.first_divergence:
        yield row("first difference", escaped(where(first) + distance_text(first)))
        yield row("signed", code(value_text(first.target)))
        yield row("now", code(value_text(first.candidate)))
    yield from _bounded(row("note", escaped(note)) for note in verdict.notes)
    for explanation in main_explanations(verdict):
        yield row("may explain", escaped(explanation.sentence))
    yield ""


def _ran(manifest: Manifest) -> Iterator[str]:
    yield "### What ran"
    yield ""
    yield row("", "")
    yield row("---", "---")
    yield from _bounded(row(escaped(label), escaped(value)) for label, value in manifest_rows(manifest))
    yield ""


def summary_markdown(
    manifest: Manifest, verification: Verification | None, verdict: Verdict | None, *, title: str
) -> str:
    """Summarise a run and a replay of it; see `replays_markdown`."""
    return replays_markdown(manifest, verification, {"Replay": verdict} if verdict else {}, title=title)


def replays_markdown(
    manifest: Manifest, verification: Verification | None, verdicts: Mapping[str, Verdict], *, title: str
) -> str:
    """Summarise a run: outcome first, then what replays found, the checks, and what ran.

    Args:
        manifest: the signed run.
        verification: what checking it found; None where nobody checked.
        verdicts: what replaying it came to, by the replay's name.
        title: heading of the summary, such as the run's name.

    Returns:
        GitHub-flavoured Markdown, far below the 1 MiB that a step's summary may have, whatever the run is.
    """
    lines = [f"## {escaped(title, limit=120)}", "", _outcome(verification, verdicts), ""]
    for name, verdict in islice(verdicts.items(), _MOST // 4):
        lines += _replay(name, verdict)
    if verification is not None:
        lines += _checks(verification)
    lines += _ran(manifest)
    return "\n".join(lines)
