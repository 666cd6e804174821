"""Two recordings of one rank, side by side, line by line, without parsing what is equal.

Lines of equal bytes cost one comparison. Where two lines differ, both sides are read on to the end of
the step they belong to; that group is what the rest of this package looks at. Memory is bounded by one step.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import filterfalse, zip_longest
from typing import NoReturn

from repro.compare.held import aside
from repro.compare.shape import require_shape
from repro.errors import TraceError
from repro.trace import DETERMINISTIC, Event

__all__ = ["STEP", "Group", "Tally", "deterministic", "differing_groups", "event", "key_events"]

_VOLATILE = re.compile(rb'\{(?:"(?!ev")\w+":[^\n]*?,)?"ev":"(?:time|mem|head|err|mod)"').match
_USUAL_VOLATILE = (b'{"data_wait_s"', b'{"allocated_peak_bytes"', b'{"ev":"time"', b'{"ev":"mem"')
STEP = (b'{"ev":"step"', b'{"boundary":1,"ev":"step"')
_BETWEEN = b'{"after":'
_FINITE_GRADIENTS = b'{"ev":"step","grad_norm":"0x'
"""A norm of all gradients that is finite speaks for each: only what comes after them can be a NaN or inf."""


@dataclass(slots=True)
class Tally:
    """Steps seen of the target and of the candidate, and what stands between them."""

    target: int = 0
    candidate: int = 0
    between: set[str | None] = field(default_factory=set)
    """Observables of the target that stand between its steps."""


@dataclass(frozen=True, slots=True)
class Group:
    """The lines of one step and what came between it and the step before; not all of them are equal.

    `step` is the number in the file, 0 where the target ended before a first step. A step that only one side
    has makes `complete` false; the walk ends there.
    """

    step: int
    target: tuple[bytes, ...]
    candidate: tuple[bytes, ...]
    complete: bool = True


def deterministic(lines: Iterable[bytes]) -> Iterator[bytes]:
    """Leave out what is never compared: heads, times, memory, the recorder's own errors, module calls."""
    return filterfalse(_VOLATILE, lines)


def _refuse(text: str) -> NoReturn:
    raise ValueError(text)


def event(line: bytes) -> Event:
    """Parse one line.

    Raises:
        TraceError: `trace-malformed`.
    """
    try:
        value: Event = json.loads(line, parse_float=_refuse, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = {}
    name = value.get("ev") if isinstance(value, dict) else None
    if not isinstance(name, str) or name not in DETERMINISTIC:
        raise TraceError("trace-malformed", f"not an event: {line[:80]!r}")
    require_shape(value)
    return value


def _number(line: bytes) -> int:
    """Read the number of a step: its last member."""
    try:
        number = int(line[line.rfind(b'"step":') + 7 : -2])
    except ValueError:
        number = int(event(line)["step"])
    if number < 1:
        raise TraceError("trace-malformed", f"a step event has no step number: {line[:80]!r}")
    return number


def _to_step(first: bytes, rest: Iterator[bytes]) -> tuple[bytes, ...]:
    """Collect lines up to the end of the step, or of the file. A last line that was cut off is left out."""
    lines = [first] if first else []
    while lines and not lines[-1].startswith(STEP):
        if not (line := next(rest, b"")):
            break
        lines.append(line)
    return tuple(line for line in lines if line.endswith(b"\n"))


def differing_groups(target: Iterable[bytes], candidate: Iterable[bytes], tally: Tally) -> Iterator[Group]:
    """Walk two files of one rank and yield each step whose lines differ, or that may hold a NaN or inf.

    The order of lines inside a step is left to the reader of the group. `tally` counts steps as the walk goes
    and is complete when it has ended.
    """
    left_lines, right_lines = iter(target), iter(candidate)
    a, b = deterministic(left_lines), deterministic(right_lines)
    last = equal_steps = 0
    for x, y in zip_longest(left_lines, right_lines, fillvalue=b""):
        if x != y:
            if x.startswith(_USUAL_VOLATILE) and y.startswith(_USUAL_VOLATILE):
                continue
            if _VOLATILE(x):
                if _VOLATILE(y):
                    continue
                x = next(a, b"")
            elif _VOLATILE(y):
                y = next(b, b"")
        if x == y:
            if x.startswith(_BETWEEN):
                tally.between.add(aside(x))
            if x.startswith(_FINITE_GRADIENTS):
                equal_steps += 1
                searched = x.rpartition(b'"loss":[')[2]
            else:
                equal_steps += x.startswith(STEP)
                searched = x
            if (b'nan"' not in searched and b'inf"' not in searched) or _VOLATILE(x):
                continue
            last = _number(x) if x.startswith(STEP) else last
            yield Group(last, (x,), (y,))
            continue
        left, right = _to_step(x, a), _to_step(y, b)
        tally.between.update(map(aside, left))
        left_step = _number(left[-1]) if left and left[-1].startswith(STEP) else None
        right_step = _number(right[-1]) if right and right[-1].startswith(STEP) else None
        tally.target += left_step is not None
        tally.candidate += right_step is not None
        if left_step != right_step:
            tally.target += equal_steps + sum(line.startswith(STEP) for line in a)
            tally.candidate += equal_steps + sum(line.startswith(STEP) for line in b)
            yield Group(min(filter(None, (left_step, right_step))), left, right, complete=False)
            return
        last = left_step or last
        yield Group(last, left, right)
    tally.target += equal_steps
    tally.candidate += equal_steps


def key_events(lines: Iterable[bytes]) -> dict[tuple[str, str, int], Event]:
    """Parse the lines of a step; key them by event, name and how often that came before in this step."""
    keyed: dict[tuple[str, str, int], Event] = {}
    seen: Counter[tuple[str, str]] = Counter()
    for line in lines:
        value = event(line)
        name = (value["ev"], str(value.get("name", value.get("api", ""))))
        keyed[(*name, seen[name])] = value
        seen[name] += 1
    return keyed
