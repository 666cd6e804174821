"""The first module whose output departs, in one step that was recorded module by module in both runs.

An event is `{"ev": "mod", "step": 3, "seq": 17, "dir": "f", "name": "blocks.2.act", "cls": "GELU", "call": 0,
"out": [FP, …]}`: the outputs of one call in order of execution, `dir` being `f` forward, `rf` forward again
inside the backward pass, `b` the gradient of the output at position `at`. `FP` is that of `docs/trace.md`.

Modules report when they return, children before parents: the first difference is the innermost. A parent
that differs while its children agree differs in code of its own. Going backward, the gradient of a module's
output is made by what follows it in the forward pass; so it is the follower that is named.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from repro.compare.measure import Change, tensor_change
from repro.compare.shape import require_shape
from repro.compare.words import amount
from repro.trace import PhaseTrace, event_name, hexed
from repro.verdict import Located

__all__ = ["localise", "locate", "module_events"]

Event = Mapping[str, Any]
Key = tuple[str, str, int, int]

_TINY = 1e-30
_PARSED = (b"mod", b"head")


def _keyed(events: Iterable[Event]) -> dict[Key, Event]:
    ordered = sorted(events, key=lambda event: event["seq"])
    return {(event["dir"], event["name"], event["call"], event.get("at", 0)): event for event in ordered}


def _relative(a: Event, b: Event) -> float | None:
    """Return how far the outputs of one call are apart, 0 for equal bits, None for another shape."""
    if len(a["out"]) != len(b["out"]):
        return None
    largest = 0.0
    for x, y in zip(a["out"], b["out"], strict=True):
        if (x["shape"], x["dtype"]) != (y["shape"], y["dtype"]):
            return None
        change: Change | None = tensor_change(x, y)
        if change is not None:
            relative = math.inf if change.absolute is None else change.absolute / max(change.target, _TINY)
            largest = max(largest, relative)
    return largest


def _allowed(key: Key, target: Event, harmless: Sequence[Mapping[Key, Event]], factor: float) -> float:
    """Return how far this call may be out: `factor` times what harmless runs showed for it."""
    known = (_relative(target, run[key]) for run in harmless if key in run)
    return factor * max((value for value in known if value is not None), default=0.0)


def localise(
    target: Iterable[Event],
    candidate: Iterable[Event],
    *,
    harmless: Sequence[Iterable[Event]] = (),
    factor: float = 5.0,
    rank: int = 0,
) -> Located | None:
    """Find the first module whose output departs; None where none does.

    Args:
        target: module events of one step and rank, in any order.
        candidate: the same of the other run.
        harmless: the same of the target's calibration runs. Without them every bit counts.
        factor: how many times their distance is allowed.
        rank: of all these events.
    """
    a, b = _keyed(target), _keyed(candidate)
    calm = [_keyed(run) for run in harmless]
    for direction in ("f", "rf", "b"):
        for key, event in a.items():
            if key[0] != direction:
                continue
            other = b.get(key)
            relative = _relative(event, other) if other is not None else None
            if relative is None or relative > _allowed(key, event, calm, factor):
                return _located(a, b, event, relative, missing=other is None, rank=rank)
    return None


def _located(
    a: Mapping[Key, Event],
    b: Mapping[Key, Event],
    event: Event,
    relative: float | None,
    *,
    missing: bool,
    rank: int,
) -> Located:
    backward = event["dir"] == "b"
    named = _follower(a, event) if backward else event
    own = not backward and _children_agree(a, b, event)
    told = (
        "is not called"
        if missing
        else "has outputs of another shape"
        if relative is None
        else "departs first"
    )
    far = f" (relative {amount(relative)})" if relative is not None else ""
    name = named["name"] or "the model itself"
    subject = f"the {'gradient through' if backward else 'output of'} {name} ({named['cls']})"
    code = "; its children agree, so it is code of its own" if own else ""
    return Located(
        rank=rank,
        step=event["step"],
        direction="backward" if backward else "forward",
        module=named["name"],
        cls=named["cls"],
        call=named["call"],
        relative=None if relative is None else hexed(relative),
        own_code=own,
        sentence=f"In step {event['step']}, {subject} {told}{far}{code}.",
    )


def _children_agree(a: Mapping[Key, Event], b: Mapping[Key, Event], event: Event) -> bool:
    prefix = f"{event['name']}." if event["name"] else ""
    children = [
        key for key in a if key[0] == event["dir"] and key[1] != event["name"] and key[1].startswith(prefix)
    ]
    return bool(children) and all(key in b and _relative(a[key], b[key]) == 0 for key in children)


def _follower(a: Mapping[Key, Event], event: Event) -> Event:
    """Return the next module of the forward pass that is no ancestor; the last one is its own follower."""
    forward = [one for key, one in a.items() if key[0] == "f"]
    names = [(one["name"], one["call"]) for one in forward]
    place = (event["name"], event["call"])
    after = forward[names.index(place) + 1 :] if place in names else []
    own = f"{event['name']}."
    return next((one for one in after if one["name"] and not own.startswith(f"{one['name']}.")), event)


def module_events(phase: PhaseTrace, rank: int, step: int) -> list[Event]:
    """Return what one rank recorded of the modules in one step; empty where it recorded none.

    Raises:
        TraceError: `trace-malformed`.
    """
    file = phase.ranks[rank]
    parsed = file.events(brief=lambda line: None if event_name(line) in _PARSED else {"ev": "skipped"})
    found: list[Event] = [event for event in parsed if event["ev"] == "mod" and event.get("step") == step]
    for event in found:
        require_shape(event)
    return found


def locate(
    target: PhaseTrace, candidate: PhaseTrace, step: int, *, harmless: Sequence[PhaseTrace] = ()
) -> Located | None:
    """Find the first module that departs in one step, on the first rank where one does.

    Args:
        step: number in the files of both phases.
        harmless: phases of the target's calibration that recorded modules too.

    Raises:
        TraceError: `trace-malformed`.
    """
    for rank in range(min(target.world_size, candidate.world_size)):
        calm = [events for phase in harmless if (events := module_events(phase, rank, step))]
        a, b = (module_events(phase, rank, step) for phase in (target, candidate))
        if (found := localise(a, b, harmless=calm, rank=rank)) is not None:
            return found
    return None
