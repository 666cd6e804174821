"""Every module call of chosen steps: what it returned, and the gradient of that; to find where two runs part.

Gradients are read by hooks on the outputs: unlike hooks on whole modules these put nothing into the graph.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor
from torch.nn import Module

from .content import tensors_in
from .guard import Guard, in_backward
from .names import class_name, module_names
from .parts import fingerprints

__all__ = ["Modules"]


class Modules:
    """Writes an event `mod` for every call.

    Args:
        steps: steps of this process whose calls are written, counted from 1.
        write: takes an event.
        guard: runs work that a backward pass calls.
    """

    def __init__(
        self, steps: frozenset[int], write: Callable[[Mapping[str, Any]], None], guard: Guard
    ) -> None:
        self._steps = steps
        self._write = write
        self._guard = guard
        self._names: dict[int, tuple[weakref.ref[Module], str]] = {}
        self._step = 0
        self._looked = False
        self._calls: Counter[tuple[str, str]] = Counter()
        self._seq = 0
        self.training = False
        """Whether the outermost call has gradients; a reentrant checkpoint switches them off inside of it."""

    def returned(self, module: Module, output: Any, step: int) -> None:
        """A module has returned in a step that is not yet complete."""
        if step not in self._steps or not (self.training or in_backward()):
            return
        if step != self._step:
            self._step, self._looked, self._seq = step, False, 0
            self._calls.clear()
        name = self._name(module)
        if name is None:
            return
        direction = "rf" if in_backward() else "f"
        call = self._calls[direction, name]
        self._calls[direction, name] += 1
        outputs = list(tensors_in(output))
        told = {"name": name, "cls": class_name(module), "call": call}
        self._add({**told, "dir": direction}, step, outputs)
        for place, tensor in enumerate(outputs):
            if tensor.requires_grad:
                tensor.register_hook(self._gradient({**told, "dir": "b", "at": place}, step))

    def _gradient(self, told: Mapping[str, Any], step: int) -> Callable[[Tensor], None]:
        def gradient(value: Tensor) -> None:
            self._add(told, step, [value])

        hook: Callable[[Tensor], None] = self._guard(gradient)
        return hook

    def _add(self, told: Mapping[str, Any], step: int, tensors: list[Tensor]) -> None:
        found = fingerprints([(str(at), tensor) for at, tensor in enumerate(tensors)], full=True)()
        self._write({"ev": "mod", "step": step, "seq": self._seq, **told, "out": list(found.values())})
        self._seq += 1

    def _name(self, module: Module) -> str | None:
        """Return a module's name; None for one that belongs to no model, such as a replica in a thread."""
        known = self._names.get(id(module))
        if (known is None or known[0]() is not module) and not self._looked:
            self._names, self._looked = module_names(), True
            known = self._names.get(id(module))
        return known[1] if known is not None and known[0]() is module else None
