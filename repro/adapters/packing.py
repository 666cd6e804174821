"""A run folder as one file, and back: a plain tar with every choice fixed, and nothing believed that it says.

The same folder gives the same bytes on any machine. Only those bytes are unpacked again: after unpacking, the
folder is packed once more and must give the file that was read. A second member of one name, an owner, a time
or anything behind the end is refused so, without a rule of its own. Format: POSIX.1-2001, `pax`.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from repro.adapters.publish import check_place, turn
from repro.digest import CHUNK_BYTES, digest_stream
from repro.errors import FileError

__all__ = ["MAX_FILES", "SUFFIX", "packed", "unpack"]

SUFFIX = ".repro.tar"
MAX_FILES = 100_000
_BLOCK = 512

_UNREADABLE = (
    *(tarfile.TarError, ValueError, LookupError, ArithmeticError, EOFError),
    *(FileExistsError, NotADirectoryError, IsADirectoryError),
)
"""What `tarfile` raises at hostile bytes, and what their names raise on a disk."""

CheckName = Callable[[str], None]
"""Raises where a name could mean another file somewhere."""


def _odd(message: str, where: str) -> FileError:
    remedy = "take it from where it was packed once more; `repro pack` wrote it in another way"
    return FileError("pack-malformed", message, where=where, remedy=remedy)


def _files(folder: Path) -> Iterator[str]:
    for path in sorted(folder.rglob("*"), key=lambda path: path.relative_to(folder).as_posix()):
        name, mode = path.relative_to(folder).as_posix(), path.lstat().st_mode
        if stat.S_ISREG(mode):
            yield name
        elif not stat.S_ISDIR(mode):
            raise FileError(
                "file-special", "this is no plain file", where=str(path), remedy="take it out of the run"
            )


def packed(folder: Path, check_name: CheckName) -> Iterator[bytes]:
    """Yield a run folder as one file.

    Raises:
        FileError: `file-special` for a link, a pipe or a device.
        TrustError: kind `E_PATH`, of `check_name`.
    """
    for name in _files(folder):
        check_name(name)
        place = folder / name
        with place.open("rb") as stream:
            info = tarfile.TarInfo(name)
            info.size, info.mode = os.fstat(stream.fileno()).st_size, 0o644
            yield info.tobuf(tarfile.PAX_FORMAT)
            left = info.size
            while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
                yield chunk
                left -= len(chunk)
        if left:
            raise FileError("file-changed", "the file became shorter while it was packed", where=str(place))
        yield bytes(-info.size % _BLOCK)
    yield bytes(2 * _BLOCK)


def _write(archive: tarfile.TarFile, info: tarfile.TarInfo, fresh: Path) -> None:
    place = fresh / info.name
    place.parent.mkdir(parents=True, exist_ok=True)
    stream = archive.extractfile(info)
    assert stream is not None
    with place.open("xb") as target:
        shutil.copyfileobj(stream, target, CHUNK_BYTES)
        target.flush()
        os.fsync(target.fileno())


def _read(file: Path, fresh: Path, check_name: CheckName) -> None:
    """Write the members below `fresh`: plain files with plain names, each once."""
    with tarfile.open(file, "r:") as archive:
        for number, info in enumerate(archive):
            if number >= MAX_FILES:
                raise _odd(f"it holds more than {MAX_FILES} files", str(file))
            if info.type != tarfile.REGTYPE or info.issparse():
                raise _odd(f"{info.name!a} is no plain file", str(file))
            check_name(info.name)
            _write(archive, info, fresh)


def unpack(file: Path, target: Path, check_name: CheckName) -> None:
    """Unpack a file that `packed` made to a folder that is not there yet: all of it or nothing.

    No member is larger than the file itself, for nothing is compressed.

    Raises:
        FileError: `pack-malformed`, or `folder-exists`.
        TrustError: kind `E_PATH`, of `check_name`.
    """
    if target.exists():
        raise FileError(
            "folder-exists", "a folder lies there already", where=str(target), remedy="name another with -o"
        )
    check_place(target)
    fresh = Path(tempfile.mkdtemp(prefix=f".{target.name}.new-", dir=target.parent))
    try:
        fresh.chmod(0o755)
        try:
            _read(file, fresh, check_name)
        except _UNREADABLE as error:
            raise _odd(f"it cannot be read as a packed run: {error}", str(file)) from None
        state = hashlib.sha256()
        for chunk in packed(fresh, check_name):
            state.update(chunk)
        with file.open("rb") as stream:
            if digest_stream(stream)[0] != f"sha256:{state.hexdigest()}":
                raise _odd("it is not what packing its own files gives", str(file))
        with turn(target.parent):
            fresh.rename(target)
    finally:
        shutil.rmtree(fresh, ignore_errors=True)
