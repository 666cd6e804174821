"""What a recorded run says, event by event: format `repro-trace/1` of `docs/trace.md`.

Reading streams: a line at a time, nothing kept. Nothing here opens a file or
needs torch; whoever has the bytes gives a function that yields their lines.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
import struct
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from repro.errors import TraceError

__all__ = [
    "ASIDE",
    "DETERMINISTIC",
    "FORMAT",
    "SKETCH_BUCKETS",
    "VOLATILE",
    "Event",
    "Fingerprint",
    "PhaseTrace",
    "RankFile",
    "Trace",
    "decode_sketch",
    "encode_sketch",
    "event_name",
    "fingerprint",
    "hexed",
    "is_deterministic",
    "is_ordinary",
    "rank_of",
    "read_events",
    "unhex",
    "write_line",
]

FORMAT = "repro-trace/1"
SKETCH_BUCKETS = 64

DETERMINISTIC = frozenset({"model", "step", "eval", "save", "load", "observe", "end"})
"""Events that two runs of the same program may be compared by."""

VOLATILE = frozenset({"head", "time", "mem", "err"})
"""Events that hold clocks, process numbers and the machine; never compared."""

ASIDE = frozenset({"mod"})
"""Events that are read only to say where two runs part; never compared to say whether they do."""

TORN = "torn"
"""Name of the event a reader adds for a last line that was cut off; never in a file."""

Event = dict[str, Any]

_NAMES = DETERMINISTIC | VOLATILE | ASIDE
_RANK = re.compile(r"(?:^|/)rank-(0|[1-9][0-9]{0,6})\.jsonl")
_HEX = re.compile(r"nan|-?(?:inf|0x[01]\.[0-9a-f]{1,13}p[+-][0-9]{1,4})")


def _malformed(message: str, where: str, line: int) -> NoReturn:
    raise TraceError(
        "trace-malformed",
        message,
        where=f"{where} line {line}",
        remedy="record the run again; a trace is never mended by hand",
    )


def write_line(event: Mapping[str, Any]) -> bytes:
    """Encode one event: sorted keys, no white space, ASCII, one line end.

    Raises:
        TypeError: a value is a float; floats are written with `hexed`.
    """
    _refuse_floats(event)
    text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


def _refuse_floats(value: Any) -> None:
    if isinstance(value, float):
        raise TypeError(f"the float {value!r} stands in an event; write it in hexadecimal")
    if isinstance(value, Mapping):
        for item in value.values():
            _refuse_floats(item)
    elif isinstance(value, list | tuple):
        for item in value:
            _refuse_floats(item)


def hexed(value: float) -> str:
    """Write a float as C99 hexadecimal, `nan`, `inf` or `-inf`."""
    return value.hex()


def unhex(text: object) -> float:
    """Read a float that `hexed` wrote.

    Raises:
        TraceError: kind `trace-malformed` for anything else.
    """
    if not isinstance(text, str) or _HEX.fullmatch(text) is None:
        raise TraceError("trace-malformed", f"{str(text)[:40]!r} is not a float in hexadecimal")
    return float.fromhex(text)


def encode_sketch(values: Iterable[float]) -> str:
    """Write a sketch as base64 of little-endian float64."""
    numbers = tuple(values)
    return base64.b64encode(struct.pack(f"<{len(numbers)}d", *numbers)).decode("ascii")


def decode_sketch(text: object) -> tuple[float, ...]:
    """Read a sketch: as many float64 as the text holds, 64 for tensors and 16 for outputs.

    Raises:
        TraceError: kind `trace-malformed`.
    """
    try:
        raw = base64.b64decode(text, validate=True)  # type: ignore[arg-type]
        return struct.unpack(f"<{len(raw) // 8}d", raw)
    except (TypeError, ValueError, binascii.Error, struct.error):
        raise TraceError("trace-malformed", f"{str(text)[:40]!r} is not a sketch") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Fingerprint:
    """One tensor as one rank held it."""

    shape: tuple[int, ...]
    """Global shape."""
    dtype: str
    """Name without `torch.`, such as `bfloat16`."""
    n: int
    """Elements on this rank."""
    offset: int | None
    """Flat position of the local part in the whole tensor; None for a strided part."""
    index: str | None
    """Digest of which elements a strided part holds; None for a contiguous one."""
    replica: bool
    """Whether another rank's record counts for these elements."""
    l2: float | None
    """Euclidean norm of the local part."""
    digest: str | None
    """`repro-dg1`, 32 hex digits."""
    sketch: tuple[float, ...] | None
    """`repro-sk1`."""
    bad: int
    """Elements that are not finite; 0 where none were counted."""


def fingerprint(value: object) -> Fingerprint:
    """Read one fingerprint.

    Raises:
        TraceError: kind `trace-malformed`.
    """
    try:
        if not isinstance(value, Mapping):
            raise TypeError
        l2, sketch = value.get("l2"), value.get("sk")
        return Fingerprint(
            shape=tuple(value["shape"]),
            dtype=value["dtype"],
            n=value["n"],
            offset=value.get("off"),
            index=value.get("idx"),
            replica=value.get("rep", 0) == 1,
            l2=None if l2 is None else unhex(l2),
            digest=value.get("dg"),
            sketch=None if sketch is None else decode_sketch(sketch),
            bad=value.get("bad", 0),
        )
    except (KeyError, TypeError):
        raise TraceError("trace-malformed", f"{str(value)[:80]} is not a fingerprint") from None


def event_name(line: bytes) -> bytes:
    """Return the name of a line's event without parsing it, empty where there is none.

    Exact, because keys are sorted and no member that sorts before `ev` can hold
    a member `ev` with a string in it.
    """
    start = line.find(b'"ev":"') + 6
    return line[start : line.find(b'"', start)] if start > 5 else b""


_DETERMINISTIC_BYTES = frozenset(name.encode("ascii") for name in DETERMINISTIC)


def is_deterministic(line: bytes) -> bool:
    """Say whether a line may be compared byte for byte with that of another run."""
    return event_name(line) in _DETERMINISTIC_BYTES


def _unique(pairs: list[tuple[str, Any]]) -> Event:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise ValueError("an object holds a member twice")
    return result


def _refuse_number(text: str) -> NoReturn:
    raise ValueError(f"the number {text[:20]} is not an integer")


_DECODER = json.JSONDecoder(
    object_pairs_hook=_unique, parse_float=_refuse_number, parse_constant=_refuse_number, strict=True
)


def _parse(line: bytes, where: str, number: int) -> Event:
    try:
        event = _DECODER.decode(line.decode("ascii"))
    except (ValueError, RecursionError) as error:
        _malformed(f"not an event: {error}", where, number)
    if not isinstance(event, dict) or event.get("ev") not in _NAMES:
        _malformed("the line names no event of this format", where, number)
    return event


def read_events(
    lines: Iterable[bytes], where: str, *, brief: Callable[[bytes], Event | None] | None = None
) -> Iterator[Event]:
    """Yield the events of one file, in order.

    Args:
        lines: the file's lines, each with its line end, as an open binary file gives them.
        where: what the lines are, for messages.
        brief: reads of a line what the caller needs; a line for which it returns None is parsed as a whole.

    A last line without a line end was being written when the process died. It is
    not parsed; the last event is then `{"ev": "torn", "line": n, "bytes": size}`.

    Raises:
        TraceError: kind `trace-malformed` for a line that breaks the format,
            `trace-format` for a file that does not begin with a head of this format.
    """
    for number, line in enumerate(lines, 1):
        if not line.endswith(b"\n"):
            yield {"ev": TORN, "line": number, "bytes": len(line)}
            return
        event = (brief(line) if brief else None) or _parse(line, where, number)
        if number == 1 and (event["ev"] != "head" or event.get("format") != FORMAT):
            raise TraceError(
                "trace-format",
                f"the file does not begin with a head of {FORMAT}",
                where=where,
                remedy="read it with the version of repro that recorded it",
            )
        yield event


def is_ordinary(name: str) -> bool:
    """Say whether a phase belongs to the run itself, not to its calibration."""
    return not {"calibration", "control"} & set(name.split("/")[:-1])


def rank_of(path: str) -> int:
    """Return the rank a merged file's name states, as in `trace/full/rank-3.jsonl`.

    Raises:
        TraceError: kind `trace-name`.
    """
    found = _RANK.search(path)
    if found is None or found.end() != len(path):
        raise TraceError("trace-name", "the file's name is not rank-<n>.jsonl", where=path)
    return int(found[1])


@dataclass(frozen=True, slots=True, kw_only=True)
class RankFile:
    """The trace of one rank in one phase."""

    rank: int
    path: str
    """Where the file lies in its run folder; for messages."""
    digest: str
    """`sha256:` of the whole file."""
    size: int
    """Bytes."""
    lines: Callable[[], Iterable[bytes]]
    """Opens the file anew and yields its lines, each with its line end."""

    def events(self, *, brief: Callable[[bytes], Event | None] | None = None) -> Iterator[Event]:
        """Yield every event; see `read_events`."""
        return read_events(self.lines(), self.path, brief=brief)

    def head(self) -> Event:
        """Return the last head before the first deterministic event: the one with all facts.

        Raises:
            TraceError: kind `trace-format` where there is none.
        """
        head: Event | None = None
        for event in self.events():
            if event["ev"] == "head":
                head = event
            elif event["ev"] in DETERMINISTIC:
                break
        if head is None:
            raise TraceError("trace-format", "the file holds no head", where=self.path)
        return head


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseTrace:
    """One phase of a run: every rank's file."""

    name: str
    """`full`, `interrupted`, `resumed` or another name of the run."""
    first_step: int
    """Steps taken before this phase began; add it to the `step` and `after` of every event."""
    world_size: int
    ranks: tuple[RankFile, ...]
    """In order of rank, each rank once."""

    def __post_init__(self) -> None:
        """Refuse a phase in which a rank is missing or stands twice.

        Raises:
            TraceError: kind `trace-incomplete`.
        """
        present = [file.rank for file in self.ranks]
        if present != list(range(self.world_size)):
            raise TraceError(
                "trace-incomplete",
                f"ranks {present} are there of a world of {self.world_size}",
                where=f"phase {self.name}",
                remedy="every rank's file is needed, each once",
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Every phase of one run, in the order they ran."""

    phases: tuple[PhaseTrace, ...]

    def phase(self, name: str) -> PhaseTrace:
        """Return a phase by name.

        Raises:
            TraceError: kind `phase-absent`.
        """
        for phase in self.phases:
            if phase.name == name:
                return phase
        raise TraceError(
            "phase-absent", f"the run has no phase {name}", remedy="the run must have recorded that phase"
        )
