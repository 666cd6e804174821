"""Write files whole or not at all."""

from __future__ import annotations

import contextlib
import os
import signal
import tempfile
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import FrameType

__all__ = ["write_atomic", "write_together"]


def _sync_folder(folder: Path) -> None:
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _stage(path: Path, data: bytes) -> Path:
    """Write beside `path`, to the disk, with the mode a new file would have."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    staged = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        staged.chmod(path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~mask)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    return staged


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
    staged = _stage(path, data)
    try:
        staged.replace(path)
    except BaseException:
        staged.unlink(missing_ok=True)
        raise
    _sync_folder(path.parent)


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
    staged: dict[str, Path] = {}
    try:
        for path, data in files.items():
            if data is not None:
                staged[path] = _stage(root / path, data)
        with _interrupts_wait():
            for path in sorted(files, key=lambda path: (path == last, path)):
                if path in staged:
                    staged[path].replace(root / path)
                    del staged[path]
                else:
                    (root / path).unlink(missing_ok=True)
                if (root / path).parent.is_dir():
                    _sync_folder((root / path).parent)
    finally:
        for leftover in staged.values():
            leftover.unlink(missing_ok=True)
