"""What a phase took and needed, rank by rank: time, memory, data and size, taken from its trace."""

from __future__ import annotations

import json
import math
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from repro.errors import TraceError
from repro.noun import Noun
from repro.trace import Event, PhaseTrace, RankFile, event_name, hexed, unhex

__all__ = ["Memory", "PhaseMeasurement", "RankMeasurement", "Spread", "measure_phase"]

WARM_UP = 3
"""Steps told apart: the recorder fingerprints them all, and profiles two of them on several ranks."""


class Spread(Noun):
    """How one time varied, in microseconds."""

    median: int
    mean: int
    deviation: int
    """Standard deviation of the sample; 0 for one value."""
    p95: int
    """The smallest value that 95 % do not exceed."""
    count: int


class Memory(Noun):
    """Bytes; null where there is none of the kind, or nobody knows."""

    rss_peak: int | None = None
    """Largest resident size of the process."""
    allocated_peak: int | None = None
    """Most that tensors took on the devices this rank uses."""
    reserved_peak: int | None = None
    """Most that the allocator held there."""
    unused_peak: int | None = None
    """What lies between these two: held and not allocated, at the peaks."""
    device_used: int | None = None
    """Most that was in use on those devices, by all processes."""
    outside_allocator: int | None = None
    """Most of it that this rank's allocator did not hold: kernels, libraries, other processes."""


class RankMeasurement(Noun):
    """What one rank took and needed. Times are microseconds without the recorder's own; null is unknown."""

    rank: int
    steps: int
    """Steps taken, with the warm-up."""
    skipped_steps: int
    """Those that a gradient scaler held back."""
    non_finite_steps: tuple[int, ...]
    """The first 20 whose loss is nan or infinite, whatever the program's own log says."""
    load_us: int | None
    """Start of the process to its first forward pass."""
    warm_up_us: tuple[int, ...]
    """Each step of the warm-up."""
    step_us: Spread | None
    """The other steps."""
    data_wait_us: Spread | None
    """Of that, waiting for data loaders."""
    communication_us: int | None
    """A step's collective operations, from a profile of two steps of the warm-up; null for one rank."""
    recorder_us: Spread | None
    """What the recorder took beside, a step."""
    evaluations: int
    evaluation_us: int | None
    """All together, as are the next two."""
    checkpoint_write_us: int | None
    checkpoint_restore_us: int | None
    micro_batch: int | None
    """Samples in one forward pass."""
    samples_per_step: int | None
    tokens_per_step: int | None
    sequence_length: int | None
    samples_per_s: str | None
    """Hexadecimal float, as is the next."""
    tokens_per_s: str | None
    parameters: int | None
    """Of the model this rank takes part in, shards counted whole."""
    trainable: int | None
    held: int | None
    """Of these, held by this rank and counted by no other."""
    memory: Memory


class PhaseMeasurement(Noun):
    """What a phase took and needed."""

    phase: str
    effective_batch: int | None
    """Samples a step over all ranks; ranks that were given the same data count once."""
    samples_per_s: str | None
    tokens_per_s: str | None
    parameters: int | None
    """Of the whole model, over all ranks."""
    ranks: tuple[RankMeasurement, ...]


def _spread(values: list[float]) -> Spread | None:
    if not values:
        return None
    ordered = sorted(round(value * 1e6) for value in values)
    return Spread(
        median=round(statistics.median(ordered)),
        mean=round(statistics.fmean(ordered)),
        deviation=round(statistics.stdev(ordered)) if len(ordered) > 1 else 0,
        p95=ordered[math.ceil(0.95 * len(ordered)) - 1],
        count=len(ordered),
    )


def _micro(seconds: float | None) -> int | None:
    return None if seconds is None else round(seconds * 1e6)


@dataclass(slots=True)
class _Rank:
    """Everything that is collected while one rank's file is read."""

    times: list[Event] = field(default_factory=list)
    beside: dict[str, list[float]] = field(default_factory=dict)
    memory: dict[str, int] = field(default_factory=dict)
    steps: int = 0
    skipped: int = 0
    bad: list[int] = field(default_factory=list)
    model: Event | None = None
    data: str | None = None
    """What the first step was given, to know ranks that were given the same."""

    def take(self, line: bytes) -> None:
        """Take in one line of the trace; most are not parsed."""
        name = event_name(line)
        if name == b"time":
            event = json.loads(line)
            if "step" in event:
                self.times.append(event)
            else:
                self.beside.setdefault(event["what"], []).append(unhex(event["s"]))
        elif name == b"mem":
            self._memory(json.loads(line))
        elif name == b"model":
            self.model = json.loads(line)
        elif name == b"step":
            self._step(line)

    def _memory(self, event: Event) -> None:
        used, reserved = event.get("device_used_bytes"), event.get("reserved_bytes")
        if used is not None and reserved is not None:
            event["outside"] = used - reserved
        for key, value in event.items():
            if isinstance(value, int):
                self.memory[key] = max(self.memory.get(key, value), value)

    def _step(self, line: bytes) -> None:
        self.steps += 1
        self.skipped += b'"skipped":true' in line
        loss = line.rpartition(b'"loss":[')[2]
        if self.steps == 1 or b'"nan"' in loss or b'inf"' in loss:
            event = json.loads(line)
            losses = [one.get("bits", one.get("l2")) for one in event.get("loss", [])]
            if not all(math.isfinite(unhex(one)) for one in losses if one is not None):
                self.bad.append(event["step"])
            if self.steps == 1:
                self.data = json.dumps(event.get("inputs", []))

    def seconds(self, key: str, events: list[Event]) -> list[float]:
        """Return a time of every step that states it, without the recorder's own where it is the step's."""
        own = "recorder_s" if key == "s" else ""
        return [unhex(event[key]) - unhex(event.get(own, "0x0.0p+0")) for event in events if key in event]

    def per_step(self, key: str) -> int | None:
        """Return the usual count of something in a step, None where there is none."""
        found = [event[key] for event in self.times if event.get(key)]
        return round(statistics.median(found)) if found else None

    def together(self, what: str) -> int | None:
        return _micro(sum(self.beside[what])) if what in self.beside else None


def _rate(amount: int | None, step: Spread | None) -> str | None:
    return hexed(amount * 1e6 / step.median) if amount and step and step.median > 0 else None


def _size(model: Event | None, keep: Callable[[str, Mapping[str, Any]], int]) -> int | None:
    return None if model is None else sum(keep(name, entry) for name, entry in model["params"].items())


def _memory_of(found: Mapping[str, int]) -> Memory:
    allocated, reserved = found.get("allocated_peak_bytes"), found.get("reserved_peak_bytes")
    return Memory(
        rss_peak=found.get("rss_peak_bytes"),
        allocated_peak=allocated,
        reserved_peak=reserved,
        unused_peak=None if allocated is None or reserved is None else reserved - allocated,
        device_used=found.get("device_used_bytes"),
        outside_allocator=found.get("outside"),
    )


def _concluded(number: int, rank: _Rank) -> RankMeasurement:
    warm = min(WARM_UP, max(0, len(rank.times) - 1))
    early, later = rank.times[:warm], rank.times[warm:]
    step = _spread(rank.seconds("s", later))
    samples, tokens, passes = (rank.per_step(key) for key in ("samples", "tokens", "passes"))
    frozen = set(rank.model.get("frozen", ())) if rank.model else set()
    exchanged = rank.seconds("communication_s", rank.times)
    return RankMeasurement(
        rank=number,
        steps=rank.steps,
        skipped_steps=rank.skipped,
        non_finite_steps=tuple(rank.bad[:20]),
        load_us=rank.together("load-program"),
        warm_up_us=tuple(round(seconds * 1e6) for seconds in rank.seconds("s", early)),
        step_us=step,
        data_wait_us=_spread(rank.seconds("data_wait_s", later)),
        communication_us=_micro(exchanged[0]) if exchanged else None,
        recorder_us=_spread(rank.seconds("recorder_s", later)),
        evaluations=len(rank.beside.get("eval", ())),
        evaluation_us=rank.together("eval"),
        checkpoint_write_us=rank.together("save"),
        checkpoint_restore_us=rank.together("load"),
        micro_batch=samples // passes if samples and passes else None,
        samples_per_step=samples,
        tokens_per_step=tokens,
        sequence_length=rank.per_step("length"),
        samples_per_s=_rate(samples, step),
        tokens_per_s=_rate(tokens, step),
        parameters=_size(rank.model, lambda _, entry: math.prod(entry["shape"])),
        trainable=_size(rank.model, lambda name, entry: math.prod(entry["shape"]) * (name not in frozen)),
        held=_size(rank.model, lambda _, entry: 0 if entry.get("rep") else entry["n"]),
        memory=_memory_of(rank.memory),
    )


def _read(file: RankFile) -> _Rank:
    rank = _Rank()
    try:
        for line in file.lines():
            if line.endswith(b"\n"):
                rank.take(line)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise TraceError(
            "trace-malformed", f"an event lacks what its kind must have: {error!r}", where=file.path
        ) from None
    return rank


def _distinct(read: list[_Rank], ranks: list[RankMeasurement]) -> Iterator[RankMeasurement]:
    """Yield one rank of those that were given the same data."""
    seen: set[str | None] = set()
    for raw, rank in zip(read, ranks, strict=True):
        if raw.data not in seen:
            yield rank
        seen.add(raw.data)


def measure_phase(phase: PhaseTrace) -> PhaseMeasurement:
    """Read a phase's trace and say what it took and needed.

    Raises:
        TraceError: kind `trace-malformed`.
    """
    read = [_read(file) for file in phase.ranks]
    ranks = [_concluded(file.rank, raw) for file, raw in zip(phase.ranks, read, strict=True)]
    counted = list(_distinct(read, ranks))
    batch = sum(rank.samples_per_step or 0 for rank in counted) or None
    tokens = sum(rank.tokens_per_step or 0 for rank in counted) or None
    slowest = max((rank.step_us for rank in ranks if rank.step_us), key=lambda s: s.median, default=None)
    held = [rank.held for rank in ranks]
    return PhaseMeasurement(
        phase=phase.name,
        effective_batch=batch,
        samples_per_s=_rate(batch, slowest),
        tokens_per_s=_rate(tokens, slowest),
        parameters=None if None in held else sum(filter(None, held)),
        ranks=tuple(ranks),
    )
