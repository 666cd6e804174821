"""Names of parameters and the shape of the model, found by looking at what is alive."""

from __future__ import annotations

import gc
import hashlib
import json
import weakref
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import Module

__all__ = ["ModelView", "canonical", "class_name", "module_names"]


_ANYWHERE = ("_orig_mod.", "_fsdp_wrapped_module.", "_checkpoint_wrapped_module.")
_INNER = {
    "DataParallel": "module",
    "DistributedDataParallel": "module",
    "FullyShardedDataParallel": "_fsdp_wrapped_module",
    "OptimizedModule": "_orig_mod",
}
_SCALARS = (bool, int, float, str, type(None), torch.dtype)


def canonical(name: str) -> str:
    """Strip what wrappers put into a parameter's name."""
    for prefix in _ANYWHERE:
        name = name.replace(prefix, "")
    while name.startswith("module."):
        name = name[len("module.") :]
    return name


def _live_modules() -> list[Module]:
    # type(), not isinstance: a proxy answers isinstance with code of its own.
    return [o for o in gc.get_objects() if issubclass(type(o), Module) and "_modules" in vars(o)]


def _class_of(module: Module) -> type:
    """The class the program wrote: fully_shard puts one of its own in front of it."""
    kind = type(module)
    if any(base.__name__ == "FSDPModule" for base in kind.__bases__):
        return next(base for base in kind.__bases__ if base.__name__ != "FSDPModule")
    return kind


def _unwrapped(module: Module) -> Module:
    while (inner := _INNER.get(type(module).__name__)) is not None and inner in module._modules:
        module = module._modules[inner]
    return module


def _plain(value: Any) -> bool:
    return isinstance(value, _SCALARS) or (isinstance(value, tuple) and all(map(_plain, value)))


def _row(name: str, module: Module) -> list[Any]:
    kind = _class_of(module)
    attributes = [
        [key, repr(value)]
        for key, value in sorted(vars(module).items())
        if not key.startswith("_") and key != "training" and _plain(value)
    ]
    return [canonical(name), f"{kind.__module__}.{kind.__qualname__}", attributes]


class ModelView:
    """The modules of the program that are trained or called, and what their tensors are called.

    Holds no tensor and no module alive.

    Args:
        optimized: parameters of each optimizer, per group, by the optimizer's number.
        called: modules that the program called from outside any other module.
    """

    def __init__(self, optimized: Mapping[int, Sequence[Sequence[Tensor]]], called: Iterable[Module]) -> None:
        self._names: dict[int, tuple[weakref.ref[Tensor], str]] = {}
        self.replicas: frozenset[str] = frozenset()
        """Names that DDP keeps equal on every rank."""
        roots = _relevant_roots(
            {id(p) for groups in optimized.values() for group in groups for p in group}, called
        )
        self._roots = [weakref.ref(root) for root in roots]
        self.cls = _class_of(_unwrapped(roots[0])).__name__ if roots else None
        self.rows = [_row(name, module) for root in roots for name, module in root.named_modules()]
        self._collect(roots)
        self.orphans = sum(self._name_orphans(number, groups) for number, groups in optimized.items())
        """How many parameters of optimizers belong to no module."""

    @property
    def tree(self) -> str:
        """sha256 of the canonical JSON of `rows`."""
        text = json.dumps(self.rows, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8")).hexdigest()

    def _collect(self, roots: Sequence[Module]) -> None:
        self.parameters: list[tuple[str, weakref.ref[Tensor]]] = []
        self.buffers: list[tuple[str, weakref.ref[Tensor]]] = []
        taken: set[str] = set()
        replicas = set()
        for number, root in enumerate(roots):
            copies = {
                id(p)
                for module in root.modules()
                if type(module).__name__ == "DistributedDataParallel"
                for p in (*module.parameters(), *module.buffers())
            }
            for kind, found in (
                (self.parameters, root.named_parameters()),
                (self.buffers, root.named_buffers()),
            ):
                for raw, tensor in found:
                    if self.name(tensor) is not None:
                        continue
                    name = canonical(raw)
                    name = name if name not in taken else f"~{number}.{name}"
                    taken.add(name)
                    self._names[id(tensor)] = (weakref.ref(tensor), name)
                    kind.append((name, weakref.ref(tensor)))
                    if id(tensor) in copies:
                        replicas.add(name)
        self.replicas = frozenset(replicas)

    def _name_orphans(self, number: int, groups: Sequence[Sequence[Tensor]]) -> int:
        count = 0
        for at, group in enumerate(groups):
            for position, tensor in enumerate(group):
                if self.name(tensor) is None:
                    name = f"optimizer.{number}.{at}.{position}"
                    self._names[id(tensor)] = (weakref.ref(tensor), name)
                    self.parameters.append((name, weakref.ref(tensor)))
                    count += 1
        return count

    def roots(self) -> list[Module]:
        """Return the models that still exist, the one with most trained elements first."""
        return [root for ref in self._roots if (root := ref()) is not None]

    def name(self, tensor: Tensor) -> str | None:
        """Return the name of a tensor, or None for one that was not there when the model was looked at."""
        known = self._names.get(id(tensor))
        return known[1] if known is not None and known[0]() is tensor else None


def class_name(module: Module) -> str:
    """Name of the class the program wrote."""
    return _class_of(module).__name__


def module_names() -> dict[int, tuple[weakref.ref[Module], str]]:
    """Name every module alive, by its id: as in the largest model it is in, `~1.name` in the next one."""
    found: dict[int, tuple[weakref.ref[Module], str]] = {}
    modules = _live_modules()
    children = _children(modules)
    roots = [module for module in modules if id(module) not in children]
    sizes = {id(root): sum(p.numel() for p in root.parameters()) for root in roots}
    for number, root in enumerate(sorted(roots, key=lambda root: (-sizes[id(root)], class_name(root)))):
        for name, module in root.named_modules():
            plain = canonical(f"{name}.").removesuffix(".")
            told = plain if number == 0 else f"~{number}.{plain}".removesuffix(".")
            found.setdefault(id(module), (weakref.ref(module), told))
    return found


def _children(modules: Iterable[Module]) -> set[int]:
    return {id(child) for module in modules for child in module._modules.values() if child is not None}


def _optimized_elements(root: Module, optimized: set[int]) -> int:
    try:
        return sum(p.numel() for p in root.parameters() if id(p) in optimized)
    except Exception:  # noqa: BLE001 - any module alive may be half made, or have methods of its own
        return 0


def _relevant_roots(optimized: set[int], called: Iterable[Module]) -> list[Module]:
    modules = _live_modules()
    children = _children(modules)
    wanted = {id(module) for module in called}
    found = []
    for root in (module for module in modules if id(module) not in children):
        elements = _optimized_elements(root, optimized)
        if elements or any(id(module) in wanted for module in root.modules()):
            found.append((-elements, type(root).__name__, root))
    return [root for _, _, root in sorted(found, key=lambda item: item[:2])]
