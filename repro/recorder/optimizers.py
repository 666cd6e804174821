"""The optimizers of the program: which there are, what they hold, how often they stepped."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.optim import Optimizer

from .emit import hexed

__all__ = ["Known", "Optimizers"]


class Known:
    """An optimizer that was created or seen to step. Does not keep it alive."""

    def __init__(self, number: int, optimizer: Optimizer) -> None:
        self.number = number
        self.taken = 0
        self.ref = weakref.ref(optimizer)
        self._versions: list[int] | None = None

    def groups(self) -> list[list[Tensor]]:
        """Return its parameters per group; none where it is gone."""
        optimizer = self.ref()
        return [] if optimizer is None else [list(group["params"]) for group in optimizer.param_groups]

    def is_hooked(self) -> bool:
        """Say whether torch calls step hooks for it; wrappers that only look like optimizers have none."""
        optimizer = self.ref()
        return optimizer is not None and bool(getattr(type(optimizer).step, "hooked", False))

    def watch(self) -> None:
        """Remember how often each parameter was written to so far."""
        self._versions = [p._version for group in self.groups() for p in group]

    def was_written(self) -> bool:
        """Say whether a parameter was written to since `watch`, with no step taken since."""
        return self._versions is not None and self._versions != [p._version for g in self.groups() for p in g]

    def take(self) -> dict[str, Any]:
        """Count a step, and describe it as the trace does."""
        optimizer = self.ref()
        assert optimizer is not None
        taken, self.taken, self._versions = self.taken, self.taken + 1, None
        return {"i": self.number, "cls": type(optimizer).__name__, "k": taken, "hyper": _hyper(optimizer)}


class Optimizers:
    """Every optimizer, numbered in the order they were created or first seen."""

    def __init__(self) -> None:
        self._known: dict[int, Known] = {}
        self._count = 0

    def find(self, optimizer: Optimizer) -> Known:
        """Return what is known of an optimizer, which becomes known if it was not."""
        known = self._known.get(id(optimizer))
        if known is None or known.ref() is not optimizer:
            known = self._known[id(optimizer)] = Known(self._count, optimizer)
            self._count += 1
        return known

    def alive(self) -> list[Known]:
        """Return those that still exist."""
        return [known for known in self._known.values() if known.ref() is not None]

    def watch(self) -> None:
        """Remember how often each parameter was written, to see a compiled step by its effect."""
        for known in self.alive():
            known.watch()

    def written(self) -> list[Known]:
        """Return those whose parameters were written to since `watch` without a step that was seen."""
        return [known for known in self.alive() if known.was_written()]

    def state(self, name: Callable[[Tensor], str | None]) -> dict[str, Tensor]:
        """Return what the optimizers hold for each parameter.

        Args:
            name: returns the name of a parameter, None for one that has none.

        Returns:
            tensors by `<optimizer>/<parameter>/<key>`.
        """
        found: dict[str, Tensor] = {}
        for known in self.alive():
            optimizer = known.ref()
            for parameter, held in (optimizer.state if optimizer is not None else {}).items():
                owner = name(parameter) if isinstance(parameter, Tensor) else None
                for key, value in held.items() if owner is not None and isinstance(held, dict) else ():
                    if isinstance(value, Tensor):
                        found[f"{known.number}/{owner}/{key}"] = value
        return found


def _setting(value: Any) -> Any:
    """A hyper-parameter as a JSON value, or Ellipsis for what is no plain setting."""
    if isinstance(value, Tensor):
        readable = value.numel() == 1 and value.device.type != "meta" and not value.is_complex()
        return hexed(float(value)) if readable else ...
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return hexed(value)
    if isinstance(value, (tuple, list)):
        items = [_setting(item) for item in value]
        return ... if ... in items else items
    return ...


def _hyper(optimizer: Optimizer) -> list[dict[str, Any]]:
    groups = []
    for group in optimizer.param_groups:
        settings = {
            key: _setting(value) for key, value in group.items() if key not in ("params", "param_names")
        }
        groups.append({str(key): value for key, value in settings.items() if value is not ...})
    return groups
