"""Traces in memory that look like a training run: a falling loss, a gradient norm, time and memory."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from repro.trace import PhaseTrace, RankFile, Trace, hexed, write_line


def events(
    rank: int, *, steps: int, first_step: int = 0, noise_from: int | None = None, nan_at: int | None = None
) -> Iterator[dict[str, Any]]:
    """One rank of a phase; from `noise_from` on, results drift away as rounding differences do."""
    yield {"ev": "head", "format": "repro-trace/1", "rank": rank}
    for step in range(1, steps + 1):
        at = first_step + step
        draw = random.Random(f"{rank} {at}")
        loss = 4 * math.exp(-at / 12) + 0.3 + draw.uniform(-0.05, 0.05)
        norm = 1 + 2 * math.exp(-at / 5) + draw.uniform(-0.2, 0.2)
        if noise_from is not None and at >= noise_from:
            grown = 1e-7 * 2 ** min(at - noise_from, 20) * random.Random(f"noise {at}").uniform(0.5, 1.5)
            loss, norm = loss * (1 + grown), norm * (1 - 3 * grown)
        if nan_at is not None and at >= nan_at:
            loss = math.nan
        yield {
            "ev": "step",
            "step": step,
            "loss": [{"bits": hexed(loss), "dtype": "float32"}],
            "grad_norm": hexed(norm),
        }
        seconds = {"s": hexed(0.05), "data_wait_s": hexed(0.004), "recorder_s": hexed(0.001)}
        yield {"ev": "time", "step": step, **seconds}
        memory = {"rss_peak_bytes": 900_000_000 + step, "allocated_peak_bytes": 2_000_000_000 * (rank + 1)}
        yield {"ev": "mem", "step": step, **memory, "reserved_peak_bytes": None}


def rank_file(rank: int, lines: Callable[[], Iterable[bytes]], name: str = "full") -> RankFile:
    return RankFile(rank=rank, path=f"trace/{name}/rank-{rank}.jsonl", digest="", size=0, lines=lines)


def phase_trace(name: str = "full", *, world: int = 2, first_step: int = 0, **members: Any) -> PhaseTrace:
    def lines(rank: int) -> Callable[[], Iterable[bytes]]:
        return lambda: (write_line(event) for event in events(rank, first_step=first_step, **members))

    ranks = tuple(rank_file(rank, lines(rank), name) for rank in range(world))
    return PhaseTrace(name=name, first_step=first_step, world_size=world, ranks=ranks)


def signed_trace(steps: int = 20, *, world: int = 2) -> Trace:
    half = steps // 2
    return Trace(
        phases=(
            phase_trace(steps=steps, world=world),
            phase_trace("interrupted", steps=half, world=world),
            phase_trace("resumed", steps=steps - half, first_step=half, world=world),
        )
    )


def replayed_trace(steps: int = 20, *, world: int = 2, **members: Any) -> Trace:
    return Trace(phases=(phase_trace(steps=steps, world=world, **members),))
