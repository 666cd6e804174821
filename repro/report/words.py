"""Numbers and digests as people read them."""

from __future__ import annotations

import re

__all__ = ["as_float", "clipped", "count", "duration", "number", "printable", "short", "size"]


def printable(text: str) -> str:
    """Escape whatever could move a cursor or turn a line: names come from folders that strangers prepare."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def clipped(text: str, limit: int) -> str:
    """Cut a text that is longer than anybody reads, and say so with an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def short(digest: str | None) -> str:
    """First twelve digits of a digest, enough to tell two apart at a glance."""
    return "unknown" if digest is None else digest.removeprefix("sha256:")[:12]


def size(num_bytes: int) -> str:
    """Bytes in powers of 1024, three digits."""
    value, unit = float(num_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" or value >= 100 else f"{value:.1f} {unit}"


def duration(milliseconds: int) -> str:
    """Milliseconds as seconds or minutes."""
    seconds = milliseconds / 1000
    return f"{seconds:.1f} s" if seconds < 120 else f"{int(seconds // 60)} min {int(seconds % 60)} s"


def as_float(text: str | None) -> float | None:
    """Read a hex float, `nan` or `inf`; None for any other text."""
    if text is None or not re.match(r"-?(0x|inf$|nan$)", text):
        return None
    try:
        return float.fromhex(text)
    except (ValueError, OverflowError):
        return None


def number(text: str | None) -> str:
    """A hex float in three significant decimal digits; other text as it is; unknown as a dash."""
    if text is None:
        return "–"
    value = as_float(text)
    return text if value is None else f"{value:.3g}"


def count(amount: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
