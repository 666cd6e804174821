"""Text that comes from a program, made fit for a verdict."""

from __future__ import annotations

import unicodedata

__all__ = ["plain"]


def plain(text: str) -> str:
    """Write text so that it can stand in strict JSON and on a terminal: odd characters escaped."""
    if text.isprintable() and unicodedata.is_normalized("NFC", text):
        return text
    return ascii(text)[1:-1]
