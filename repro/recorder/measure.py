"""State of random generators, memory and time, read without disturbing them."""

from __future__ import annotations

import hashlib
import random
import sys
from array import array
from typing import Any

import torch

from .parts import raw_bytes

__all__ = ["accelerator", "memory", "rng"]

_DIGITS = 32


def accelerator() -> Any:
    """Return the module of the accelerator that was started (`torch.cuda`, `torch.xpu`), or None."""
    for name in ("cuda", "xpu"):
        module = getattr(torch, name, None)
        if module is not None and module.is_initialized():
            return module
    return None


def _short(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()[:_DIGITS]


def rng() -> dict[str, str]:
    """Digest the state of every global generator; reading draws nothing."""
    version, internal, gauss = random.getstate()
    state = {
        "python": _short(array("Q", internal).tobytes() + repr((version, gauss)).encode("ascii")),
        "torch": _short(raw_bytes(torch.default_generator.get_state())),
    }
    numpy = sys.modules.get("numpy.random")
    if numpy is not None:
        legacy = numpy.get_state()
        if isinstance(legacy, tuple):
            state["numpy"] = _short(legacy[1].tobytes() + repr(tuple(map(str, legacy[2:]))).encode("ascii"))
    module = accelerator()
    if module is not None:
        for at, generator in enumerate(module.default_generators):
            state[f"{module.__name__.rpartition('.')[2]}:{at}"] = _short(raw_bytes(generator.get_state()))
    return state


def _rss_peak() -> int | None:
    try:
        import resource
    except ImportError:
        return None
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return int(peak) * (1 if sys.platform == "darwin" else 1024)


def memory() -> dict[str, int | None]:
    """Peaks so far in bytes: of the process, and of the accelerators' allocator over all devices used."""
    allocated = reserved = None
    module = accelerator()
    if module is not None:
        devices = range(module.device_count())
        allocated = sum(module.max_memory_allocated(at) for at in devices)
        reserved = sum(module.max_memory_reserved(at) for at in devices)
    return {
        "rss_peak_bytes": _rss_peak(),
        "allocated_peak_bytes": allocated,
        "reserved_peak_bytes": reserved,
    }
