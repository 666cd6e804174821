"""What is known to go wrong where a data loader has workers."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["copied_generators"]


def _kinds() -> tuple[type, ...]:
    numpy = sys.modules.get("numpy.random")
    return (random.Random,) if numpy is None else (random.Random, numpy.Generator, numpy.RandomState)


def _objects(dataset: Any) -> Iterator[tuple[str, Any]]:
    """Yield a data set and those that it wraps, with the path to each."""
    path, seen = "dataset", 0
    while dataset is not None and seen < 8:
        yield path, dataset
        dataset, path, seen = getattr(dataset, "dataset", None), f"{path}.dataset", seen + 1


def copied_generators(loader: Any) -> list[str]:
    """Name generators of a data set that every worker gets a copy of: all draw the same numbers, every epoch.

    The global generators are seeded in each worker by torch; one that an object holds is not, unless a
    `worker_init_fn` does it.
    """
    if not loader.num_workers or loader.worker_init_fn is not None:
        return []
    return [
        f"{path}.{name}"
        for path, holder in _objects(loader.dataset)
        for name, value in getattr(holder, "__dict__", {}).items()
        if isinstance(value, _kinds())
    ]
