"""What differs between the same step of two runs, causes before effects.

Each function takes two parsed events and yields findings; none decides whether a finding matters.
The formats are those of `docs/trace.md`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from repro.compare.finding import Finding, Stage
from repro.compare.lines import key_events
from repro.compare.measure import Change
from repro.compare.parts import (
    is_hex,
    members,
    numbered,
    scalar,
    short_tensors,
    structural,
    tensor_kind,
    tensors,
)
from repro.trace import Event, decode_sketch, unhex
from repro.verdict import Kind

__all__ = ["event_findings", "group_findings", "logical_step"]


def _model(step: int, a: Event, b: Event) -> Iterator[Finding]:
    if (a["cls"], a["tree"]) != (b["cls"], b["tree"]):
        yield from _modules(step, a, b)
    for part in ("params", "buffers"):
        sides = a[part], b[part]
        # buffers may hold infinities on purpose, such as attention masks
        finite = part == "params"
        kind: Kind = "weights-before-differ"
        yield from tensors(step, Stage.WEIGHTS_BEFORE, kind, f"{part}_before", *sides, must_be_finite=finite)


def _modules(step: int, a: Event, b: Event) -> Iterator[Finding]:
    rows = [{row[0]: row for row in side["rows"]} for side in (a, b)]
    told: list[tuple[str | None, str | None, str | None]] = []
    if a["cls"] != b["cls"]:
        told.append((None, a["cls"], b["cls"]))
    for name in dict.fromkeys([*rows[0], *rows[1]]):
        x, y = rows[0].get(name), rows[1].get(name)
        if x != y:
            told.append((name or "the model itself", _module_text(x, y), _module_text(y, x)))
    for tensor, target, candidate in told:
        yield Finding(
            step=step,
            stage=Stage.MODULES,
            kind="modules-differ",
            observable="modules",
            tensor=tensor,
            target=target,
            candidate=candidate,
            of=max(len(side) for side in rows),
        )


def _module_text(row: Sequence[Any] | None, other: Sequence[Any] | None) -> str | None:
    """Write a module's class and those attributes that the other does not have just so."""
    if row is None:
        return None
    alike = other is not None and other[1] == row[1]
    shared = other[2] if other is not None and alike else []
    name = row[1].rpartition(".")[2] if alike else row[1]
    own = ", ".join(f"{key}={value}" for key, value in row[2] if [key, value] not in shared)
    return f"{name}({own})"


def _optimizers(step: int, a: Event, b: Event) -> Iterator[Finding]:
    first, second = a.get("optimizers", []), b.get("optimizers", [])
    told = [
        ", ".join(f"{one['cls']} {one['i']} with {len(one['hyper'])} groups" for one in side)
        for side in (first, second)
    ]
    if told[0] != told[1]:
        yield Finding(
            step=step,
            stage=Stage.HYPER,
            kind="optimizers-differ",
            observable="optimizers",
            target=told[0] or None,
            candidate=told[1] or None,
        )
        return
    for x, y in zip(first, second, strict=True):
        for group, (p, q) in enumerate(zip(x["hyper"], y["hyper"], strict=True)):
            owner = f"optimizer {x['i']} group {group}"
            yield from members(step, Stage.HYPER, "hyper-parameters-differ", "hyper", p, q, owner)


def _loss(step: int, a: Event, b: Event) -> Iterator[Finding]:
    first, second = numbered(a.get("loss", [])), numbered(b.get("loss", []))
    if len(first) != len(second):
        told = [f"{len(side)} backward passes" for side in (first, second)]
        yield structural(step, "events-differ", "loss", told[0], told[1])
        return
    for name, x in first.items():
        y, tensor = second[name], name if len(first) > 1 else None
        by = "bits" if "bits" in x else "l2"
        if by not in y or any(x.get(key) != y.get(key) for key in ("dtype", "shape")):
            sides = [{"shape": side.get("shape", []), "dtype": side.get("dtype")} for side in (x, y)]
            yield from tensor_kind(step, "loss", tensor, *sides)
        else:
            options = {"dtype": x.get("dtype"), "tensor": tensor, "of": len(first)}
            yield from scalar(step, Stage.LOSS, "loss-differs", "loss", x[by], y[by], **options)


def _skipped(side: Event) -> bool:
    return bool(side.get("scaler", {}).get("skipped"))


def _overflow(side: Event) -> bool:
    """Say whether a scaler or a fused optimizer caught an overflow: that is no failure of the run."""
    found = side.get("found_inf")
    return _skipped(side) or bool(unhex(found) if is_hex(found) else found)


def _step(step: int, a: Event, b: Event) -> Iterator[Finding]:
    alike = _skipped(a) == _skipped(b)
    if not alike:
        told = ["skipped by the scaler" if _skipped(side) else "taken" for side in (a, b)]
        yield structural(step, "step-skipped", "scaler.skipped", *told)
    kinds = [{key: side.get(key) for key in ("boundary", "in_backward")} for side in (a, b)]
    yield from members(step, Stage.STRUCTURE, "events-differ", "step", kinds[0], kinds[1])
    yield from _inputs(step, a.get("inputs", []), b.get("inputs", []))
    if alike:
        yield from _optimizers(step, a, b)
    yield from members(step, Stage.RNG, "rng-differs", "rng", a.get("rng", {}), b.get("rng", {}))
    scales = [
        {"scale": side.get("scaler", {}).get("scale"), "found_inf": side.get("found_inf")} for side in (a, b)
    ]
    yield from members(step, Stage.SCALER, "scaler-differs", "scaler", scales[0], scales[1])
    yield from _loss(step, a, b)
    if alike:
        yield from _results(step, a, b)


def _inputs(step: int, a: Sequence[Any], b: Sequence[Any]) -> Iterator[Finding]:
    if len(a) != len(b):
        yield structural(step, "events-differ", "inputs", f"{len(a)} tensors", f"{len(b)} tensors")
    else:
        yield from short_tensors(step, Stage.INPUTS, "inputs-differ", "inputs", numbered(a), numbered(b))


def _results(step: int, a: Event, b: Event) -> Iterator[Finding]:
    finite = not (_overflow(a) or _overflow(b))
    grads = a.get("grads", {}), b.get("grads", {})
    yield from tensors(step, Stage.GRADS, "gradients-differ", "grads", *grads, must_be_finite=finite)
    if finite and "grad_norm" in a and "grad_norm" in b:
        norms = a["grad_norm"], b["grad_norm"]
        yield from scalar(step, Stage.GRAD_NORM, "gradient-norm-differs", "grad_norm", *norms)
    if "params" in a and "params" in b:
        yield from tensors(step, Stage.UPDATE, "update-differs", "params", a["params"], b["params"])


def _eval(step: int, a: Event, b: Event) -> Iterator[Finding]:
    if a["forwards"] != b["forwards"] or len(a["outputs"]) != len(b["outputs"]):
        told = [f"{side['forwards']} forward passes, {len(side['outputs'])} outputs" for side in (a, b)]
        yield structural(step, "events-differ", "eval", *told)
        return
    inputs = [{"all": side["inputs"]} for side in (a, b)]
    yield from short_tensors(step, Stage.AFTER, "inputs-differ", "eval.inputs", *inputs)
    kind: Kind = "evaluation-differs"
    scalars = zip(a.get("scalars", []), b.get("scalars", []), strict=False)
    for name, (x, y) in numbered(list(scalars)).items():
        yield from scalar(step, Stage.AFTER, kind, "eval", x, y, tensor=name)
    outputs = [numbered(side["outputs"]) for side in (a, b)]
    found = list(short_tensors(step, Stage.AFTER, kind, "eval", *outputs))
    yield from (finding for finding in found if finding.kind != kind)
    if differing := [finding for finding in found if finding.kind == kind]:
        change = _sketch_change(a.get("sk"), b.get("sk"))
        yield replace(differing[0], tensor="the outputs together", change=change)


def _sketch_change(first: str | None, second: str | None) -> Change | None:
    if first is None or second is None:
        return None
    x, y = decode_sketch(first), decode_sketch(second)
    return Change(math.dist(x, y), math.hypot(*x), math.hypot(*y)) if len(x) == len(y) else None


def _checkpoint(step: int, a: Event, b: Event) -> Iterator[Finding]:
    name = a["ev"]
    yield from short_tensors(step, Stage.AFTER, "checkpoint-differs", name, a["tensors"], b["tensors"])
    rest = [{"all": side["rest"]} for side in (a, b)]
    yield from short_tensors(step, Stage.AFTER, "checkpoint-differs", f"{name}.rest", *rest)


def _observe(step: int, a: Event, b: Event) -> Iterator[Finding]:
    sides = [{side["name"]: side["fp"]} for side in (a, b)]
    yield from tensors(step, Stage.AFTER, "observation-differs", "observe", *sides, must_be_finite=False)


def _end(step: int, a: Event, b: Event) -> Iterator[Finding]:
    yield from members(step, Stage.END, "rng-differs", "end.rng", a.get("rng", {}), b.get("rng", {}))
    if "params" in a and "params" in b:
        yield from tensors(step, Stage.END, "end-differs", "params", a["params"], b["params"])


_BY_EVENT: dict[str, Callable[[int, Event, Event], Iterator[Finding]]] = {
    "end": _end,
    "eval": _eval,
    "load": _checkpoint,
    "model": _model,
    "observe": _observe,
    "save": _checkpoint,
    "step": _step,
}


def event_findings(step: int, target: Event, candidate: Event) -> Iterator[Finding]:
    """Yield every difference of two well-formed events of the same kind."""
    yield from _BY_EVENT[target["ev"]](step, target, candidate)


def logical_step(value: Event, first_step: int) -> int:
    """Return when an event took place: steps done in the whole run."""
    return first_step + int(value.get("step") or value.get("after") or 0)


def group_findings(
    target: Sequence[bytes], candidate: Sequence[bytes], *, first_step: int
) -> Iterator[Finding]:
    """Yield every difference of one step's lines. Lines are matched by event and name, not by their order."""
    a, b = key_events(target), key_events(candidate)
    for key in dict.fromkeys([*a, *b]):
        x, y = a.get(key), b.get(key)
        step = logical_step(x or y or {}, first_step)
        if x is not None and y is not None:
            yield from event_findings(step, x, y)
        else:
            words = " ".join(filter(None, key[:2]))
            yield structural(step, "events-differ", key[0], words if x else None, words if y else None)
