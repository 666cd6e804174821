"""Runs a function right after a module was imported, without a trace in that module."""

from __future__ import annotations

import importlib.util
import random
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from . import PRIVATE_NAME, settings

__all__ = ["AfterImport", "arm"]


class AfterImport:
    """A finder that lets the normal machinery find a module and acts after its code has run.

    The module keeps its own loader object and spec; only that one loader's
    `exec_module` is wrapped, and the finder forgets the name once it was used.
    """

    def __init__(self, actions: dict[str, Callable[[ModuleType], None]]) -> None:
        self._actions = actions
        self._busy = threading.local()

    def find_spec(
        self,
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG002 - a finder's signature
        target: ModuleType | None = None,  # noqa: ARG002
    ) -> ModuleSpec | None:
        """Return the module's own spec with a loader that calls back, or None for other modules."""
        if name not in self._actions or getattr(self._busy, "on", False):
            return None
        self._busy.on = True
        try:
            spec = importlib.util.find_spec(name)
        finally:
            self._busy.on = False
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            action = self._actions.pop(name, None)
            if action is not None:
                _attempt(name, action, module)

        spec.loader.exec_module = exec_module  # type: ignore[method-assign]
        return spec


def _attempt(name: str, action: Callable[[ModuleType], None], module: ModuleType) -> None:
    try:
        action(module)
    except Exception as error:  # noqa: BLE001 - recording must never stop the program
        sys.stderr.write(f"repro: not recorded from {name} on: {error!r}\n")


class PublicName:
    """Makes `repro.recorder` importable in a recorded process where repro is not installed.

    Stands last among the finders, so an installed repro is always found first.
    """

    @staticmethod
    def find_spec(
        name: str,
        path: Sequence[str] | None = None,  # noqa: ARG004 - a finder's signature
        target: ModuleType | None = None,  # noqa: ARG004
    ) -> ModuleSpec | None:
        """Answer for `repro` and `repro.recorder` only."""
        if name == "repro":
            return ModuleSpec(name, _Alias(None), is_package=True)
        if name == "repro.recorder":
            return ModuleSpec(name, _Alias(sys.modules[PRIVATE_NAME]))
        return None


class _Alias(Loader):
    def __init__(self, module: ModuleType | None) -> None:
        self._module = module

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:  # noqa: ARG002
        return None

    def exec_module(self, module: ModuleType) -> None:
        if self._module is not None:
            module.__dict__["observe"] = self._module.observe


def arm() -> None:
    """Seed python now, and prepare what happens when numpy, torch and writers of checkpoints are imported."""
    wanted = settings.read()
    if wanted.seed is not None:
        random.seed(wanted.seed)

    def seed_numpy(module: Any) -> None:
        if wanted.seed is not None:
            module.random.seed(wanted.seed % 2**32)

    def record(module: Any) -> None:
        from . import hooks

        hooks.install(module, wanted)

    def checkpoints(module: Any) -> None:
        from . import checkpoints as wrappers

        wrappers.wrap(module)

    def pipelines(module: Any) -> None:
        from . import pipelines as wrappers

        wrappers.wrap(module)

    finder = AfterImport(
        {
            "numpy": seed_numpy,
            "torch": record,
            "torch.distributed.checkpoint": checkpoints,
            "torch.distributed.checkpoint.state_dict": checkpoints,
            "torch.distributed.pipelining.schedules": pipelines,
            "torch.distributed.pipelining.stage": pipelines,
            "safetensors.torch": checkpoints,
        }
    )
    sys.meta_path.insert(0, finder)
    sys.meta_path.append(PublicName)
