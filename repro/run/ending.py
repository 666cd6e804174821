"""How a job ended, as a named error: time, memory, a signal, or its own exit code."""

from __future__ import annotations

import re
import signal

from repro.errors import RunError
from repro.job import JobResult

__all__ = ["require_success"]

_BY_SIGNAL = 128

_SIGNALS = {
    signal.SIGABRT: "a native library gave up; its words are among the last lines",
    signal.SIGBUS: "raise limits.shm in repro.yaml: data loaders and process groups share memory there",
    signal.SIGFPE: "a native library divided by zero; its words may be among the last lines",
    signal.SIGILL: "this processor lacks an instruction that a package was built for",
    signal.SIGINT: "somebody interrupted it",
    signal.SIGKILL: "somebody killed it, or the machine itself ran out of memory: see the kernel's log",
    signal.SIGSEGV: "a native library read where it must not; PYTHONFAULTHANDLER=1 shows where",
    signal.SIGTERM: "somebody asked it to end",
}
"""What each signal usually means, and what to do."""

_DEVICE_MEMORY = re.compile(r"\b(CUDA|HIP) out of memory\b")
_SHARED_MEMORY = re.compile(r"insufficient shared memory|killed by signal: Bus error", re.IGNORECASE)


def require_success(phase: str, result: JobResult) -> None:
    """Return where a job ended well.

    Raises:
        RunError: `pilot-timeout`, `pilot-out-of-memory`, `pilot-out-of-device-memory`,
            `pilot-out-of-shared-memory`, `pilot-killed` where a signal ended it, `pilot-failed`.
    """
    if result.ended == "exited" and result.exit_code == 0:
        return
    kind, what, remedy = _ending(result)
    tail = "\n  ".join(result.tail)
    said = f"; its last lines were:\n  {tail}" if tail else ""
    raise RunError(kind, f"the pilot {what}{said}", where=f"phase {phase}", remedy=remedy)


def _ending(result: JobResult) -> tuple[str, str, str]:
    """Return kind, sentence and remedy."""
    if result.ended == "timeout":
        return (
            "pilot-timeout",
            f"was stopped after {result.seconds:.0f} s, with all its processes",
            "raise pilot.timeout in repro.yaml, or find out what the pilot waits for",
        )
    if result.ended == "oom":
        return (
            "pilot-out-of-memory",
            "ran out of memory",
            "raise limits.memory in repro.yaml, or make the micro-batch smaller",
        )
    tail = "\n".join(result.tail)
    if found := _DEVICE_MEMORY.search(tail):
        device = "NVIDIA" if found[1] == "CUDA" else "AMD"
        return (
            "pilot-out-of-device-memory",
            f"needed more memory than the {device} GPU has",
            "make the micro-batch smaller, or see what else uses the device",
        )
    if _SHARED_MEMORY.search(tail) or result.exit_code == _BY_SIGNAL + signal.SIGBUS:
        return "pilot-out-of-shared-memory", "ran out of shared memory", _SIGNALS[signal.SIGBUS]
    try:
        number = signal.Signals(result.exit_code - _BY_SIGNAL)
    except ValueError:
        return (
            "pilot-failed",
            f"exited with {result.exit_code}",
            "mend the pilot; `repro run -- COMMAND` runs any command in the same image",
        )
    return (
        "pilot-killed",
        f"was ended by {number.name}, as its exit code {result.exit_code} says",
        _SIGNALS.get(number, "find out who sent that signal"),
    )
