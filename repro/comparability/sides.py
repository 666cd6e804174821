"""One side of a comparison, and its facts as text: None where a fact is unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Literal

from packaging.version import InvalidVersion, Version

from repro.host import AmdDriver, Device, HostFacts, NvidiaDriver, Partition

__all__ = [
    "Accelerator",
    "Read",
    "Side",
    "amd",
    "devices_division",
    "devices_model",
    "driver",
    "driver_family",
    "links",
    "listing",
    "nvidia",
    "of_cpu",
    "of_devices",
    "of_os",
    "of_userspace",
    "torch_devices",
    "torch_release",
]

Accelerator = Literal["cpu", "cuda", "rocm"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One of two runs: what its machine is, what it computed on, and the config digest of its image."""

    host: HostFacts
    accelerator: Accelerator
    image: str | None = None
    """None for a run without an image, which is a fact like any other."""

    def devices(self) -> tuple[Device, ...]:
        """Return the devices that this run can have used."""
        vendors = {"cuda": "nvidia", "rocm": "amd"}
        return tuple(device for device in self.host.devices if device.vendor == vendors.get(self.accelerator))


Read = Callable[[Side], str | None]


def _plural(values: Iterable[str | None]) -> str | None:
    """Return the different values there are, in order, or None where one is unknown or there is none."""
    found = set(values)
    if not found or None in found:
        return None
    return "; ".join(sorted(str(value) for value in found))


def _word(value: object) -> str | None:
    return None if value is None else str(value)


def of_devices(name: str) -> Read:
    """Return a reader of one member of every device."""
    return lambda side: _plural(_word(getattr(device, name)) for device in side.devices())


def of_userspace(name: str) -> Read:
    """Return a reader of what the run loaded."""
    return lambda side: _word(getattr(side.host.userspace, name))


def of_cpu(name: str) -> Read:
    """Return a reader of the processor."""

    def read(side: Side) -> str | None:
        value = getattr(side.host.cpu, name)
        return " ".join(value) if isinstance(value, tuple) else _word(value)

    return read


def of_os(name: str) -> Read:
    """Return a reader of the operating system."""
    return lambda side: _word(getattr(side.host.os, name))


def nvidia(side: Side) -> NvidiaDriver:
    """Return NVIDIA's driver, or one of which nothing is known."""
    return side.host.driver.nvidia or NvidiaDriver()


def amd(side: Side) -> AmdDriver:
    """Return AMD's driver, or one of which nothing is known."""
    return side.host.driver.amd or AmdDriver()


def driver(side: Side) -> str | None:
    """Return the version of the driver below the accelerator."""
    return (nvidia(side) if side.accelerator == "cuda" else amd(side)).version


def driver_family(side: Side) -> str | None:
    """Return the branch of the driver: NVIDIA's first number, AMD's first two."""
    version = driver(side)
    return None if version is None else ".".join(version.split(".")[: 1 if side.accelerator == "cuda" else 2])


def devices_model(side: Side) -> str | None:
    """Return names with architectures."""
    return _plural(
        " ".join(filter(None, (device.name or device.name_start, device.arch))) or None
        for device in side.devices()
    )


def devices_division(side: Side) -> str | None:
    """Return how devices are divided: `whole`, or modes and parts."""
    return _plural(_division(device) for device in side.devices())


_UNDIVIDED = (None, "SPX", "NPS1")
"""Modes in which a device is one: tools that know no modes say nothing else."""


def _division(device: Device) -> str:
    modes = [mode for mode in (device.compute_partition, device.memory_partition) if mode not in _UNDIVIDED]
    return " ".join((*filter(None, modes), *sorted(_part(part) for part in device.partitions))) or "whole"


def _part(part: Partition) -> str:
    return part.profile or (f"{part.memory_mib} MiB" if part.memory_mib else "part")


def torch_release(side: Side) -> str | None:
    """Return torch's release without the part that names a build."""
    try:
        return Version(side.host.userspace.torch or "").public
    except InvalidVersion:
        return None


def torch_devices(side: Side) -> str | None:
    """Return what torch saw, target features included."""
    found = side.host.userspace.devices or ()
    return _plural(" ".join(filter(None, (device.name, device.arch))) or None for device in found)


def listing(name: str) -> Read:
    """Return a reader of a mapping of the userspace."""

    def read(side: Side) -> str | None:
        values: Mapping[str, str | None] | None = getattr(side.host.userspace, name)
        return (
            None if values is None else "; ".join(f"{key}={value}" for key, value in sorted(values.items()))
        )

    return read


def links(side: Side) -> str | None:
    """Return every pair of devices and what joins it."""
    return _plural(f"{link.first}-{link.second} {link.kind}" for link in side.host.links)
