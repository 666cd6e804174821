"""Numbers and digests as people read them."""

from __future__ import annotations

__all__ = ["count", "duration", "number", "short", "size"]


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


def number(text: str | None) -> str:
    """A hex float in three significant decimal digits; other text as it is; unknown as a dash."""
    if text is None:
        return "–"
    if not text.lstrip("-").startswith("0x"):
        return text
    return f"{float.fromhex(text):.3g}"


def count(amount: int, noun: str) -> str:
    """`1 step`, `2 steps`."""
    return f"{amount} {noun}" if amount == 1 else f"{amount} {noun}s"
