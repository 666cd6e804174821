"""What is said of a program when it ends, and how the recorder ends one."""

from __future__ import annotations

import os
import sys
from typing import Any

from . import checkpoints
from .measure import rng
from .weights import Prints, Weights

__all__ = ["Ending", "leave"]


class Ending:
    """The last look at the model and at what its optimizers hold.

    Args:
        weights: the model under its names.
    """

    def __init__(self, weights: Weights) -> None:
        self._weights = weights
        self.params: Prints | None = None
        """Fingerprints of the parameters when they were last seen."""
        self._state: dict[str, Any] | None = None

    def remember(self) -> None:
        """Look now: the program lets go of the model."""
        self.params = self._weights.final() or self.params
        self._state = self._weights.final_state()

    def event(self, step: int | None, *, stopped: bool) -> dict[str, Any]:
        """Describe the end as the trace does.

        Args:
            step: steps taken, None where they were not counted.
            stopped: whether the recorder ends the process.
        """
        event: dict[str, Any] = {"ev": "end", "step": step, "rng": rng()}
        seen = {
            "params": self._weights.final() or self.params,
            "state": self._weights.final_state() or self._state,
            "stopped": stopped or None,
        }
        return event | {key: value for key, value in seen.items() if value is not None}


def leave() -> None:
    """End the process as if it had done its work, once nothing is being written any more."""
    try:
        checkpoints.wait()
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        if "multiprocessing" in sys.modules:
            for child in sys.modules["multiprocessing"].active_children():
                child.terminate()
    finally:
        os._exit(0)
