"""How long things took, what memory they needed, how much data went in: measured, never compared."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from .communication import Communication
from .emit import hexed
from .measure import memory

__all__ = ["Clock", "process_age"]

_INTEGERS = (torch.int64, torch.int32)


def process_age() -> float | None:
    """Return seconds since this process was started, None where the system does not say."""
    try:
        with open("/proc/self/stat", encoding="ascii", errors="replace") as file:  # noqa: PTH123
            ticks = int(file.read().rpartition(")")[2].split()[19])
        return time.clock_gettime(time.CLOCK_BOOTTIME) - ticks / os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return None


class Clock:
    """Measures one step after the other.

    Args:
        write: where events go.
        spent: returns the seconds the recorder has worked so far.
    """

    def __init__(self, write: Callable[[Mapping[str, Any]], None], spent: Callable[[], float]) -> None:
        self._write = write
        self._spent = spent
        self._communication = Communication()
        self._last: float | None = None
        self._recorder_seconds = 0.0
        self._begin_step()

    def _begin_step(self) -> None:
        self.data_wait = 0.0
        """Seconds the program waited for data loaders since the last step."""
        self._passes = self._samples = self._tokens = 0
        self._length: int | None = None

    def start(self) -> None:
        """The first forward pass begins: the program has loaded what it needs."""
        if self._last is None:
            self._last = time.perf_counter()
            age = process_age()
            if age is not None:
                self.took("load-program", age)

    def fed(self, given: Sequence[Tensor]) -> None:
        """A model was given data: the first tensor counts samples, the first of integers counts tokens."""
        self._passes += 1
        self._samples += next((t.shape[0] for t in given if t.dim()), 0)
        for tensor in given:
            if tensor.dtype in _INTEGERS and tensor.dim() > 1:
                self._tokens += tensor.shape[0] * tensor.shape[1]
                self._length = max(self._length or 0, tensor.shape[1])
                break

    def took(self, what: str, seconds: float) -> None:
        """Write down how long something beside the steps took."""
        self._write({"ev": "time", "what": what, "s": hexed(seconds)})

    def step(self, number: int) -> None:
        """Write down what step `number` took and needed."""
        now, spent = time.perf_counter(), self._spent()
        timing: dict[str, Any] = {
            "ev": "time",
            "step": number,
            "data_wait_s": hexed(self.data_wait),
            "recorder_s": hexed(spent - self._recorder_seconds),
            "passes": self._passes,
            "samples": self._samples,
        }
        if self._length is not None:
            timing |= {"tokens": self._tokens, "length": self._length}
        if self._last is not None:
            timing["s"] = hexed(now - self._last)
        if (seconds := self._communication.after(number)) is not None:
            timing["communication_s"] = hexed(seconds)
        self._last, self._recorder_seconds = now, spent
        self._write(timing)
        self._write({"ev": "mem", "step": number, **memory()})
        self._begin_step()
