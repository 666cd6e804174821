"""Wheels → layer, with no engine, no pip and no root: the second opinion of what is in an image.

Nothing of the way an image is built is used here but the tar encoding: files come straight
from the locked wheels, placed by the `installer` library as the wheel specification says.
"""

from __future__ import annotations

import base64
import hashlib
import io
import posixpath
import tempfile
import zipfile
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, BinaryIO

from installer import install
from installer.destinations import WheelDestination
from installer.exceptions import InstallerError
from installer.records import Hash, RecordEntry
from installer.scripts import Script
from installer.sources import WheelFile

from repro.build.plan import VENV
from repro.build.tarball import DIRECTORY, END, Entry, header, padding
from repro.digest import CHUNK_BYTES
from repro.errors import BuildError
from repro.image import BuildPlan
from repro.ports import Cache

__all__ = ["assemble_layer"]

_PREFIX = VENV.lstrip("/")
_PYTHON = f"{VENV}/bin/python"
_SHEBANG = b"#!python"


class _Spool(WheelDestination):  # type: ignore[misc] # the library has no types here
    """Takes the files of wheels in, in any order; keeps their bytes in one temporary file."""

    def __init__(self, spool: BinaryIO, python: str) -> None:
        packages = f"{_PREFIX}/lib/python{python}/site-packages"
        self._roots = {
            "purelib": packages,
            "platlib": packages,
            "scripts": f"{_PREFIX}/bin",
            "data": _PREFIX,
            "headers": f"{_PREFIX}/include/site/python{python}",
        }
        self._spool = spool
        self.files: dict[str, tuple[int, Entry, str]] = {}
        """By name: where the bytes begin, the entry, the digest."""

    def _put(self, scheme: str, path: str, stream: BinaryIO, mode: int) -> Any:
        name = posixpath.normpath(f"{self._roots[scheme]}/{path}")
        if not name.startswith(f"{_PREFIX}/"):
            raise BuildError(
                "wheel-unsafe", f"a wheel wants to write {path!r}, outside its place", where=path
            )
        offset, size, state = self._spool.tell(), 0, hashlib.sha256()
        while chunk := stream.read(CHUNK_BYTES):
            self._spool.write(chunk)
            state.update(chunk)
            size += len(chunk)
        digest = state.hexdigest()
        entry = Entry(name=name.encode(), size=size, mode=mode)
        if name in self.files and self.files[name][1:] != (entry, digest):
            raise BuildError(
                "wheel-conflict",
                f"two wheels bring different files for {name}",
                where=name,
                remedy="leave one of the packages out: which file wins would be an accident",
            )
        self.files.setdefault(name, (offset, entry, digest))
        encoded = base64.urlsafe_b64encode(state.digest()).decode().rstrip("=")
        return RecordEntry(path, Hash("sha256", encoded), size)

    def write_file(self, scheme: str, path: Any, stream: BinaryIO, is_executable: bool) -> Any:
        """Take one file of a wheel."""
        if scheme == "scripts":
            data = stream.read()
            if data.startswith(_SHEBANG):
                data = f"#!{_PYTHON}".encode() + data[len(_SHEBANG) :]
            return self._put(scheme, str(path), io.BytesIO(data), 0o755)
        return self._put(scheme, str(path), stream, 0o755 if is_executable else 0o644)

    def write_script(self, name: str, module: str, attr: str, section: Any) -> Any:
        """Make the script of an entry point."""
        path, data = Script(name, module, attr, section).generate(_PYTHON, "posix")
        return self._put("scripts", path, io.BytesIO(data), 0o755)

    def finalize_installation(self, scheme: str, record_file_path: str, records: Iterable[Any]) -> None:
        """Write RECORD, sorted by path."""
        lines = []
        for place, record in records:
            path = record.path
            if place != scheme:
                path = posixpath.relpath(f"{self._roots[place]}/{path}", self._roots[scheme])
            digest = f"sha256={record.hash_.value}" if record.hash_ else ""
            quoted = f'"{path}"' if "," in path else path
            lines.append(f"{quoted},{digest},{'' if record.size is None else record.size}\n")
        self._put(scheme, record_file_path, io.BytesIO("".join(sorted(lines)).encode()), 0o644)


def _folders(names: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for name in names:
        while (name := posixpath.dirname(name)) and name not in found:
            found.add(name)
    return found


def assemble_layer(plan: BuildPlan, *, cache: Cache, scratch: Path) -> Iterator[bytes]:
    """Yield a canonical layer that holds the plan's wheels, and nothing that a virtual environment adds.

    Args:
        scratch: folder for a temporary file as large as the layer.

    Raises:
        BuildError: `wheel-absent`, `wheel-invalid`, `wheel-conflict` or `wheel-unsafe`.
    """
    with tempfile.TemporaryFile(dir=scratch) as spool:
        taken = _Spool(spool, plan.python)
        for wheel in plan.wheels:
            path = cache.path(wheel.digest)
            if path is None:
                raise BuildError(
                    "wheel-absent",
                    f"the cache does not hold {wheel.path}",
                    where=wheel.digest,
                    remedy="fetch the locked wheels again with `repro lock`",
                )
            with path.open("rb") as stream:
                _take(stream, wheel.path, taken)
        folders = _folders(taken.files)
        for name in sorted(folders | taken.files.keys(), key=str.encode):
            if name in folders:
                yield header(Entry(name=name.encode(), kind=DIRECTORY, mode=0o755), plan.epoch)
                continue
            offset, entry, _ = taken.files[name]
            yield header(entry, plan.epoch)
            spool.seek(offset)
            left = entry.size
            while left and (chunk := spool.read(min(left, CHUNK_BYTES))):
                yield chunk
                left -= len(chunk)
            yield padding(entry.size)
    yield END


def _take(stream: BinaryIO, filename: str, taken: _Spool) -> None:
    """Place one wheel. The library knows a wheel by its file's name; ours lie by digest."""
    try:
        with zipfile.ZipFile(stream) as archive:
            archive.filename = filename
            install(WheelFile(archive), taken, additional_metadata={})
    except (InstallerError, zipfile.BadZipFile) as error:
        raise BuildError(
            "wheel-invalid", f"a locked wheel cannot be placed: {error}", where=filename
        ) from None
