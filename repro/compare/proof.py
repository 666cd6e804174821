"""Compare to the bit how a program ended bare and recorded: weights, optimizer state, generators."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import Any

from repro.compare.lines import deterministic, event
from repro.compare.plain import plain
from repro.errors import CompareError
from repro.proof import Proof
from repro.trace import PhaseTrace, RankFile

__all__ = ["prove"]

_KINDS = {"params": "parameters", "state": "buffers and optimizer state", "rng": "generators"}
_EXACT = ("shape", "dtype", "n", "off", "idx", "dg")
_MOST = 20


def _end(file: RankFile) -> Mapping[str, Any]:
    for line in deterministic(file.lines()):
        if line.startswith(b'{"ev":"end"') and line.endswith(b"\n"):
            return event(line)
    raise CompareError(
        "end-absent",
        "the program was ended before it could say what it ended with",
        where=file.path,
        remedy="let the program end by itself, not by a signal",
    )


def _exact(value: Any) -> Any:
    """Leave out the norm: it says no more than the digest."""
    return [value.get(key) for key in _EXACT] if isinstance(value, Mapping) else value


def prove(
    bare: PhaseTrace, recorded: PhaseTrace, *, files: Mapping[str, tuple[str | None, str | None]]
) -> Proof:
    """Hold the two ends against each other.

    Args:
        bare: the run of which only the end was recorded.
        recorded: the run that was recorded in full.
        files: digest of each file the program wrote, bare and recorded; None where it was not written.

    Raises:
        CompareError: `end-absent`, or `world-sizes-differ` where the runs had other numbers of ranks.
        TraceError: a file breaks the format.
    """
    if bare.world_size != recorded.world_size:
        raise CompareError(
            "world-sizes-differ", f"{bare.world_size} ranks ran bare, {recorded.world_size} recorded"
        )
    compared: Counter[str] = Counter()
    differing: list[str] = []
    unknown: list[str] = []
    for one, other in zip(bare.ranks, recorded.ranks, strict=True):
        sides = _end(one), _end(other)
        for key, label in _KINDS.items():
            first, second = (side.get(key) for side in sides)
            if first is None or second is None:
                unknown.append(f"rank {one.rank}: {label}")
                continue
            names = sorted({*first, *second})
            compared[label] += len(names)
            differing += [
                f"rank {one.rank}: {key} {plain(name)}"
                for name in names
                if _exact(first.get(name)) != _exact(second.get(name))
            ]
    return Proof(
        ranks=bare.world_size,
        compared=dict(compared),
        differing=tuple(differing[:_MOST]),
        unknown=tuple(unknown[:_MOST]),
        files=sum(first == second for first, second in files.values()),
        files_differing=_unlike(name for name, (first, second) in files.items() if first != second),
    )


def _unlike(names: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(PurePosixPath(name).as_posix() for name in names)[:_MOST])
