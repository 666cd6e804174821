"""What `amdgpu` itself shows in sysfs: the module, and one folder a device. No tool is needed for it."""

from __future__ import annotations

from collections.abc import Mapping

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.reading import Reading
from repro.host import AmdDriver, Device

__all__ = ["CARD_FILES", "read_cards", "read_module"]

CARD_FILES = (
    "vendor",
    "device",
    "unique_id",
    "vbios_version",
    "numa_node",
    "mem_info_vram_total",
    "current_compute_partition",
    "current_memory_partition",
)
_RANK = 3


def read_module(files: Mapping[str, str] | None, kernel: str | None, source: str = "sysfs") -> Reading:
    """Read `/sys/module/amdgpu`: `version` is there where the driver was installed apart from the kernel.

    Args:
        files: texts of `version` and `initstate` where they are; None where there is no such folder.
        kernel: the running kernel's release, which is the version of its own driver.
    """
    if files is None:
        return Reading(source=source, rank=_RANK)
    version = values.release(files.get("version"))
    if version:
        return Reading(source=source, rank=_RANK, amd=AmdDriver(version=version, origin="module"))
    origin = "in-tree" if "initstate" in files else "built-in"
    return Reading(source=source, rank=_RANK, amd=AmdDriver.parse({"version": kernel, "origin": origin}))


def read_cards(cards: Mapping[str, Mapping[str, str]], source: str = "sysfs drm") -> Reading:
    """Read device folders by their PCI address; those of other vendors are left aside."""
    devices = [
        _device(address, files)
        for address, files in sorted(cards.items())
        if (files.get("vendor") or "").strip() == "0x1002"
    ]
    return Reading(source=source, rank=_RANK, devices=tuple(devices) or None)


def _device(address: str, files: Mapping[str, str]) -> Device:
    compute = (files.get("current_compute_partition") or "").strip()
    memory = (files.get("current_memory_partition") or "").strip()
    vbios = cells.known(files.get("vbios_version"))
    return Device(
        vendor="amd",
        memory_mib=cells.megabytes(files.get("mem_info_vram_total"), "B"),
        pci=cells.pci_address(address),
        pci_device_id=values.device_id(files.get("device")),
        id=values.unique_id(files.get("unique_id")),
        compute_partition=compute if values.COMPUTE_PARTITION.fullmatch(compute) else None,
        memory_partition=memory if values.MEMORY_PARTITION.fullmatch(memory) else None,
        virtualization=values.virtualization(vbios),
        vbios=vbios,
        numa_node=cells.integer(files.get("numa_node")),
    )
