"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import fcntl
import glob
import hashlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from types import FrameType
from typing import BinaryIO

__all__ = ["write_atomic", "write_stream", "write_together"]

_STAGED = ".part"


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove_abandoned(path: Path) -> None:
    """Remove what killed processes left beside `path`. Who still writes a file holds a lock on it."""
    for left in path.parent.glob(f".{glob.escape(path.name)}.*{_STAGED}"):
        with contextlib.suppress(OSError), left.open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            left.unlink()


def _open_beside(path: Path) -> tuple[BinaryIO, Path]:
    """Open and lock a new file. One that was taken for abandoned before it was locked is made again."""
    while True:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=_STAGED)
        stream = os.fdopen(handle, "wb")
        fcntl.flock(stream, fcntl.LOCK_EX)
        if os.fstat(handle).st_nlink:
            return stream, Path(name)
        stream.close()


@contextlib.contextmanager
def _staged(path: Path, data: Iterable[bytes]) -> Iterator[Path]:
    """Bytes on the disk beside `path`, with the mode a new file would have; removed in the end if there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_abandoned(path)
    stream, staged = _open_beside(path)
    with stream:
        try:
            stream.writelines(data)
            stream.flush()
            os.fsync(stream.fileno())
            mask = os.umask(0)
            os.umask(mask)
            staged.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
            yield staged
        finally:
            staged.unlink(missing_ok=True)


@contextlib.contextmanager
def _interrupts_wait() -> Iterator[None]:
    """Hold Ctrl-C and TERM back until the block is done. Does nothing outside the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    pending: list[tuple[int, FrameType | None]] = []
    previous = {
        number: signal.signal(number, lambda got, frame: pending.append((got, frame)))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
        if pending:
            signal.raise_signal(pending[0][0])


def write_atomic(path: Path, data: bytes) -> None:
    """Replace a file by new bytes: readers see the old file or the new one, after a crash too."""
    with _staged(path, (data,)) as staged:
        staged.replace(path)
    _sync_folder(path.parent)


def write_stream(path: Path, data: Iterable[bytes]) -> tuple[str, int]:
    """Do the same with bytes as they come; return their digest and size."""
    state, size = hashlib.sha256(), 0

    def counted() -> Iterator[bytes]:
        nonlocal size
        for chunk in data:
            state.update(chunk)
            size += len(chunk)
            yield chunk

    with _staged(path, counted()) as staged:
        staged.replace(path)
    _sync_folder(path.parent)
    return f"sha256:{state.hexdigest()}", size


def write_together(root: Path, files: Mapping[str, bytes | None], *, last: str) -> None:
    """Write several files as one change.

    All bytes are on the disk before the first file is replaced, and an interrupt
    waits until the last one is. `last` names the file that records the digests of
    the others: whatever stops the machine in between, a reader can tell.

    Args:
        root: folder that the paths are relative to.
        files: bytes by relative path; None removes the file.
        last: the path to write after all others.
    """
    with contextlib.ExitStack() as stack:
        staged = {
            path: stack.enter_context(_staged(root / path, (data,)))
            for path, data in files.items()
            if data is not None
        }
        with _interrupts_wait():
            for path in sorted(files, key=lambda path: (path == last, path)):
                if path in staged:
                    staged[path].replace(root / path)
                else:
                    (root / path).unlink(missing_ok=True)
                if (root / path).parent.is_dir():
                    _sync_folder((root / path).parent)
