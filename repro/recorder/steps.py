"""One step while it is being taken, by one optimizer or several."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

from torch import Tensor

from .emit import hexed
from .measure import rng
from .optimizers import Known
from .parts import Later
from .weights import Prints, Weights

__all__ = ["Step"]


class Step:
    """A step that has begun and may not be complete.

    Args:
        weights: the model under its names.
        full: whether this step's tensors get digests and sketches.
    """

    def __init__(self, weights: Weights, *, full: bool) -> None:
        self._weights = weights
        self._full = full
        self._optimizers: list[dict[str, Any]] = []
        self._grads: dict[int, Later[Prints]] = {}
        self._params: dict[int, Later[Prints]] = {}
        self._rng: dict[str, str] = {}
        self._scaler: dict[str, Any] | None = None
        self._extra: dict[str, Any] = {}
        self.done: set[int] = set()
        """Numbers of the optimizers that have stepped, or were skipped."""
        self.in_backward = False
        """Whether its optimizers step inside the backward pass."""

    def look_at_grads(self, known: Known) -> None:
        """Fingerprint the gradients that an optimizer uses."""
        self._grads[known.number] = self._weights.grads(known, full=self._full)

    def take(self, known: Known) -> None:
        """An optimizer has stepped."""
        self._optimizers.append(known.take())
        self._done(known)
        if self._full:
            self._params[known.number] = self._weights.params(known)

    def skip(self, known: Known) -> None:
        """A gradient scaler has held an optimizer back."""
        self._grads.pop(known.number, None)
        self._done(known)
        if self._scaler is not None:
            self._scaler["skipped"] = True

    def _done(self, known: Known) -> None:
        self.done.add(known.number)
        self._rng = rng()

    def note_scale(self, scale: Tensor | None) -> None:
        """A gradient scaler drives the step."""
        skipped = self._scaler is not None and self._scaler["skipped"]
        self._scaler = {"scale": None if scale is None else hexed(float(scale)), "skipped": skipped}

    def note_found_inf(self, found: Tensor) -> bool:
        """A fused optimizer was told whether gradients are infinite; return it."""
        self._extra["found_inf"] = hexed(float(found))
        return float(found) > 0

    def note_unseen(self) -> None:
        """No hook reported the step; its effect did."""
        self._extra["boundary"] = 1

    def event(self, number: int, inputs: list[Any], losses: list[Any]) -> dict[str, Any]:
        """Describe the step as the trace does."""
        event: dict[str, Any] = {
            "ev": "step",
            "step": number,
            "inputs": inputs,
            "loss": losses,
            "rng": self._rng,
        }
        event |= self._extra
        if self.in_backward:
            event["in_backward"] = True
        if self._scaler is not None:
            event["scaler"] = self._scaler
        if self._optimizers:
            grads = _merged(self._grads)
            event |= {"optimizers": self._optimizers, "grads": grads, "grad_norm": _total(grads.values())}
        if self._optimizers and self._full:
            event["params"] = _merged(self._params)
        return event


def _merged(prints: Mapping[int, Later[Prints]]) -> Prints:
    return {name: entry for get in prints.values() for name, entry in get().items()}


def _total(prints: Iterable[Mapping[str, Any]]) -> str:
    measured = [float.fromhex(entry["l2"]) for entry in prints if "l2" in entry]
    return hexed(math.sqrt(sum(norm * norm for norm in measured)))
