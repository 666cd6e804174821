"""The model under its names: looked at once before the first update, fingerprinted after."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Module

from .facts import place
from .names import ModelView
from .optimizers import Known, Optimizers
from .parts import Later, fingerprints, short_forms

__all__ = ["Prints", "Weights"]

Prints = dict[str, dict[str, Any]]
"""Fingerprints by name."""


class Weights:
    """What the program trains.

    Args:
        optimizers: the optimizers of the program.
        called: returns the modules that were called from outside any other.
        on_gone: called when a model ceases to exist, while its parameters still do.
    """

    def __init__(
        self, optimizers: Optimizers, called: Callable[[], list[Module]], on_gone: Callable[[], object]
    ) -> None:
        self._optimizers = optimizers
        self._called = called
        self._on_gone = on_gone
        self._view: ModelView | None = None
        self._early: dict[int, tuple[weakref.ref[Tensor], dict[str, Any]]] = {}
        """Fingerprints of buffers from before the first pass, by id."""

    @property
    def seen(self) -> bool:
        """Whether the model was looked at."""
        return self._view is not None

    def before(self, module: Module) -> None:
        """Fingerprint the buffers of a model that is about to be called: its first pass may change them."""
        if self.seen:
            return
        new = {str(id(one)): one for one in module.buffers() if id(one) not in self._early}
        for key, entry in fingerprints(list(new.items()), full=True)().items():
            self._early[int(key)] = (weakref.ref(new[key]), entry)

    def look(self, *, unless_orphans: bool = False) -> dict[str, Any] | None:
        """Look at the model, and return the event that describes it; None where it was not looked at.

        Args:
            unless_orphans: leave it for later where a parameter of an optimizer belongs to no
                module, as while sharded parameters are gathered.
        """
        view = self._looked()
        if unless_orphans and view.orphans:
            return None
        self.glance(view)
        frozen = [name for name, tensor in _present(view.parameters) if not tensor.requires_grad]
        return {
            "ev": "model",
            "cls": view.cls,
            "tree": view.tree,
            "rows": view.rows,
            "params": self._prints(_present(view.parameters), full=True)(),
            "buffers": self._buffers(_present(view.buffers)),
            **({"frozen": frozen} if frozen else {}),
        }

    def _buffers(self, present: list[tuple[str, Tensor]]) -> Prints:
        """Fingerprint buffers as they were before the first pass, where that was seen."""
        found = self._prints(present, full=True)()
        for name, tensor in present:
            taken, early = self._early.get(id(tensor), (None, {}))
            if taken is not None and taken() is tensor:
                found[name] = {**early, **({"rep": 1} if "rep" in found[name] else {})}
        self._early.clear()
        return found

    def glance(self, view: ModelView | None = None) -> None:
        """Learn the names, and watch for the end of the model, without fingerprints."""
        self._view = view or self._looked()
        self._watched = [weakref.ref(root, lambda _: self._on_gone()) for root in self._view.roots()]

    def _looked(self) -> ModelView:
        return ModelView({known.number: known.groups() for known in self._optimizers.alive()}, self._called())

    def params(self, known: Known) -> Later[Prints]:
        """Fingerprint the parameters of one optimizer."""
        return self._prints(self._named(known), full=True)

    def grads(self, known: Known, *, full: bool) -> Later[Prints]:
        """Fingerprint the gradients that an optimizer is about to use, without their loss scale."""
        scale = getattr(known.ref(), "grad_scale", None)
        named = [(name, p.grad) for name, p in self._named(known) if p.grad is not None]
        return self._prints(named, full=full, divide=None if scale is None else float(scale))

    def final(self) -> Prints | None:
        """Fingerprint every parameter, without sketches; None where some are gone."""
        if self._view is None:
            return None
        present = _present(self._view.parameters)
        if not present or len(present) < len(self._view.parameters):
            return None
        return self._prints(present, full=True, sketch=False)()

    def final_state(self) -> dict[str, list[Any]] | None:
        """Short forms of the buffers, and of what optimizers hold; None where optimizers are gone."""
        if self._view is None or not self._optimizers.alive():
            return None
        held = {f"buffer/{name}": tensor for name, tensor in _present(self._view.buffers)}
        for name, tensor in self._optimizers.state(self._view.name).items():
            held[f"optimizer/{name}"] = tensor
        return dict(zip(held, short_forms(list(held.values()))(), strict=True))

    def _named(self, known: Known) -> list[tuple[str, Tensor]]:
        tensors = [p for group in known.groups() for p in group]
        if self._view is None or any(self._view.name(p) is None for p in tensors):
            self._view = self._looked()
        return [(name, p) for p in tensors if (name := self._view.name(p)) is not None]

    def _prints(
        self, named: list[tuple[str, Tensor]], *, full: bool, sketch: bool = True, divide: float | None = None
    ) -> Later[Prints]:
        assert self._view is not None
        replicas = self._view.replicas if place()[0] > 0 else frozenset()
        return fingerprints(named, full=full, sketch=sketch, divide=divide, replicas=replicas)


def _present(named: Sequence[tuple[str, weakref.ref[Tensor]]]) -> list[tuple[str, Tensor]]:
    return [(name, tensor) for name, ref in named if (tensor := ref()) is not None]
