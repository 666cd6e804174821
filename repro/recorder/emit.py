"""Appends events to this process's trace file, a line at a time."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable, Mapping
from typing import Any

__all__ = ["FORMAT", "Writer", "encode", "hexed"]

FORMAT = "repro-trace/1"


def hexed(value: float) -> str:
    """Write a float so that it comes back bit for bit."""
    return float(value).hex()


def encode(event: Mapping[str, Any]) -> bytes:
    """Encode one event as a line of the trace."""
    text = json.dumps(event, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)
    return text.encode("ascii") + b"\n"


class Writer:
    """The file `proc-<rank or x>-<pid>.jsonl` of this process.

    Opened at the first event, and anew in a forked child. Each line is one
    append, so that a crash cuts off at most the line being written.
    """

    def __init__(self, folder: str, head: Callable[[], Mapping[str, Any]]) -> None:
        self._folder = folder
        self._head = head
        self._lock = threading.RLock()
        self._handle = -1
        self._pid = 0

    def write(self, event: Mapping[str, Any]) -> None:
        """Append one event, after a head where the file is new.

        Raises:
            OSError: the file cannot be written.
        """
        with self._lock:
            if self._pid != os.getpid():
                self._open()
            self._append(encode(event))

    def _open(self) -> None:
        rank = os.environ.get("RANK", "")
        name = f"proc-{rank if rank.isdecimal() else 'x'}-{os.getpid()}.jsonl"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
        self._handle = os.open(os.path.join(self._folder, name), flags, 0o644)  # noqa: PTH118
        self._pid = os.getpid()
        self._append(encode(self._head()))

    def _append(self, line: bytes) -> None:
        while line:
            line = line[os.write(self._handle, line) :]

    def after_fork(self) -> None:
        """Forget a lock that another thread of the parent may have held."""
        self._lock = threading.RLock()

    def sync(self) -> None:
        """Force what was written to the disk."""
        if self._pid == os.getpid():
            os.fsync(self._handle)
