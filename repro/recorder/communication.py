"""How long ranks exchange data in a step: a profile of two early steps, never of all."""

from __future__ import annotations

import functools
import threading
from collections.abc import Iterable
from typing import Any

import torch

from .guard import unseen

__all__ = ["Communication", "covered"]

_FIRST, _LAST = 2, 3
"""Steps that are profiled. They belong to the warm-up, whose times are told apart: profiling slows them."""
_NAMES = ("gloo:", "nccl:", "mpi:", "ucc:", "xccl:", "ncclDev", "ncclKernel")
"""How operations of process groups begin, on the host and on the device."""


def covered(spans: Iterable[tuple[int, int]]) -> int:
    """Return the length of the union of spans, each a start and an end."""
    total, reached = 0, None
    for start, end in sorted(spans):
        if reached is None or start > reached:
            total, reached = total + end - start, end
        elif end > reached:
            total, reached = total + end - reached, end
    return total


class Communication:
    """Profiles two steps of a program with several ranks, unless it profiles itself."""

    def __init__(self) -> None:
        self._profile: Any = None

    def after(self, step: int) -> float | None:
        """A step has ended: begin or end the profile; return seconds a step where it has ended."""
        if step == _FIRST - 1:
            self._begin()
        return self._end() if step == _LAST else None

    def _begin(self) -> None:
        several = torch.distributed.is_available() and torch.distributed.is_initialized()
        if not several or torch.distributed.get_world_size() < 2 or torch.autograd._profiler_enabled():
            return
        if threading.current_thread() is not threading.main_thread():
            return  # a profile ends in the thread that began it
        device = "cuda" if torch.cuda.is_initialized() else None
        self._profile = torch.autograd.profiler.profile(use_kineto=True, use_device=device)
        self._profile.__enter__()
        _give_way(self)

    def _end(self) -> float | None:
        profile, self._profile = self._profile, None
        if profile is None:
            return None
        profile.__exit__(None, None, None)
        spans = [
            (event.start_ns(), event.start_ns() + event.duration_ns())
            for event in profile.kineto_results.events()
            if event.name().startswith(_NAMES)
        ]
        return covered(spans) / 1e9 / (_LAST - _FIRST + 1)

    def stop(self) -> None:
        """Let go of the profiler: the program wants it."""
        self._end()


def _give_way(ours: Communication) -> None:
    """Only one profiler can run: stop ours where the program starts one."""
    kind = torch.autograd.profiler.profile
    original = kind._prepare_trace

    @functools.wraps(original)
    def _prepare_trace(self: Any) -> Any:
        kind._prepare_trace = original
        ours.stop()
        return original(self)

    kind._prepare_trace = unseen(_prepare_trace)
