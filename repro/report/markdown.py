"""Text of strangers as Markdown that shows it, and does nothing else."""

from __future__ import annotations

import re

from repro.report.words import clipped, printable

__all__ = ["code", "escaped", "row"]

_ACTIVE = re.compile(r"[\\`*_\[\]<>|~$&#]")
"""Characters that begin something in GitHub's Markdown in the middle of a line."""


def escaped(text: str, *, limit: int = 600) -> str:
    """Escape a text for a line or a table's cell: no markup, no mention, no link, no picture."""
    safe = _ACTIVE.sub(r"\\\g<0>", printable(clipped(text, limit)))
    return safe.replace("@", "@<!-- -->").replace("://", ":<!-- -->//").replace("www.", "www<!-- -->.")


def code(text: str, *, limit: int = 200) -> str:
    """Put a text into a code span that it cannot leave, in a table too."""
    safe = printable(clipped(text, limit)).replace("|", "\\|")
    longest = max((len(run) for run in re.findall("`+", safe)), default=0)
    fence = "`" * (longest + 1)
    room = " " if longest else ""
    return f"{fence}{room}{safe}{room}{fence}" if safe.strip() else ""


def row(*cells: str) -> str:
    """One line of a table; cells are Markdown already."""
    return f"| {' | '.join(cells)} |"
