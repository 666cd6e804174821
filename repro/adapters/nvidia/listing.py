"""`nvidia-smi -L` and `--version`, and the kernel's own `/proc/driver/nvidia/version`."""

from __future__ import annotations

import re

from repro.adapters import cells
from repro.adapters.nvidia import values
from repro.adapters.reading import Reading
from repro.host import Device, NvidiaDriver, Partition

__all__ = ["read_listing", "read_proc_version", "read_toolkit", "read_versions"]

_GPU = re.compile(r"GPU ([0-9]{1,3}): (.+?)(?: \(UUID: ([^)]*)\))?")
_MIG = re.compile(r"\s+MIG (\S+)\s+Device\s+([0-9]{1,3}): \(UUID: ([^)]*)\)")
_VERSION_LINE = re.compile(r"(NVIDIA-SMI|NVML|DRIVER|KMD|CUDA UMD|CUDA) version\s*: (.*)", re.IGNORECASE)
_PROC = re.compile(r"NVRM version: NVIDIA UNIX (.*?)Kernel Module(?: for \S+)?\s+([0-9.]+)\s.*")
_TOOLKIT = re.compile(r"(?:NVIDIA Container Toolkit CLI|cli-)\s*version:?\s*([0-9][0-9.]*\S*)", re.IGNORECASE)


def read_listing(text: str, source: str) -> Reading:
    """Read `nvidia-smi -L`: whole names, and MIG devices with their profiles."""
    devices: list[Device] = []
    for line in cells.complete_lines(text):
        if match := _GPU.fullmatch(line.rstrip()):
            devices.append(
                Device(
                    vendor="nvidia",
                    index=int(match[1]),
                    name=cells.known(match[2]),
                    id=cells.known(match[3]),
                    state=values.state_of(match[2]),
                )
            )
        elif devices and (match := _MIG.fullmatch(line.rstrip())):
            part = Partition(
                kind="mig", index=int(match[2]), profile=cells.known(match[1]), id=cells.known(match[3])
            )
            owner = devices[-1]
            devices[-1] = owner.model_copy(update={"partitions": (*owner.partitions, part), "mig": True})
    return Reading(source=source, devices=tuple(devices))


def read_versions(text: str, source: str) -> Reading:
    """Read `nvidia-smi --version`. NVML's version is shorter than the driver's and is not the driver's."""
    found: dict[str, str | None] = {}
    for line in cells.complete_lines(text):
        if match := _VERSION_LINE.fullmatch(line.strip()):
            found.setdefault(match[1].casefold(), cells.version(match[2]))
    driver = found.get("kmd") or found.get("driver")
    cuda = found.get("cuda umd") or found.get("cuda")
    return Reading(
        source=source,
        nvidia=NvidiaDriver(
            version=driver,
            cuda=cuda,
            smi_version=found.get("nvidia-smi"),
            nvml_version=found.get("nvml"),
        ),
    )


def read_proc_version(text: str, source: str) -> Reading:
    """Read the loaded kernel module's version and flavour."""
    for line in cells.complete_lines(text):
        if match := _PROC.fullmatch(line):
            version = cells.version(match[2])
            return Reading(
                source=source,
                nvidia=NvidiaDriver(
                    version=version, kernel_module="open" if "Open" in match[1] else "proprietary"
                ),
            )
    return Reading(source=source)


def read_toolkit(text: str, source: str) -> Reading:
    """Read `nvidia-ctk --version` or `nvidia-container-cli --version`."""
    for line in cells.complete_lines(text):
        if match := _TOOLKIT.match(line.strip()):
            return Reading(source=source, nvidia=NvidiaDriver(container_toolkit=cells.known(match[1])))
    return Reading(source=source)
