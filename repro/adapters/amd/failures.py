"""The ways in which AMD's tools say that they have no answer."""

from __future__ import annotations

from repro.adapters.reading import refusal
from repro.host import NoAnswer, NoAnswerKind

__all__ = ["find_failure"]

_SENTENCES: tuple[tuple[str, NoAnswerKind], ...] = (
    (r"amdgpu not found in modules|driver not initialized|ROCk module is NOT loaded", "driver-not-loaded"),
    (r"AMDSMI_STATUS_(?:NO_DRV|DRIVER_NOT_LOADED)", "driver-not-loaded"),
    (
        r"/dev/(?:kfd|dri)\S*.*permission denied|AMDSMI_STATUS_NO_PERM|RSMI_STATUS_PERMISSION"
        r"|missing the following required groups|not (?:a )?member of (?:the )?\S*(?:render|video)",
        "permission-denied",
    ),
    (r"unable to open /dev/kfd|failed to open /dev/kfd", "device-access-lost"),
    (
        r"no AMD GPUs specified|unable to detect any GPU devices"
        r"|no (?:AMD )?GPU(?: device)?s? (?:were )?(?:found|detected|available)",
        "no-devices",
    ),
    (r"(?:libamd_smi|librocm_smi64|libhsa-runtime64)\S*.*(?:cannot open|not found)", "library-missing"),
    (
        r"command not found|is not recognized as|executable file not found"
        r"|(?:amd-smi|rocm-smi|rocminfo):? ?(?:not found|no such file)"
        r"|no such file or directory: '?(?:amd-smi|rocm-smi|rocminfo)",
        "tool-missing",
    ),
    (r"HSA_STATUS_ERROR|hsa api call failure|AMDSMI_STATUS_\w+|RSMI_STATUS_\w+", "tool-failed"),
    (r"Traceback \(most recent call last\)|segmentation fault|core dumped", "tool-failed"),
)


def find_failure(text: str, source: str) -> NoAnswer | None:
    """Return why a text of AMD's tools lists no device, or None where it names no reason."""
    return refusal(text, _SENTENCES, vendor="amd", source=source)
