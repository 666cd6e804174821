"""Wheel tags and markers of the machine that wheels are chosen for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from packaging.tags import Tag, compatible_tags, cpython_tags

from repro.errors import LockError
from repro.lock import Platform

__all__ = ["tags", "target"]

_OLD_NAMES = {17: "manylinux2014", 12: "manylinux2010", 5: "manylinux1"}
"""Perennial manylinux (PEP 600) names the glibc; these are the names for the same that came before it."""


def _libc_tags(libc: str, architecture: str) -> Iterator[str]:
    family, _, version = libc.partition(" ")
    major, _, minor = version.partition(".")
    if family == "musl":
        yield from (f"musllinux_{major}_{m}_{architecture}" for m in range(int(minor), -1, -1))
        return
    # PEP 600: only the two x86 machines have wheels for a glibc older than 2.17.
    oldest = 5 if architecture in ("x86_64", "i686") else 17
    for m in range(int(minor), oldest - 1, -1):
        yield f"manylinux_{major}_{m}_{architecture}"
        if m in _OLD_NAMES:
            yield f"{_OLD_NAMES[m]}_{architecture}"


def target(platform: Platform) -> dict[str, Any]:
    """Return a platform's Python version (full where known), wheel tags, best first, and marker values.

    Raises:
        LockError: kind `platform-unsupported`.
    """
    if platform.os != "linux" or platform.libc is None:
        raise LockError(
            "platform-unsupported",
            f"wheels can be chosen for Linux with a known C library, not for {platform.os}",
        )
    full = platform.python_full or f"{platform.python}.0"
    return {
        "python": platform.python_full or platform.python,
        "platforms": [*_libc_tags(platform.libc, platform.architecture), f"linux_{platform.architecture}"],
        "markers": {
            "implementation_name": "cpython",
            "implementation_version": full,
            "os_name": "posix",
            "platform_machine": platform.architecture,
            "platform_python_implementation": "CPython",
            "platform_release": "",
            "platform_system": "Linux",
            "platform_version": "",
            "python_full_version": full,
            "python_version": platform.python,
            "sys_platform": "linux",
        },
    }


def tags(platform: Platform) -> list[Tag]:
    """Return every tag that a wheel for the platform may have, best first.

    Raises:
        LockError: kind `platform-unsupported`.
    """
    major, minor = (int(part) for part in platform.python.split("."))
    platforms = target(platform)["platforms"]
    interpreter = f"cp{major}{minor}"
    return [
        *cpython_tags((major, minor), [interpreter], platforms),
        *compatible_tags((major, minor), interpreter, platforms),
    ]
