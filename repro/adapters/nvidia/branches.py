"""Which CUDA version a driver branch came with.

Source: the release notes of each CUDA toolkit, table of driver versions, and
what `nvidia-smi` of that branch shows without a compat layer.
"""

from __future__ import annotations

__all__ = ["is_newer", "native_cuda"]

_NATIVE = {
    384: "9.0", 387: "9.1", 390: "9.1", 396: "9.2", 410: "10.0", 418: "10.1", 430: "10.2", 435: "10.1",
    440: "10.2", 445: "11.0", 450: "11.0", 455: "11.1", 460: "11.2", 465: "11.3", 470: "11.4", 495: "11.5",
    510: "11.6", 515: "11.7", 520: "11.8", 525: "12.0", 530: "12.1", 535: "12.2", 545: "12.3", 550: "12.4",
    555: "12.5", 560: "12.6", 565: "12.7", 570: "12.8", 575: "12.9", 580: "13.0", 590: "13.1", 610: "13.3",
}  # fmt: skip
_REACH = 4
"""Windows drivers of one branch carry numbers up to this far above it."""


def native_cuda(driver: str | None) -> str | None:
    """Return the CUDA version of a driver's own branch, or None for a branch that is not listed."""
    major = (driver or "").split(".")[0]
    if not (major.isascii() and major.isdigit() and len(major) <= 4):
        return None
    branch = max((known for known in _NATIVE if known <= int(major)), default=None)
    return _NATIVE[branch] if branch is not None and int(major) - branch <= _REACH else None


def _ordered(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split("."))


def is_newer(cuda: str, native: str) -> bool:
    """Say whether a CUDA version is newer than the driver's own: a compat layer was loaded."""
    return _ordered(cuda) > _ordered(native)
