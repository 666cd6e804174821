"""Reads folders somebody else may have prepared: no link is followed, no pipe waited for."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

from repro.digest import CHUNK_BYTES, Digest
from repro.errors import TrustError

__all__ = ["DiskRunFolder"]

MAX_ENTRIES = 100_000
_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
}


class DiskRunFolder:
    """Fulfils `repro.ports.RunFolder` below a folder of this machine."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.name = str(root)

    def names(self) -> list[str]:
        """Return every entry that is no folder, sorted; links to folders are entries, and never entered.

        Raises:
            TrustError: kind `E_SIZE` where there are more entries than any run has.
        """
        found: list[str] = []
        for folder, folders, files in os.walk(self.root):
            base = Path(folder).relative_to(self.root)
            linked = [name for name in folders if (Path(folder) / name).is_symlink()]
            found += [(base / name).as_posix() for name in (*files, *linked)]
            if len(found) > MAX_ENTRIES:
                message = f"the folder holds more than {MAX_ENTRIES} files"
                raise TrustError("E_SIZE", message, where=self.name)
        return sorted(found)

    def read(self, name: str, *, limit: int) -> bytes:
        """Return a file's bytes, read once; at most `limit` of them."""
        with self._open(name) as descriptor:
            chunks: list[bytes] = []
            left = limit + 1
            while left and (chunk := os.read(descriptor, min(left, CHUNK_BYTES))):
                chunks.append(chunk)
                left -= len(chunk)
        if not left:
            raise TrustError("E_SIZE", f"the file has more than {limit} bytes", where=name)
        return b"".join(chunks)

    def digest(self, name: str) -> tuple[Digest, int]:
        """Return a file's digest and size in bytes, read once in bounded memory."""
        state, size = hashlib.sha256(), 0
        with self._open(name) as descriptor:
            while chunk := os.read(descriptor, CHUNK_BYTES):
                state.update(chunk)
                size += len(chunk)
        return Digest("sha256:" + state.hexdigest()), size

    @contextmanager
    def _open(self, name: str) -> Iterator[int]:
        """Open one segment after the other, so that no part of the path can be a link."""
        held = os.open(self.root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            *folders, last = name.split("/")
            for folder in folders:
                self._check_segment(folder, name)
                inner = self._openat(folder, _FLAGS | os.O_DIRECTORY, held, name)
                os.close(held)
                held = inner
            self._check_segment(last, name)
            descriptor = self._openat(last, _FLAGS, held, name)
        finally:
            os.close(held)
        try:
            self._check_plain(os.fstat(descriptor), name)
            yield descriptor
        finally:
            os.close(descriptor)

    def _openat(self, segment: str, flags: int, folder: int, name: str) -> int:
        try:
            return os.open(segment, flags, dir_fd=folder)
        except OSError as error:
            self._explain(error, segment, folder, name)

    def _explain(self, error: OSError, segment: str, folder: int, name: str) -> NoReturn:
        if error.errno == errno.ENOENT:
            raise TrustError("E_PATH", "the file is missing", where=name) from None
        try:
            kind = stat.S_IFMT(os.stat(segment, dir_fd=folder, follow_symlinks=False).st_mode)
        except OSError:
            kind = 0
        if kind == stat.S_IFLNK:
            target = os.readlink(segment, dir_fd=folder)
            message = f"{segment!a} is a symbolic link to {target!a}; signed files are never links"
            raise TrustError("E_PATH", message, where=name) from None
        if kind in _KINDS:
            self._check_plain_kind(kind, name)
        message = f"the file cannot be opened: {os.strerror(error.errno or 0)}"
        raise TrustError("E_PATH", message, where=name) from None

    def _check_segment(self, segment: str, name: str) -> None:
        if segment in ("", ".", "..") or "\0" in segment:
            raise TrustError("E_PATH", "the path does not lead straight down", where=ascii(name))

    def _check_plain(self, status: os.stat_result, name: str) -> None:
        self._check_plain_kind(stat.S_IFMT(status.st_mode), name)
        if status.st_nlink != 1:
            message = f"the file has {status.st_nlink} names (hard links), so others may change it"
            raise TrustError("E_PATH", message, where=name)

    def _check_plain_kind(self, kind: int, name: str) -> None:
        if kind != stat.S_IFREG:
            raise TrustError("E_PATH", f"this is {_KINDS.get(kind, 'no plain file')}", where=name)
