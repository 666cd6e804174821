"""Ask NVML and print its answers as one JSON object.

Runs as a process of its own, by path: NVML may hang on a device in error, and a
process can be ended. It imports nothing but the standard library and `pynvml`.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def _ask(nvml: Any, name: str, *arguments: Any) -> Any:
    """Return what one call answers, or None where this driver, device or library has no answer."""
    try:
        value = getattr(nvml, name)(*arguments)
    except (nvml.NVMLError, AttributeError):
        return None
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _attribute(value: Any, name: str) -> Any:
    found = getattr(value, name, None)
    return found.decode("utf-8", "replace") if isinstance(found, bytes) else found


def _common(nvml: Any, handle: Any) -> dict[str, Any]:
    return {
        "name": _ask(nvml, "nvmlDeviceGetName", handle),
        "uuid": _ask(nvml, "nvmlDeviceGetUUID", handle),
        "memory_bytes": _attribute(_ask(nvml, "nvmlDeviceGetMemoryInfo", handle), "total"),
    }


def _mig(nvml: Any, handle: Any) -> dict[str, Any]:
    attributes = _ask(nvml, "nvmlDeviceGetAttributes_v2", handle)
    return {
        **_common(nvml, handle),
        "gpu_instance": _ask(nvml, "nvmlDeviceGetGpuInstanceId", handle),
        "compute_instance": _ask(nvml, "nvmlDeviceGetComputeInstanceId", handle),
        "multiprocessors": _attribute(attributes, "multiprocessorCount"),
    }


def _device(nvml: Any, index: int) -> dict[str, Any]:
    try:
        handle = nvml.nvmlDeviceGetHandleByIndex(index)
    except nvml.NVMLError as error:
        return {"index": index, "error": str(error)}
    slots = _ask(nvml, "nvmlDeviceGetMaxMigDeviceCount", handle) or 0
    parts = [_ask(nvml, "nvmlDeviceGetMigDeviceHandleByIndex", handle, slot) for slot in range(slots)]
    return {
        "index": index,
        **_common(nvml, handle),
        "pci": _attribute(_ask(nvml, "nvmlDeviceGetPciInfo", handle), "busId"),
        "capability": _ask(nvml, "nvmlDeviceGetCudaComputeCapability", handle),
        "mig": _ask(nvml, "nvmlDeviceGetMigMode", handle),
        "ecc": _ask(nvml, "nvmlDeviceGetEccMode", handle),
        "persistence": _ask(nvml, "nvmlDeviceGetPersistenceMode", handle),
        "power_limit_mw": _ask(nvml, "nvmlDeviceGetPowerManagementLimit", handle),
        "vbios": _ask(nvml, "nvmlDeviceGetVbiosVersion", handle),
        "virtualization": _ask(nvml, "nvmlDeviceGetVirtualizationMode", handle),
        "pcie_generation": _ask(nvml, "nvmlDeviceGetMaxPcieLinkGeneration", handle),
        "pcie_width": _ask(nvml, "nvmlDeviceGetMaxPcieLinkWidth", handle),
        "mig_devices": [_mig(nvml, part) for part in parts if part is not None],
    }


def dump(nvml: Any) -> dict[str, Any]:
    """Return what NVML says; `error` alone where it cannot be initialised."""
    try:
        nvml.nvmlInit()
    except nvml.NVMLError as error:
        return {"error": str(error)}
    try:
        return {
            "driver": _ask(nvml, "nvmlSystemGetDriverVersion"),
            "cuda": _ask(nvml, "nvmlSystemGetCudaDriverVersion_v2"),
            "devices": [_device(nvml, index) for index in range(_ask(nvml, "nvmlDeviceGetCount") or 0)],
        }
    finally:
        _ask(nvml, "nvmlShutdown")


if __name__ == "__main__":
    import pynvml

    json.dump(dump(pynvml), sys.stdout)
    sys.stdout.write("\n")
