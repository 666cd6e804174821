"""Facts of two stacks side by side, as text: only those that are not equal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from repro.comparability import FactResult
from repro.report.words import clipped, printable

__all__ = ["stack_lines"]

NEEDS = {
    "tolerance": "needed for any comparison",
    "bitwise": "needed for equal bits",
    "inform": "informs only",
}


def stack_lines(results: Iterable[FactResult]) -> Iterator[str]:
    """What differs, or is not known where it would have to be, and what it is needed for."""
    for one in results:
        if one.outcome == "differs" or (one.outcome == "unknown" and one.required):
            sides = (clipped(printable(text or "unknown"), 40) for text in (one.target, one.candidate))
            yield f"  stack         {one.fact}: {' | '.join(sides)} ({NEEDS[one.need]})"
