"""Runs of one model laid out in another way: their ranks added up, so that what they share can be compared.

Fingerprints are additive (`docs/trace.md`): digests and sketches of shards sum to those of the whole,
replicas count once. So a run becomes one of a single rank that holds, at every step, the parameters, the
gradients as the optimizer saw them, their norm and the hyper-parameters. What a layout changes by its
nature is left out: which data a rank reads, its generators, the modules around the model, evaluation on one
rank. The loss is kept where every rank ran one backward pass for each step: the mean of the ranks, without
a gradient scaler's scale.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from functools import partial
from typing import Any

from repro.errors import CompareError
from repro.trace import (
    Event,
    PhaseTrace,
    RankFile,
    Trace,
    decode_sketch,
    encode_sketch,
    hexed,
    unhex,
    write_line,
)

__all__ = ["one_rank"]

_WORD = (1 << 64) - 1


def _sum_digests(digests: Sequence[str]) -> str:
    halves = [[int(text[at : at + 16], 16) for text in digests] for at in (0, 16)]
    return "".join(f"{sum(half) & _WORD:016x}" for half in halves)


def _whole(prints: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Add the parts of one tensor up; a member that one part lacks is left out."""
    parts = [one for one in prints if one.get("rep") != 1] or prints[:1]
    first = parts[0]
    found: dict[str, Any] = {"shape": first["shape"], "dtype": first["dtype"], "off": 0}
    found["n"] = sum(one["n"] for one in parts)
    if all("l2" in one for one in parts):
        found["l2"] = hexed(math.sqrt(math.fsum(unhex(one["l2"]) ** 2 for one in parts)))
    if all("dg" in one for one in parts):
        found["dg"] = _sum_digests([one["dg"] for one in parts])
    if all("sk" in one for one in parts):
        sketches = [decode_sketch(one["sk"]) for one in parts]
        found["sk"] = encode_sketch(map(math.fsum, zip(*sketches, strict=True)))
    if bad := sum(one.get("bad", 0) for one in parts):
        found["bad"] = bad
    return found


def _wholes(events: Sequence[Event], kind: str) -> dict[str, dict[str, Any]]:
    names = dict.fromkeys(name for event in events for name in event.get(kind, {}))
    return {
        name: _whole([event[kind][name] for event in events if name in event.get(kind, {})]) for name in names
    }


def _loss(events: Sequence[Event]) -> dict[str, Any]:
    roots = [event.get("loss", []) for event in events]
    if not all(len(one) == 1 and "bits" in one[0] for one in roots):
        return {}
    scales = [unhex(event["scaler"]["scale"]) if "scaler" in event else 1.0 for event in events]
    losses = [unhex(one[0]["bits"]) / scale for one, scale in zip(roots, scales, strict=True)]
    mean = math.fsum(losses) / len(losses)
    return {"loss": [{"bits": hexed(mean), "dtype": roots[0][0]["dtype"]}]}


def _step(events: Sequence[Event]) -> Event:
    grads, params = _wholes(events, "grads"), _wholes(events, "params")
    squares = [unhex(one["l2"]) ** 2 for one in grads.values() if "l2" in one]
    norm = {"grad_norm": hexed(math.sqrt(math.fsum(squares)))} if squares else {}
    return {
        "ev": "step",
        "step": events[0]["step"],
        "optimizers": events[0].get("optimizers", []),
        **_loss(events),
        **norm,
        **({"grads": grads} if grads else {}),
        **({"params": params} if params else {}),
    }


def _model(events: Sequence[Event]) -> Event:
    nothing: dict[str, Any] = {"cls": "", "tree": "", "rows": [], "buffers": {}}
    return {"ev": "model", **nothing, "params": _wholes(events, "params")}


def _told(file: RankFile) -> Generator[Event, None, None]:
    yield from (event for event in file.events() if event["ev"] in ("model", "step"))


def _lines(phase: PhaseTrace) -> Iterator[bytes]:
    yield write_line(phase.ranks[0].head())
    with ExitStack() as stack:
        streams = [stack.enter_context(closing(_told(file))) for file in phase.ranks]
        for events in zip(*streams, strict=False):
            kinds = {(event["ev"], event.get("step")) for event in events}
            if len(kinds) != 1:
                raise CompareError(
                    "ranks-disagree",
                    f"ranks of phase {phase.name} differ in their steps: {sorted(map(str, kinds))}",
                    remedy="record the run again",
                )
            yield write_line((_model if events[0]["ev"] == "model" else _step)(events))


def _merged(phase: PhaseTrace) -> PhaseTrace:
    path = f"{phase.name} of {phase.world_size} ranks"
    file = replace(phase.ranks[0], path=path, lines=partial(_lines, phase))
    return replace(phase, world_size=1, ranks=(file,))


def one_rank(trace: Trace) -> Trace:
    """Add up the ranks of every phase, so that `compare` can be asked about runs of other layouts.

    Reading it raises TraceError where a trace breaks the format, CompareError `ranks-disagree` where ranks
    took different steps.
    """
    return Trace(phases=tuple(map(_merged, trace.phases)))
