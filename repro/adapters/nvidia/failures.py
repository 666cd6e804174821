"""The ways in which `nvidia-smi` and NVML say that they have no answer."""

from __future__ import annotations

from repro.adapters.reading import refusal
from repro.host import NoAnswer, NoAnswerKind

__all__ = ["find_failure"]

_SENTENCES: tuple[tuple[str, NoAnswerKind], ...] = (
    (r"driver/library version mismatch", "driver-library-mismatch"),
    (r"couldn.t communicate with (?:the )?NVIDIA driver", "driver-not-loaded"),
    (r"NVML: driver not loaded|driver is not loaded", "driver-not-loaded"),
    (r"insufficient permissions", "permission-denied"),
    (r"NVML: unknown error|GPU access blocked by the operating system", "device-access-lost"),
    (
        r"couldn.t find libnvidia-ml|NVML: (?:shared )?library not found|NVML Shared Library Not Found",
        "library-missing",
    ),
    (r"unable to determine the device handle for gpu", "gpu-error-state"),
    (r"gpu is lost|gpu has fallen off the bus", "gpu-error-state"),
    (r"no devices (?:were )?found|no nvidia devices? (?:were )?found", "no-devices"),
    (
        r"command not found|is not recognized as|executable file not found"
        r"|nvidia-smi:? ?(?:not found|no such file)|no such file or directory: '?nvidia-smi",
        "tool-missing",
    ),
    (r"permission denied", "permission-denied"),
    (r"failed to (?:initialize|properly shut ?down) NVML", "tool-failed"),
    (r"is not a valid field to query|invalid combination of input arguments", "tool-failed"),
    (r"segmentation fault|core dumped|exec format error", "tool-failed"),
)


def find_failure(text: str, source: str) -> NoAnswer | None:
    """Return why a text of `nvidia-smi` holds no facts, or None where it names no reason."""
    return refusal(text, _SENTENCES, vendor="nvidia", source=source)
