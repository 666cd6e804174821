"""Read what `docker save` streamed: config and layers of one image, in any engine's form."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import posixpath
import shutil
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from repro.digest import CHUNK_BYTES, Digest, digest_bytes, hex_of, is_digest
from repro.errors import BuildError

__all__ = ["SavedImage", "SavedLayer", "Window", "open_saved"]

_GZIP = b"\x1f\x8b"
_MAX_BYTES = 8 << 20
"""What a config may have."""


_UNREADABLE = (
    tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError,
    KeyError, ValueError, TypeError, AttributeError, RecursionError,
)  # fmt: skip
"""What reading an archive of anybody's making may come to."""


class Window(io.RawIOBase):
    """Bytes `offset` to `offset + size` of a file, read as a file of its own."""

    def __init__(self, file: BinaryIO, offset: int, size: int) -> None:
        super().__init__()
        self._file, self._offset, self._size, self._at = file, offset, size, 0

    def readable(self) -> bool:
        """Always."""
        return True

    def seekable(self) -> bool:
        """Always."""
        return True

    def tell(self) -> int:
        """Position from the start of the window."""
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        """Move within the window, or past its end."""
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:
        """Read up to the window's end."""
        self._file.seek(self._offset + self._at)
        data = self._file.read(max(0, min(len(buffer), self._size - self._at)))
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


@dataclass(frozen=True, slots=True)
class SavedLayer:
    """One layer of a saved image, plain: where its tar lies, and how many bytes it has."""

    diff_id: str
    path: Path
    offset: int
    size: int

    def chunks(self) -> Iterator[bytes]:
        """Yield the layer's bytes."""
        with self.path.open("rb") as file:
            file.seek(self.offset)
            left = self.size
            while left and (chunk := file.read(min(left, CHUNK_BYTES))):
                yield chunk
                left -= len(chunk)

    def check(self) -> None:
        """Check the bytes against the diff id.

        Raises:
            BuildError: `save-damaged`.
        """
        state = hashlib.sha256()
        for chunk in self.chunks():
            state.update(chunk)
        if f"sha256:{state.hexdigest()}" != self.diff_id:
            raise _damaged("a saved layer is not what its digest says", self.diff_id)


@dataclass(frozen=True, slots=True)
class SavedImage:
    """Config and layers, lowest first."""

    config: dict[str, Any]
    layers: tuple[SavedLayer, ...]
    config_digest: Digest
    """Of the config's own bytes, whoever wrote it."""


def _damaged(message: str, where: str) -> BuildError:
    return BuildError(
        "save-damaged", message, where=where, remedy="build again; look at the engine's log and disk"
    )


def _plain(member: tarfile.TarInfo, archive: Path, diff_id: str, scratch: Path) -> SavedLayer:
    """A layer as it lies in the archive, or unpacked beside it where the engine compressed it."""
    if not is_digest(diff_id):
        raise ValueError(f"{diff_id!a} is no sha256 digest")
    with archive.open("rb") as file:
        raw = io.BufferedReader(Window(file, member.offset_data, member.size), CHUNK_BYTES)
        if raw.peek(2)[:2] != _GZIP:
            return SavedLayer(diff_id, archive, member.offset_data, member.size)
        path = scratch / f"{hex_of(diff_id)}.tar"
        with gzip.GzipFile(fileobj=raw) as unpacked, path.open("wb") as plain:
            shutil.copyfileobj(unpacked, plain, CHUNK_BYTES)
    return SavedLayer(diff_id, path, 0, path.stat().st_size)


def open_saved(archive: Path, *, scratch: Path) -> SavedImage:
    """Read the index of a saved image.

    Args:
        archive: the spooled stream of one image.
        scratch: folder for layers that have to be unpacked.

    Raises:
        BuildError: `save-damaged`.
    """
    try:
        with tarfile.open(archive, "r:") as saved:
            members = {posixpath.normpath(member.name): member for member in saved}

            def resolve(name: str) -> tarfile.TarInfo:
                member = members[posixpath.normpath(name)]
                if member.issym():
                    return resolve(posixpath.join(posixpath.dirname(member.name), member.linkname))
                return member

            def content(name: str) -> bytes:
                stream = saved.extractfile(resolve(name))
                if stream is None:
                    raise KeyError(name)
                return stream.read(_MAX_BYTES)

            (described,) = json.loads(content("manifest.json"))
            written = content(described["Config"])
            config = json.loads(written)
            diff_ids = config["rootfs"]["diff_ids"]
            layers = tuple(
                _plain(resolve(name), archive, diff_id, scratch)
                for name, diff_id in zip(described["Layers"], diff_ids, strict=True)
            )
    except _UNREADABLE as error:
        raise _damaged(f"the saved image cannot be read: {error!r}", str(archive.name)) from None
    return SavedImage(config, layers, digest_bytes(written))
