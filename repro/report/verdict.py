"""A verdict as text: first a sentence, then where, then what can explain it."""

from __future__ import annotations

from collections.abc import Iterator

from repro.report.words import count, number, short
from repro.verdict import Deviation, Explanation, Verdict

__all__ = ["verdict_lines", "verdict_markdown", "where"]


def where(deviation: Deviation) -> str:
    """The place of a deviation, in words."""
    tensor = f" of {deviation.tensor}" if deviation.tensor else ""
    return f"{deviation.phase}, step {deviation.step}, rank {deviation.rank}: {deviation.observable}{tensor}"


def _value(text: str | None) -> str:
    """A value at full precision where it is a number: two that differ in the last bit must look different."""
    if text is None:
        return "absent"
    if text.lstrip("-").startswith("0x"):
        return f"{float.fromhex(text):.17g}"
    return short(text) if text.startswith("sha256:") else text


def _distance(deviation: Deviation) -> str:
    parts = []
    if deviation.rel_diff is not None:
        parts.append(f"relative {number(deviation.rel_diff)}")
    if deviation.ulp_diff is not None:
        parts.append(f"{count(deviation.ulp_diff, 'ulp')}")
    if deviation.allowed is not None:
        parts.append(f"allowed {number(deviation.allowed)}")
    return f" ({', '.join(parts)})" if parts else ""


def _compared(verdict: Verdict) -> str:
    compared = verdict.compared
    return (
        f"{count(len(compared.phases), 'phase')} ({', '.join(compared.phases) or 'none'}), "
        f"{count(compared.ranks, 'rank')}, {count(compared.steps, 'step')}"
    )


def _explanations(verdict: Verdict) -> tuple[Explanation, ...]:
    return verdict.explanations[:8]


def verdict_lines(verdict: Verdict, *, detail: bool = False) -> Iterator[str]:
    """Lines below the outcome word; `detail` adds every deviation that was kept."""
    yield verdict.sentence
    yield f"  compared      {_compared(verdict)}"
    if verdict.compared.observables:
        yield f"  observables   {', '.join(verdict.compared.observables)}"
    if first := verdict.first_divergence:
        yield f"  first         {where(first)}"
        values = f"signed {_value(first.target)}, now {_value(first.candidate)}"
        yield f"                {values}{_distance(first)}"
    for note in verdict.notes:
        yield f"  note          {note}"
    for index, explanation in enumerate(_explanations(verdict)):
        yield f"  {'may explain' if index == 0 else '':12}  {explanation.sentence}"
    if detail:
        for deviation in verdict.deviations:
            yield f"  differs       {where(deviation)}{_distance(deviation)}"


def verdict_markdown(verdict: Verdict, *, title: str) -> Iterator[str]:
    """The same as Markdown lines."""
    yield f"## {title}: {verdict.outcome}"
    yield ""
    yield verdict.sentence
    yield ""
    yield "| | |"
    yield "|---|---|"
    yield f"| compared | {_compared(verdict)} |"
    if first := verdict.first_divergence:
        yield f"| first difference | {where(first)}{_distance(first)} |"
        yield f"| signed, now | `{_value(first.target)}`, `{_value(first.candidate)}` |"
    for note in verdict.notes:
        yield f"| note | {note} |"
    for explanation in _explanations(verdict):
        yield f"| may explain | {explanation.sentence} |"
    yield ""
