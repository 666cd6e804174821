"""Put a finished folder in its place at one instant.

The folder is written beside its place under a name that starts with a dot,
synced, and then exchanged with what was there (`renameat2(2)` with
`RENAME_EXCHANGE`). A reader sees the old folder or the new one, never a mixture,
and a process that is killed leaves the old one as it was.
"""

from __future__ import annotations

import ctypes
import errno
import fcntl
import glob
import os
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from repro.errors import FileError

__all__ = ["check_place", "publish", "put", "turn"]

_AT_FDCWD = -100
_RENAME_EXCHANGE = 2


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def turn(parent: Path) -> Iterator[None]:
    """Let one process at a time put folders in place here; another waits."""
    parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _exchange(fresh: Path, target: Path) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    result = libc.renameat2(
        _AT_FDCWD, os.fsencode(fresh), _AT_FDCWD, os.fsencode(target), ctypes.c_uint(_RENAME_EXCHANGE)
    )
    if result == 0:
        return
    code = ctypes.get_errno()
    if code not in (errno.EINVAL, errno.ENOSYS):
        raise OSError(code, os.strerror(code), str(target))
    aside = fresh.with_name(fresh.name + ".old")
    target.rename(aside)
    fresh.rename(target)
    aside.rename(fresh)


def _write(folder: Path, documents: Mapping[str, bytes], files: Mapping[str, Path]) -> None:
    for name, data in documents.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(data)
    for name, source in files.items():
        place = folder / name
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, place)
    for root, _, names in os.walk(folder):
        for name in names:
            _sync(Path(root, name))
        _sync(Path(root))


def publish(target: Path, documents: Mapping[str, bytes], files: Mapping[str, Path]) -> None:
    """Write a folder whole and put it at `target`, in place of what was there.

    Args:
        target: the folder; its parent is made where it is missing.
        documents: relative path to content.
        files: relative path to a file whose content is copied.

    Raises:
        FileError: `folder-expected` where something else lies at `target`.
        OSError: the disk is full, or writing is not permitted; the old folder stays as it was.
    """
    with turn(target.parent):
        put(target, documents, files)


def check_place(target: Path) -> None:
    """Raise what `publish` would raise, as far as that can be known: before a long run, not after it."""
    if target.exists() and not target.is_dir():
        raise FileError("folder-expected", "a file lies where the run folder belongs", where=str(target))
    target.parent.mkdir(parents=True, exist_ok=True)
    Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent)).rmdir()


def put(target: Path, documents: Mapping[str, bytes], files: Mapping[str, Path]) -> None:
    """Do what `publish` does within a `turn` that the caller has taken."""
    check_place(target)
    for stale in target.parent.glob(f".{glob.escape(target.name)}.new-*"):
        shutil.rmtree(stale, ignore_errors=True)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        _write(fresh, documents, files)
        if target.exists():
            _exchange(fresh, target)
        else:
            fresh.rename(target)
        _sync(target.parent)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
