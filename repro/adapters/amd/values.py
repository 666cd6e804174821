"""Values that several of AMD's outputs write alike."""

from __future__ import annotations

import re
from typing import Literal

from repro.adapters import cells

__all__ = [
    "COMPUTE_PARTITION",
    "MEMORY_PARTITION",
    "address",
    "arch",
    "device_id",
    "driver",
    "gfx_of_number",
    "name",
    "partition_of",
    "release",
    "unique_id",
    "virtualization",
]

COMPUTE_PARTITION = re.compile(r"SPX|DPX|TPX|QPX|CPX")
MEMORY_PARTITION = re.compile(r"NPS[1248]")

_ARCH = re.compile(r"gfx[0-9]{1,2}[0-9a-f]{2}")
_RELEASE = re.compile(r"[0-9]{1,4}(?:\.[0-9]{1,9}){1,3}(?:[-+~.][0-9A-Za-z.+~_-]{1,60})?")
_KERNEL_BANNER = re.compile(r"Linux ?version ?([0-9]{1,2}\.[0-9]{1,3}[^\s(]{0,60})[\s(]")
_KERNEL_RELEASE = re.compile(r"[^-]+-.*[A-Za-z].*")
"""Kernels carry a name behind the hyphen, packages of the driver only numbers."""
_DEVICE_NUMBER = re.compile(r"0[xX]([0-9a-fA-F]{1,4})")
_UNIQUE = re.compile(r"(?:0[xX]|GPU-)?([0-9a-fA-F]{8,16})")


def arch(text: str | None) -> str | None:
    """Return `gfx942`, or None."""
    value = (cells.known(text) or "").casefold()
    return value if _ARCH.fullmatch(value) else None


def gfx_of_number(number: int) -> str | None:
    """Return the target of kfd's `gfx_target_version`: two digits each, as 90010 is gfx90a.

    Source: `hsaKmtGetNodeProperties` of the ROCm thunk; minor and stepping become
    hex digits.
    """
    major, minor, step = number // 10000, number // 100 % 100, number % 100
    if not (1 <= major <= 99 and minor <= 15 and step <= 15):
        return None
    return f"gfx{major}{minor:x}{step:x}"


def release(text: str | None) -> str | None:
    """Return a version with an optional build, such as `26.1.0+b5522cc8`, or None."""
    value = cells.known(text) or ""
    return value if _RELEASE.fullmatch(value) else None


def driver(text: str | None) -> tuple[str | None, Literal["in-tree"] | None]:
    """Return a driver's version, and `in-tree` where the text is the kernel's own banner or release."""
    value = cells.known(text)
    if value is None:
        return None, None
    if value.startswith("Linux"):
        banner = _KERNEL_BANNER.match(value)
        return (banner[1] if banner else None), "in-tree"
    version = release(value)
    return version, "in-tree" if version and _KERNEL_RELEASE.fullmatch(version) else None


def device_id(text: str | None) -> str | None:
    """Return `0x74a1`, or None."""
    match = _DEVICE_NUMBER.fullmatch(cells.known(text) or "")
    return f"0x{match[1].lower():0>4}" if match else None


def unique_id(text: str | None) -> str | None:
    """Return a device's 64-bit id as 16 hex digits, however a tool writes it, or None."""
    match = _UNIQUE.fullmatch(cells.known(text) or "")
    return f"{match[1].lower():0>16}" if match else None


def name(*texts: str | None) -> str | None:
    """Return the first text that is a name and no number or code name."""
    for text in texts:
        value = cells.known(text)
        if value and not value.startswith(("0x", "0X")) and value.casefold() != "ip discovery":
            return value
    return None


def address(domain: int, place: int) -> str:
    """Return the PCI address of kfd's `location_id`: bus, device and function in its low 16 bits."""
    return f"{domain & 0xFFFFFFFF:04x}:{place >> 8 & 255:02x}:{place >> 3 & 31:02x}.{place & 7:x}"


def partition_of(place: int) -> int:
    """Return which part of a device a `location_id` names: in bits 28 to 31, or in the function."""
    return place >> 28 & 15 or place & 7


def virtualization(*texts: str | None) -> str | None:
    """Return `SR-IOV VF` where a VBIOS or board name says that the device is a virtual function."""
    return "SR-IOV VF" if any("SRIOV" in (text or "").upper() for text in texts) else None
