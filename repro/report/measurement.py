"""A measurement as text: one line for the phase, and what differs between its ranks as a range."""

from __future__ import annotations

from collections.abc import Iterator

from repro.measurement import PhaseMeasurement, RankMeasurement, Spread
from repro.report.words import count, size

__all__ = ["HEAD", "measurement_lines", "measurement_row"]

HEAD = (
    "phase",
    "step",
    "± σ",
    "p95",
    "data wait",
    "exchange",
    "load",
    "evaluation",
    "write",
    "restore",
    "speed",
)


def _time(microseconds: int | None) -> str:
    if microseconds is None:
        return "–"
    return f"{microseconds / 1e6:.3g} s" if microseconds >= 1e6 else f"{microseconds / 1e3:.3g} ms"


def _largest(phase: PhaseMeasurement, name: str) -> int | None:
    """Largest value over ranks: what the others wait for."""
    found = [getattr(rank, name) for rank in phase.ranks]
    values = [one.median if isinstance(one, Spread) else one for one in found if one is not None]
    return max(values, default=None)


def _slowest(phase: PhaseMeasurement) -> RankMeasurement:
    return max(phase.ranks, key=lambda rank: rank.step_us.median if rank.step_us else -1)


def _speed(phase: PhaseMeasurement) -> str:
    parts = []
    for text, unit in ((phase.samples_per_s, "samples/s"), (phase.tokens_per_s, "tokens/s")):
        if text is not None:
            parts.append(f"{float.fromhex(text):.4g} {unit}")
    return ", ".join(parts) or "–"


def measurement_row(phase: PhaseMeasurement) -> tuple[str, ...]:
    """Cells under `HEAD`; of several ranks the slowest."""
    step = _slowest(phase).step_us
    return (
        phase.phase,
        _time(step.median if step else None),
        _time(step.deviation if step else None),
        _time(step.p95 if step else None),
        _time(_largest(phase, "data_wait_us")),
        _time(_largest(phase, "communication_us")),
        _time(_largest(phase, "load_us")),
        _time(_largest(phase, "evaluation_us")),
        _time(_largest(phase, "checkpoint_write_us")),
        _time(_largest(phase, "checkpoint_restore_us")),
        _speed(phase),
    )


def _memory(phase: PhaseMeasurement) -> Iterator[str]:
    kinds = (
        ("rss_peak", "resident"),
        ("allocated_peak", "allocated"),
        ("unused_peak", "held unused"),
        ("reserved_peak", "reserved"),
        ("outside_allocator", "outside the allocator"),
        ("device_used", "device in use"),
    )
    for name, label in kinds:
        found = [value for rank in phase.ranks if (value := getattr(rank.memory, name)) is not None]
        if found:
            yield f"{label} {size(max(found))}"


def _model(phase: PhaseMeasurement) -> Iterator[str]:
    first = phase.ranks[0]
    if phase.parameters is not None:
        trained = f", {first.trainable:,} trainable" if first.trainable != first.parameters else ""
        yield f"{phase.parameters:,} parameters{trained}"
    if first.sequence_length is not None:
        yield f"sequence {first.sequence_length}"
    if first.micro_batch is not None:
        yield f"micro-batch {first.micro_batch}"
    if phase.effective_batch is not None:
        yield f"effective batch {phase.effective_batch}"


def _events(phase: PhaseMeasurement) -> Iterator[str]:
    bad = sorted({step for rank in phase.ranks for step in rank.non_finite_steps})
    if bad:
        yield f"loss not finite at step {', '.join(map(str, bad))}"
    skipped = max(rank.skipped_steps for rank in phase.ranks)
    if skipped:
        yield f"{count(skipped, 'step')} skipped by the gradient scaler"


def measurement_lines(phase: PhaseMeasurement) -> Iterator[str]:
    """A few lines for a terminal; of several ranks the largest value."""
    named = dict(zip(HEAD, measurement_row(phase), strict=True))
    step = f"{named['step']} a step ± {named['± σ']}, p95 {named['p95']}"
    warm = sum(_slowest(phase).warm_up_us)
    yield f"{step}; warm-up {_time(warm)}; {named['speed']}"
    beside = [
        f"{key} {named[key]}" for key in ("load", "data wait", "exchange", "evaluation", "write", "restore")
    ]
    yield ", ".join(text for text in beside if not text.endswith("–"))
    for parts in (_model(phase), _memory(phase), _events(phase)):
        if text := ", ".join(parts):
            yield text
