"""Why a lock no longer holds: a sentence that knows the place it speaks of."""

from __future__ import annotations

from typing import Self

__all__ = ["Reason"]


class Reason(str):
    """A sentence for people, and its place for programs."""

    __slots__ = ("file", "key")
    file: str
    """Below the project's folder, as a POSIX path."""
    key: str
    """Dotted key where the file is `repro.yaml`, models and data sets by their names; else empty."""

    def __new__(cls, text: str, *, file: str, key: str = "") -> Self:
        """Make a sentence about a file, or about a key of `repro.yaml`."""
        reason = super().__new__(cls, text)
        reason.file, reason.key = file, key
        return reason

    @classmethod
    def of_spec(cls, text: str, key: str) -> Self:
        """Make a sentence about a key of `repro.yaml`."""
        return cls(text, file="repro.yaml", key=key)
