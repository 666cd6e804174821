"""Forward passes without gradients, and the roots of backward passes."""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from .emit import hexed
from .parts import Later, floats_text, local_part, norms, short_forms, sketch_sum

__all__ = ["Evaluation", "root_form"]

_LISTED = 64
_BUCKETS = 16


class Evaluation:
    """Outermost forward passes without gradients that follow each other."""

    def __init__(self) -> None:
        self._started = time.perf_counter()
        self._ended = self._started
        self._forwards = 0
        self._inputs: list[list[Any]] = []
        self._outputs: list[list[Any]] = []
        self._scalars: list[str] = []
        self._sketch = torch.zeros(_BUCKETS, dtype=torch.float64, device="cpu")

    def add(self, given: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        """Add one pass."""
        self._forwards += 1
        self._inputs += short_forms(given)()
        self._outputs += short_forms(outputs)()
        self._sketch += sketch_sum([local_part(tensor) for tensor in outputs], _BUCKETS)
        self._scalars += [hexed(float(t)) for t in outputs if t.numel() == 1 and t.is_floating_point()]
        self._ended = time.perf_counter()

    @property
    def seconds(self) -> float:
        """From the first pass to the end of the last."""
        return self._ended - self._started

    def event(self, after: int) -> dict[str, Any]:
        """Describe the passes as the trace does."""
        outputs: list[Any] = self._outputs[:_LISTED]
        if len(self._outputs) > _LISTED:
            outputs.append(_sha256(self._outputs[_LISTED:]))
        return {
            "ev": "eval",
            "after": after,
            "forwards": self._forwards,
            "inputs": _sha256(self._inputs),
            "outputs": outputs,
            "scalars": self._scalars[:_LISTED],
            "sk": floats_text(self._sketch),
        }


def _sha256(value: Any) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()


def root_form(root: Tensor) -> Later[dict[str, Any]]:
    """Describe the root of a backward pass: its value where it has one element, else its norm."""
    part = local_part(root)
    dtype = str(part.dtype)[6:]
    if part.values is not None and part.held == 1 and part.dtype.is_floating_point:
        value = part.values.clone()
        return lambda: {"bits": hexed(float(value)), "dtype": dtype}
    measured = norms([part])

    def get() -> dict[str, Any]:
        l2 = measured()[0]
        return {"shape": list(part.shape), "dtype": dtype, "l2": None if l2 is None else hexed(l2)}

    return get
