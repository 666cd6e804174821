"""Values that several of NVIDIA's outputs write alike."""

from __future__ import annotations

import re
from typing import Literal

from repro.adapters import cells

__all__ = ["device_id", "state_of", "vbios"]

_DEVICE_ID = re.compile(r"(?:0[xX])?([0-9A-Fa-f]{4})10[dD][eE]")


def device_id(text: str | None) -> str | None:
    """Return the PCI device id of NVIDIA's eight digits: device, then vendor."""
    match = _DEVICE_ID.fullmatch((text or "").strip())
    return f"0x{match[1].lower()}" if match else None


def state_of(name: str | None) -> Literal["error"] | None:
    """Return `error` where a device cries for help instead of giving its name."""
    return "error" if cells.is_error(name) else None


def vbios(text: str | None) -> str | None:
    """Return a VBIOS version in one case; Linux and Windows differ."""
    value = cells.known(text)
    return value.upper() if value else None
