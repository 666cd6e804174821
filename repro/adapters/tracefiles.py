"""Trace files on disk, as the noun `Trace` that reads them line by line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

from repro.lock import FileLock
from repro.manifest import PhaseRecord
from repro.trace import PhaseTrace, RankFile, Trace, rank_of

__all__ = ["open_trace"]


def _lines(path: Path) -> Iterator[bytes]:
    with path.open("rb") as stream:
        yield from stream


def _rank_file(folder: Path, file: FileLock) -> RankFile:
    return RankFile(
        rank=rank_of(file.path),
        path=file.path,
        digest=file.digest,
        size=file.size,
        lines=partial(_lines, folder / file.path),
    )


def open_trace(folder: Path, phases: Iterable[PhaseRecord]) -> Trace:
    """Describe the traces below `folder`; files are opened when they are read.

    Raises:
        TraceError: a rank is missing or stands twice.
    """
    return Trace(
        phases=tuple(
            PhaseTrace(
                name=phase.name,
                first_step=phase.first_step,
                world_size=phase.world_size,
                ranks=tuple(sorted((_rank_file(folder, f) for f in phase.trace), key=lambda file: file.rank)),
            )
            for phase in phases
        )
    )
