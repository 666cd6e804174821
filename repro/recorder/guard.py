"""Keeps recorder code out of the way of the program it records.

Work runs without gradients, autocast, function or dispatch modes; it never
enters itself, never raises, and torch.compile neither traces nor counts it.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["Guard", "Leave", "in_backward", "unseen"]


class Leave(Exception):  # noqa: N818 - no error
    """Raised by work after which the process is to end.

    Args:
        action: ends it; called without the recorder's lock, which other threads may wait for.
    """

    def __init__(self, action: Callable[[], object]) -> None:
        super().__init__()
        self.action = action


def in_backward() -> bool:
    """Say whether this thread runs inside a backward pass."""
    return bool(torch._C._current_graph_task_id() != -1)


def unseen(function: Callable[..., Any], *, recursive: bool = False) -> Callable[..., Any]:
    """Mark a function's code so that torch.compile runs it as it is; without importing the compiler."""
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            action = frames._FrameAction
            inner = action.SKIP if recursive else action.DEFAULT
            frames.set_code_exec_strategy(function.__code__, frames._FrameExecStrategy(action.SKIP, inner))
        elif hasattr(frames, "skip_code"):
            frames.skip_code(function.__code__)
    except (AttributeError, TypeError):
        pass
    return function


def _foreign() -> bool:
    """Say whether torch only pretends to compute: tracing, exporting, capturing, or inside functorch."""
    if torch._C._get_tracing_state() is not None or torch._C._functorch.peek_interpreter_stack() is not None:
        return True
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


class Guard:
    """Runs recorder work.

    Args:
        report: called with the name of the work and the error it raised.
    """

    def __init__(self, report: Callable[[str, BaseException], None]) -> None:
        self._report = report
        self._local = threading.local()
        self._lock = threading.RLock()
        self._seconds = 0.0

    def seconds(self) -> float:
        """Return the time spent in recorder work so far, with the work that is being done."""
        started = getattr(self._local, "started", None)
        return self._seconds + (0.0 if started is None else time.perf_counter() - started)

    def after_fork(self) -> None:
        """Forget locks that other threads of the parent may have held."""
        self._lock = threading.RLock()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Do no work in this thread for a while."""
        before = getattr(self._local, "busy", False)
        self._local.busy = True
        try:
            yield
        finally:
            self._local.busy = before

    def __call__(self, work: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap work; the wrapped function returns None where it failed or was not run."""

        @functools.wraps(work)
        def run(*args: Any, **kwargs: Any) -> Any:
            if getattr(self._local, "busy", False) or _foreign():
                return None
            self._local.busy = True
            self._local.started = started = time.perf_counter()
            grad = torch.is_grad_enabled()
            leave = None
            try:
                torch._C._set_grad_enabled(False)
                with self._lock, torch._C._DisableAutocast(), torch._C.DisableTorchFunction():
                    return _without_modes(work, args, kwargs)
            except Leave as wish:
                leave = wish.action
            except Exception as error:  # noqa: BLE001 - recording must never stop the program
                self._report(work.__name__, error)
            finally:
                torch._C._set_grad_enabled(grad)
                self._seconds += time.perf_counter() - started
                self._local.started, self._local.busy = None, False
            return leave() if leave is not None else None

        return unseen(run, recursive=True)


def _without_modes(work: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    if torch._C._len_torch_dispatch_stack() == 0:
        return work(*args, **kwargs)
    with torch.utils._python_dispatch._disable_current_modes():
        return work(*args, **kwargs)
