"""NVML's answers, as `nvml_dump.py` prints them."""

from __future__ import annotations

import json
from typing import Any, Literal

from repro.adapters import cells
from repro.adapters.nvidia import values
from repro.adapters.nvidia.failures import find_failure
from repro.adapters.reading import Reading, silent
from repro.host import Device, NvidiaDriver, Partition

__all__ = ["read_nvml"]

_VIRTUALIZATION = {0: "None", 1: "Pass-Through", 2: "VGPU", 3: "Host VGPU", 4: "Host VSGA"}
"""`nvmlGpuVirtualizationMode_t`."""


def read_nvml(text: str, source: str) -> Reading:
    """Read the JSON object of the dump."""
    try:
        tree = json.loads(text)
    except (ValueError, RecursionError):
        return silent("nvidia", source, "unreadable", "NVML's answer is cut short")
    if not isinstance(tree, dict) or "error" in tree:
        said = _text(tree, "error") or "no reason given"
        failure = find_failure(f"Failed to initialize NVML: {said}", source)
        return silent("nvidia", source, failure.kind if failure else "tool-failed", said)
    entries = [entry for entry in _list(tree, "devices") if isinstance(entry, dict)]
    if not entries:
        return silent("nvidia", source, "no-devices", "NVML counts no device")
    return Reading(
        source=source,
        nvidia=NvidiaDriver(
            version=cells.version(_text(tree, "driver")),
            cuda=_cuda(_number(tree, "cuda")),
        ),
        devices=tuple(_device(entry) for entry in entries),
    )


def _text(tree: Any, key: str) -> str | None:
    value = tree.get(key) if isinstance(tree, dict) else None
    return value if isinstance(value, str) else None


def _number(tree: dict[str, Any], key: str) -> int | None:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def _list(tree: dict[str, Any], key: str) -> list[Any]:
    value = tree.get(key)
    return value if isinstance(value, list) else []


def _cuda(number: int | None) -> str | None:
    """Return `12.4` for NVML's 12040."""
    return f"{number // 1000}.{number % 1000 // 10}" if number else None


def _enabled(value: Any) -> bool | None:
    """Return the current one of NVML's pair of current and pending, or a lone switch."""
    current = value[0] if isinstance(value, list) and value else value
    return bool(current) if isinstance(current, int) else None


def _arch(value: Any) -> str | None:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, int) for part in value)):
        return None
    return f"sm_{value[0]}{value[1]}"


def _device(entry: dict[str, Any]) -> Device:
    name = cells.known(_text(entry, "name"))
    memory = _number(entry, "memory_bytes")
    state: Literal["error"] | None = "error" if "error" in entry else None
    return Device(
        vendor="nvidia",
        index=_number(entry, "index"),
        name=name,
        arch=_arch(entry.get("capability")),
        memory_mib=None if memory is None else memory >> 20,
        pci=cells.pci_address(_text(entry, "pci")),
        id=cells.known(_text(entry, "uuid")),
        state=state,
        mig=_enabled(entry.get("mig")),
        ecc=_enabled(entry.get("ecc")),
        virtualization=_VIRTUALIZATION.get(mode)
        if (mode := _number(entry, "virtualization")) is not None
        else None,
        vbios=values.vbios(_text(entry, "vbios")),
        persistence=_enabled(entry.get("persistence")),
        power_limit_mw=_number(entry, "power_limit_mw"),
        pcie_generation=_number(entry, "pcie_generation"),
        pcie_width=_number(entry, "pcie_width"),
        partitions=tuple(
            _mig(part, place)
            for place, part in enumerate(_list(entry, "mig_devices"))
            if isinstance(part, dict)
        ),
    )


def _mig(entry: dict[str, Any], place: int) -> Partition:
    name = cells.known(_text(entry, "name")) or ""
    memory = _number(entry, "memory_bytes")
    return Partition(
        kind="mig",
        index=place,
        profile=cells.known(name.rpartition("MIG ")[2]) if "MIG " in name else None,
        memory_mib=None if memory is None else memory >> 20,
        compute_units=_number(entry, "multiprocessors"),
        gpu_instance=_number(entry, "gpu_instance"),
        compute_instance=_number(entry, "compute_instance"),
        id=cells.known(_text(entry, "uuid")),
    )
