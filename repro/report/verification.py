"""A verification as text: the check list an auditor reads."""

from __future__ import annotations

from collections.abc import Iterator

from repro.attest.outcome import Verification
from repro.report.words import printable

__all__ = ["MARKS", "verification_lines"]

MARKS = {"passed": "✓", "failed": "✗", "not-made": "–"}


def verification_lines(verification: Verification) -> Iterator[tuple[str, str]]:
    """State and text of each line: the checks, then what nobody checked."""
    for check in verification.checks:
        code = f" [{check.code}]" if check.code else ""
        yield check.state, f"{check.number:2} {check.name:15} {printable(check.detail)}{code}"
    for warning in verification.warnings:
        yield "not-made", f"   warning         {printable(warning)}"
    if verification.unsigned:
        names = ", ".join(printable(name) for name in verification.unsigned[:5])
        more = f" and {len(verification.unsigned) - 5} more" if len(verification.unsigned) > 5 else ""
        yield "not-made", f"   unsigned        {names}{more}"
