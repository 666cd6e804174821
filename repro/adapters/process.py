"""Run a command to its end, within a time, in the C locale."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["Completed", "Runner", "SubprocessRunner"]

_EXTRA_PATHS = ("/usr/lib/wsl/lib", "/opt/rocm/bin")
"""Where vendors put tools without telling PATH."""

_MAX_BYTES = 16 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Completed:
    """How a command ended, and what it wrote."""

    argv: tuple[str, ...]
    exit_code: int | None
    """As a shell says it: 127 for no such command, 126 for one that may not be run; null if killed."""
    stdout: bytes = b""
    stderr: bytes = b""
    ended: Literal["exited", "timed-out", "missing", "refused"] = "exited"


class Runner(Protocol):
    """Runs commands."""

    def which(self, name: str) -> str | None:
        """Return the path of a command, or None."""

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Completed:
        """Run to the end. Never raises for what a command does."""


class SubprocessRunner:
    """Fulfils `Runner` with real processes, each in a session of its own so that none outlives its time.

    Args:
        environment: what commands get beside the C locale.
    """

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        path = os.pathsep.join(filter(None, (given.get("PATH", os.defpath), *_EXTRA_PATHS)))
        self._environment = {**given, "PATH": path, "LC_ALL": "C", "PYTHONWARNINGS": "ignore"}

    def which(self, name: str) -> str | None:
        """Return the path of a command on PATH or where vendors put theirs, or None."""
        return shutil.which(name, path=self._environment["PATH"])

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Completed:
        """Run to the end, or end the whole process group when the time is over."""
        words = tuple(argv)
        try:
            process = subprocess.Popen(
                words,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except (FileNotFoundError, NotADirectoryError):
            return Completed(argv=words, exit_code=127, ended="missing")
        except OSError as error:
            return Completed(argv=words, exit_code=126, stderr=str(error.strerror).encode(), ended="refused")
        with process:
            try:
                stdout, stderr = process.communicate(timeout=timeout_s)
            except subprocess.TimeoutExpired:
                _end(process)
                stdout, stderr = process.communicate()
                return Completed(
                    argv=words,
                    exit_code=None,
                    stdout=stdout[:_MAX_BYTES],
                    stderr=stderr[:_MAX_BYTES],
                    ended="timed-out",
                )
        code = process.returncode
        return Completed(
            argv=words,
            exit_code=128 - code if code < 0 else code,
            stdout=stdout[:_MAX_BYTES],
            stderr=stderr[:_MAX_BYTES],
        )


def _end(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        process.kill()
