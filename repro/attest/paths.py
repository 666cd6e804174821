"""Names of signed files: one spelling, safe on every system, straight down."""

from __future__ import annotations

import re

from repro.errors import TrustError

__all__ = ["check_name"]

MAX_LENGTH = 240
_SEGMENT = re.compile(r"[A-Za-z0-9_](?:[A-Za-z0-9._+@-]*[A-Za-z0-9_+@-])?")
_DEVICE = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def check_name(name: str) -> None:
    """Refuse a name that could mean another file somewhere: links up, roots, devices, streams, look-alikes.

    Raises:
        TrustError: kind `E_PATH`.
    """
    segments = name.split("/")
    if len(name) > MAX_LENGTH:
        raise TrustError("E_PATH", f"a signed file's name has {len(name)} characters", where=ascii(name[:40]))
    for segment in segments:
        if not _SEGMENT.fullmatch(segment) or _DEVICE.fullmatch(segment):
            raise TrustError("E_PATH", "a signed file's name is not plain", where=ascii(name))
