"""Differences between images that a project has said are harmless, and why."""

from __future__ import annotations

from collections.abc import Sequence
from fnmatch import fnmatchcase

from repro.image import ImageComparison, ImageDifference
from repro.spec import BenignSpec

__all__ = ["mark_benign"]


def _reason(difference: ImageDifference, benign: Sequence[BenignSpec]) -> str | None:
    for one in benign:
        if one.kind == difference.kind and fnmatchcase(difference.path, one.path):
            return one.reason
    return None


def mark_benign(found: ImageComparison, benign: Sequence[BenignSpec]) -> ImageComparison:
    """Give every difference that a list covers the list's reason."""
    marked = (one.model_copy(update={"benign": _reason(one, benign)}) for one in found.differences)
    return found.model_copy(update={"differences": tuple(marked)})
