"""Which observables two runs hold, so that a verdict names what was compared and nothing else."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice

from repro.trace import PhaseTrace, event_name

__all__ = ["aside", "in_order", "of_steps"]

_LINES = 64
"""Of each rank: what a program holds of a step it holds of its first ones."""

_MODEL = ("modules", "weights before")
_MEMBERS = {
    b'"inputs":[[': "inputs",
    b'"optimizers":[{': "hyper-parameters",
    b'"rng":{': "rng",
    b'"scaler":{': "scaler",
    b'"loss":[{': "loss",
    b'"grad_norm":"': "grad_norm",
    b'"grads":{"': "grads",
    b'"params":{"': "params",
}
_ASIDE = {b"eval": "eval", b"observe": "observe", b"save": "checkpoint", b"load": "checkpoint"}
_ORDER = (*_MODEL, *_MEMBERS.values(), *dict.fromkeys(_ASIDE.values()))


def of_steps(phase: PhaseTrace) -> set[str]:
    """Return what a phase holds of its model and of its steps, on any rank."""
    found: set[str] = set()
    for file in phase.ranks:
        for line in islice(file.lines(), _LINES):
            name = event_name(line)
            if name == b"model":
                found.update(_MODEL)
            elif name == b"step":
                found.update(told for member, told in _MEMBERS.items() if member in line)
    return found


def aside(line: bytes) -> str | None:
    """Return the observable of a line between steps, None for another line."""
    return _ASIDE.get(event_name(line))


def in_order(found: Iterable[str]) -> tuple[str, ...]:
    """Put observables in the order of cause and effect."""
    return tuple(sorted(found, key=_ORDER.index))
