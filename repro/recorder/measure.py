"""State of random generators, memory and time, read without disturbing them."""

from __future__ import annotations

import hashlib
import os
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


def _rss() -> int | None:
    try:
        with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return None


def _device_used(module: Any, device: int) -> int | None:
    """Bytes in use on a device by all processes: as NVML or amdsmi say, else as the driver says."""
    try:
        return int(module.device_memory_used(device))
    except (ImportError, AttributeError, RuntimeError, OSError):
        pass
    try:
        free, total = module.mem_get_info(device)
    except (AttributeError, RuntimeError):
        return None
    return int(total - free)


def memory() -> dict[str, int | None]:
    """Bytes: of this process now and at most, and of the devices that its allocator holds memory of.

    Peaks are those since the program started, or since it reset them itself.
    """
    found: dict[str, int | None] = {"rss_bytes": _rss(), "rss_peak_bytes": _rss_peak()}
    found |= dict.fromkeys(
        ("allocated_peak_bytes", "reserved_peak_bytes", "reserved_bytes", "device_used_bytes")
    )
    module = accelerator()
    if module is not None:
        # A look at a device that the program does not use would start it.
        devices = [at for at in range(module.device_count()) if module.max_memory_reserved(at)]
        used = [_device_used(module, at) for at in devices]
        found |= {
            "allocated_peak_bytes": sum(module.max_memory_allocated(at) for at in devices),
            "reserved_peak_bytes": sum(module.max_memory_reserved(at) for at in devices),
            "reserved_bytes": sum(module.memory_reserved(at) for at in devices),
            "device_used_bytes": None if None in used else sum(filter(None, used)),
        }
    return found
