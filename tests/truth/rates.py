"""From judged replays to a table of rates and their bounds."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from tests.truth.replays import Judged

__all__ = ["added_up", "row", "upper_bound"]


def upper_bound(wrong: int, of: int, level: float = 0.95) -> float:
    """Return the largest rate at which so few errors are not yet unlikely (Clopper and Pearson, 1934)."""
    if wrong >= of:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(60):
        rate = (low + high) / 2
        seen = sum(math.comb(of, k) * rate**k * (1 - rate) ** (of - k) for k in range(wrong + 1))
        low, high = (rate, high) if seen > 1 - level else (low, rate)
    return high


def row(pilot: str, kind: str, judged: Sequence[Judged]) -> dict[str, Any]:
    """One line of the table."""
    told = [one for one in judged if one.changed or kind == "harmless"]
    wrong = [one.variant for one in told if one.right is False]
    return {
        "pilot": pilot,
        "replays": kind,
        "of": len(told),
        "right": sum(one.right is True for one in told),
        "cannot tell": [one.variant for one in told if one.right is None],
        "wrong": wrong,
        "wrong at most": f"{100 * upper_bound(len(wrong), len(told)):.1f} %",
        "without effect": [one.variant for one in judged if one not in told],
    }


def added_up(rows: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    """The line below the table: all pilots together."""
    told = [one for one in rows if one["replays"] == kind]
    wrong = [f"{one['pilot']}: {variant}" for one in told for variant in one["wrong"]]
    of = sum(one["of"] for one in told)
    return {
        "pilot": "all",
        "replays": kind,
        "of": of,
        "right": sum(one["right"] for one in told),
        "cannot tell": [f"{one['pilot']}: {variant}" for one in told for variant in one["cannot tell"]],
        "wrong": wrong,
        "wrong at most": f"{100 * upper_bound(len(wrong), of):.1f} %",
        "without effect": [],
    }
