"""The comparison once more, in the plainest way: whole traces in memory, every value looked at, no shortcuts.

It knows bits and one bound for everything, and says outcome, kind, step and rank of what decides.
"""

from __future__ import annotations

import json
import math
from typing import Any

from repro.trace import Trace, decode_sketch

Place = tuple[str, str, int | None, int | None]
"""Outcome, kind, step, rank."""

_STAGES = [
    "structure",
    "inputs",
    "modules",
    "weights",
    "hyper",
    "rng",
    "scaler",
    "loss",
    "grads",
    "grad_norm",
    "params",
    "after",
    "end",
]
_VOLATILE = {"head", "time", "mem", "err", "mod"}


def load(trace: Trace) -> list[list[dict[str, Any]]]:
    """Deterministic events of the only phase, by rank."""
    return [
        [event for event in map(json.loads, file.lines()) if event["ev"] not in _VOLATILE]
        for file in trace.phases[0].ranks
    ]


def steps_of(events: list[dict[str, Any]]) -> list[int]:
    return [event["step"] for event in events if event["ev"] == "step"]


class Finder:
    """Collects (step, stage, rank, kind, fails)."""

    def __init__(self, bound: float | None) -> None:
        self.bound = bound
        self.found: list[tuple[int, int, int, str, bool]] = []

    def add(self, step: int, stage: str, rank: int, kind: str, *, fails: bool = True) -> None:
        self.found.append((step, _STAGES.index(stage), rank, kind, fails))

    def apart(self, distance: float, size: float) -> bool:
        return self.bound is None or not distance <= self.bound * size

    def scalar(self, step: int, stage: str, rank: int, kind: str, x: str, y: str) -> None:
        a, b = float.fromhex(x), float.fromhex(y)
        if not (math.isfinite(a) and math.isfinite(b)):
            self.add(step, stage, rank, "non-finite")
        elif x != y:
            self.add(step, stage, rank, kind, fails=self.apart(abs(a - b), max(abs(a), abs(b))))

    def tensors(
        self, step: int, stage: str, rank: int, kind: str, a: dict[str, Any], b: dict[str, Any]
    ) -> None:
        for name in a.keys() | b.keys():
            if name not in a or name not in b:
                self.add(step, "structure", rank, "tensors-differ")
                continue
            x, y = a[name], b[name]
            if x["dtype"] != y["dtype"]:
                self.add(step, "structure", rank, "dtypes-differ")
            if x["shape"] != y["shape"] or x["n"] != y["n"]:
                self.add(step, "structure", rank, "shapes-differ")
            if (x["dtype"], x["shape"], x["n"]) != (y["dtype"], y["shape"], y["n"]):
                continue
            by = "dg" if "dg" in x and "dg" in y else "l2"
            if x[by] == y[by]:
                continue
            norms = float.fromhex(x["l2"]), float.fromhex(y["l2"])
            distance = abs(norms[0] - norms[1])
            if "sk" in x and "sk" in y:
                pairs = zip(decode_sketch(x["sk"]), decode_sketch(y["sk"]), strict=True)
                distance = math.sqrt(sum((p - q) ** 2 for p, q in pairs))
            self.add(step, stage, rank, kind, fails=self.apart(distance, max(norms)))


def _step(find: Finder, rank: int, a: dict[str, Any], b: dict[str, Any]) -> None:
    step = a["step"]
    for x, y in zip(a["inputs"], b["inputs"], strict=True):
        if x[0] != y[0]:
            find.add(step, "structure", rank, "shapes-differ")
        elif x != y:
            find.add(step, "inputs", rank, "inputs-differ")
    if a["optimizers"][0]["hyper"] != b["optimizers"][0]["hyper"]:
        find.add(step, "hyper", rank, "hyper-parameters-differ")
    if a["rng"] != b["rng"]:
        find.add(step, "rng", rank, "rng-differs")
    find.scalar(step, "loss", rank, "loss-differs", a["loss"][0]["bits"], b["loss"][0]["bits"])
    find.tensors(step, "grads", rank, "gradients-differ", a["grads"], b["grads"])
    find.scalar(step, "grad_norm", rank, "gradient-norm-differs", a["grad_norm"], b["grad_norm"])
    if "params" in a and "params" in b:
        find.tensors(step, "params", rank, "update-differs", a["params"], b["params"])


def _after(find: Finder, rank: int, a: list[dict[str, Any]], b: list[dict[str, Any]]) -> None:
    for name in ("eval", "save", "end", "model"):
        for step in range(max(steps_of(a), default=0) + 1):
            both = [
                [e for e in side if e["ev"] == name and e.get("after", e.get("step", 0)) == step]
                for side in (a, b)
            ]
            if len(both[0]) != len(both[1]):
                find.add(step, "structure", rank, "events-differ")
                continue
            for x, y in zip(*both, strict=True):
                if name == "eval" and x["outputs"] != y["outputs"]:
                    p, q = decode_sketch(x["sk"]), decode_sketch(y["sk"])
                    fails = find.apart(math.dist(p, q), max(math.hypot(*p), math.hypot(*q)))
                    find.add(step, "after", rank, "evaluation-differs", fails=fails)
                if name == "save" and (x["tensors"], x["rest"]) != (y["tensors"], y["rest"]):
                    find.add(step, "after", rank, "checkpoint-differs", fails=find.bound is None)
                if name == "end":
                    if x["rng"] != y["rng"]:
                        find.add(step, "end", rank, "rng-differs")
                    find.tensors(step, "end", rank, "end-differs", x["params"], y["params"])
                if name == "model":
                    if x["rows"] != y["rows"]:
                        find.add(0, "modules", rank, "modules-differ")
                    if x["params"] != y["params"]:
                        find.add(0, "weights", rank, "weights-before-differ")


def judge(target: Trace, candidate: Trace, *, bound: float | None) -> Place:
    """Compare traces of one phase; `bound` is a relative tolerance for every result, None asks for bits."""
    find = Finder(bound)
    for rank, (a, b) in enumerate(zip(load(target), load(candidate), strict=True)):
        numbers = [steps_of(a), steps_of(b)]
        if numbers[0] != numbers[1]:
            odd = min(set(numbers[0]) ^ set(numbers[1]))
            find.add(odd, "structure", rank, "steps-missing" if odd in numbers[0] else "steps-extra")
            a, b = ([e for e in side if e.get("after", e.get("step", 0)) < odd] for side in (a, b))
        by_step = [{e["step"]: e for e in side if e["ev"] == "step"} for side in (a, b)]
        for number in by_step[0]:
            _step(find, rank, by_step[0][number], by_step[1][number])
        _after(find, rank, a, b)
    failing = sorted(one for one in find.found if one[4])
    if failing:
        step, _, rank, kind, _ = failing[0]
        return "DIVERGED", kind, step, rank
    if find.found:
        return "WITHIN_TOLERANCE", "within-bounds", None, None
    return "BITWISE", "equal", None, None
