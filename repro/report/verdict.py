"""A verdict as text: first a sentence, then where, then what can explain it."""

from __future__ import annotations

from collections.abc import Iterator

from repro.report.words import as_float, count, number, printable, short
from repro.verdict import Deviation, Explanation, Verdict

__all__ = ["compared_text", "distance_text", "main_explanations", "value_text", "verdict_lines", "where"]


def where(deviation: Deviation) -> str:
    """The place of a deviation, in words."""
    tensor = f" of {deviation.tensor}" if deviation.tensor else ""
    return f"{deviation.phase}, step {deviation.step}, rank {deviation.rank}: {deviation.observable}{tensor}"


def value_text(text: str | None) -> str:
    """A value at full precision where it is a number: two that differ in the last bit must look different."""
    if text is None:
        return "absent"
    read = as_float(text)
    if read is not None:
        return f"{read:.17g}"
    return short(text) if text.startswith("sha256:") else text


def distance_text(deviation: Deviation) -> str:
    """How far and how far allowed, in brackets, or nothing."""
    parts = []
    if deviation.rel_diff is not None:
        parts.append(f"relative {number(deviation.rel_diff)}")
    if deviation.ulp_diff is not None:
        parts.append(f"{count(deviation.ulp_diff, 'ulp')}")
    if deviation.allowed is not None:
        parts.append(f"allowed {number(deviation.allowed)}")
    return f" ({', '.join(parts)})" if parts else ""


def compared_text(verdict: Verdict) -> str:
    """How much was put side by side."""
    compared = verdict.compared
    return (
        f"{count(len(compared.phases), 'phase')} ({', '.join(compared.phases) or 'none'}), "
        f"{count(compared.ranks, 'rank')}, {count(compared.steps, 'step')}"
    )


def main_explanations(verdict: Verdict) -> tuple[Explanation, ...]:
    """The likeliest ones; more of them explain nothing."""
    return verdict.explanations[:8]


def verdict_lines(verdict: Verdict, *, detail: bool = False) -> Iterator[str]:
    """Lines below the outcome word; `detail` adds every deviation that was kept."""
    return (printable(line) for line in _lines(verdict, detail))


def _lines(verdict: Verdict, detail: bool) -> Iterator[str]:
    yield verdict.sentence
    yield f"  compared      {compared_text(verdict)}"
    if verdict.compared.observables:
        yield f"  observables   {', '.join(verdict.compared.observables)}"
    if first := verdict.first_divergence:
        yield f"  first         {where(first)}"
        values = f"signed {value_text(first.target)}, now {value_text(first.candidate)}"
        yield f"                {values}{distance_text(first)}"
    for note in verdict.notes:
        yield f"  note          {note}"
    for index, explanation in enumerate(main_explanations(verdict)):
        yield f"  {'may explain' if index == 0 else '':12}  {explanation.sentence}"
    if detail:
        for deviation in verdict.deviations:
            yield f"  differs       {where(deviation)}{distance_text(deviation)}"
