"""What `torch.distributed.pipelining` does around a program's steps: where one begins, and what is none."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from .guard import unseen

__all__ = ["use", "wrap"]

_next_pass: list[Callable[[], Any]] = []
_paused: list[Callable[[], AbstractContextManager[None]]] = []


def use(next_pass: Callable[[], Any], paused: Callable[[], AbstractContextManager[None]]) -> None:
    """Say whom to tell that a step begins, and how to record nothing for a while."""
    _next_pass[:], _paused[:] = [next_pass], [paused]


def wrap(module: Any) -> None:
    """Wrap what a module of pipelines has of either, once it was imported."""
    _wrap_schedules(module)
    _wrap_stages(module)


def _wrap_schedules(module: Any) -> None:
    """See where the next step of a pipeline begins: there each stage can be stopped, and none waits."""
    for name in ("PipelineScheduleSingle", "PipelineScheduleMulti"):
        kind = getattr(module, name, None)
        if kind is not None and "step" in vars(kind):
            kind.step = _announced(kind.step)


def _wrap_stages(module: Any) -> None:
    """Leave out what a stage computes once in each process, on made-up data, to learn its shapes."""
    for kind in [kind for kind in vars(module).values() if isinstance(kind, type)]:
        for name in ("_prepare_forward_infra", "_prepare_backward_infra"):
            if kind.__module__ == module.__name__ and name in vars(kind):
                setattr(kind, name, _unrecorded(getattr(kind, name)))


def _unrecorded(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with _paused[0]() if _paused else nullcontext():
            return original(*args, **kwargs)

    return unseen(call)


def _announced(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def step(self: Any, *args: Any, **kwargs: Any) -> Any:
        if _next_pass and torch.is_grad_enabled() and getattr(self, "_has_backward", True):
            _next_pass[0]()
        return original(self, *args, **kwargs)

    return unseen(step)
