"""The head of a trace: what the process runs on."""

from __future__ import annotations

import hashlib
import os
import re
import sys
from typing import Any

import torch

from . import determinism, digest
from .emit import FORMAT
from .measure import accelerator
from .parts import raw_bytes
from .settings import Settings

__all__ = ["head", "place"]

_PROBE_SEED = 20260101
_PROBE_ELEMENTS = {"cpu": 1 << 14}
_PROBE_ELEMENTS_DEVICE = 1 << 22
"""More than one wave of threads on any device: where the mapping of numbers to elements begins to differ."""


def place() -> tuple[int, int]:
    """Return rank and world size: of the process group if there is one, else of the environment."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        return torch.distributed.get_rank(), torch.distributed.get_world_size()
    return _number("RANK", 0), _number("WORLD_SIZE", 1)


def _number(name: str, default: int) -> int:
    text = os.environ.get(name, "")
    return int(text) if text.isdecimal() else default


def _stack() -> dict[str, Any]:
    cudnn = torch.backends.cudnn
    started = accelerator() is not None
    return {
        "version": str(torch.__version__),
        "git": torch.version.git_version,
        "cuda": torch.version.cuda,
        "hip": torch.version.hip,
        "cudnn": str(cudnn.version()) if started and cudnn.is_available() else None,
        "nccl": _nccl(),
        "config": hashlib.sha256(torch.__config__.show().encode("utf-8")).hexdigest(),
        "capability": torch.backends.cpu.get_cpu_capability(),
        "threads": torch.get_num_threads(),
        "interop_threads": torch.get_num_interop_threads(),
    }


def _nccl() -> str | None:
    """Return the version of NCCL, or of RCCL where torch is built for ROCm."""
    if accelerator() is not torch.cuda:
        return None
    try:
        return ".".join(map(str, torch.cuda.nccl.version()))
    except (AttributeError, RuntimeError):
        return None


def _devices() -> list[dict[str, Any]]:
    module = accelerator()
    if module is None:
        return []
    found = []
    for at in range(module.device_count()):
        properties = module.get_device_properties(at)
        arch = getattr(properties, "gcnArchName", None) or _capability(properties)
        found.append({"name": properties.name, "arch": arch, "memory_bytes": int(properties.total_memory)})
    return found


def _capability(properties: Any) -> str | None:
    if not hasattr(properties, "major"):
        return None
    return f"sm_{properties.major}{properties.minor}"


def _probe() -> dict[str, str]:
    """Digest numbers that private generators draw on each kind of started device."""
    module = accelerator()
    devices = [torch.device("cpu")]
    if module is not None:
        devices += [torch.device(module.__name__.rpartition(".")[2], module.current_device())]
    found = {}
    for device in devices:
        size = _PROBE_ELEMENTS.get(device.type, _PROBE_ELEMENTS_DEVICE)
        generator = torch.Generator(device)
        generator.manual_seed(_PROBE_SEED)
        state = hashlib.sha256()
        options = {"generator": generator, "dtype": torch.float32, "device": device}
        state.update(raw_bytes(torch.rand(size, **options).cpu()))
        state.update(raw_bytes(torch.randn(size, **options).cpu()))
        coins = torch.full((size,), 0.25, dtype=torch.float32, device=device)
        state.update(raw_bytes(torch.bernoulli(coins, generator=generator).cpu()))
        found[device.type] = state.hexdigest()
    return found


_RECORDER = digest()

_SECRET = re.compile(r"(?i)token|secret|passw|credential|api[_-]?key")


def _words() -> list[str]:
    """The command line, without what an option for a secret says."""
    words, hide = [], False
    for word in getattr(sys, "argv", []):
        option, equals, _ = word.partition("=")
        secret = word.startswith("-") and _SECRET.search(option) is not None
        words.append("[hidden]" if hide else f"{option}=[hidden]" if secret and equals else word)
        hide = secret and not equals
    return words


def head(settings: Settings) -> dict[str, Any]:
    """Describe this process as it is now."""
    rank, world = place()
    return {
        "ev": "head",
        "format": FORMAT,
        "rank": rank,
        "world": world,
        "local_rank": _number("LOCAL_RANK", 0),
        "recorder": _RECORDER,
        "nonce": settings.nonce,
        "pid": os.getpid(),
        "argv": _words(),
        "python": sys.version.split()[0],
        "every": settings.every,
        "level": settings.level,
        "seed": settings.seed,
        "perturb": settings.perturb or None,
        "probe": settings.probe or None,
        "torch": _stack(),
        "devices": _devices(),
        "knobs": determinism.read(),
        "rng_probe": _probe(),
    }
