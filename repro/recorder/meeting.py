"""Ranks of one machine that are to be stopped after a step wait there for each other, without a collective.

A stage of a pipeline that left at once would break off what the next one is still sending for that very step.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping

__all__ = ["arrive", "wait"]

SECONDS = 60.0
"""A rank that is not there by then has a fault of its own, which is not hidden by waiting longer."""


def _name(step: int, rank: int) -> str:
    return f"at-step-{step}-rank-{rank}"


def arrive(folder: str, step: int, environment: Mapping[str, str] = os.environ) -> None:
    """Leave a sign that this rank has taken a step.

    Raises:
        OSError: the folder cannot be written to.
    """
    rank = int(environment.get("LOCAL_RANK", "0"))
    with open(os.path.join(folder, _name(step, rank)), "w", encoding="ascii"):  # noqa: PTH118, PTH123
        pass


def wait(folder: str, step: int, environment: Mapping[str, str] = os.environ) -> None:
    """Return once every rank of this machine has taken a step, or after a while without them."""
    ranks = range(int(environment.get("LOCAL_WORLD_SIZE", "1")))
    end = time.monotonic() + SECONDS
    missing = [os.path.join(folder, _name(step, rank)) for rank in ranks]  # noqa: PTH118
    while (missing := [path for path in missing if not os.path.exists(path)]) and time.monotonic() < end:  # noqa: PTH110
        time.sleep(0.02)
