"""The fp32 probe: the same program with mixed precision switched off.

Rounding to bfloat16 hides small changes of a computation. A second, short
recording in float32 does not, and needs no change to the program: every autocast
region and gradient scaler it makes is made switched off.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from .guard import unseen

__all__ = ["apply"]

_NARROW = (torch.bfloat16, torch.float16)


def apply() -> None:
    """Switch off autocast to narrow types, loss scaling and reduced-precision matrix products."""
    for kind in (torch.autocast, torch.amp.GradScaler):
        kind.__init__ = _switched_off(kind.__init__)
    torch.set_float32_matmul_precision("highest")
    torch.backends.cudnn.allow_tf32 = False


def _switched_off(original: Any) -> Any:
    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        if getattr(self, "fast_dtype", _NARROW[0]) in _NARROW:
            self._enabled = False

    return unseen(__init__)
