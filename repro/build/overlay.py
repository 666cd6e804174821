"""What a container would see of layers laid over one another (OCI Image Specification v1.1, `layer.md`).

A whiteout hides what lower layers hold, never what its own layer does, wherever in the layer it stands. What
is no folder hides the folder it replaces. A hard link is the file it names. Layers are read as streams;
memory grows with the number of files, not with their size.
"""

from __future__ import annotations

import hashlib
import tarfile
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from repro.build.saved import SavedLayer, Window
from repro.digest import CHUNK_BYTES
from repro.errors import BuildError

__all__ = ["Entry", "File", "pairs", "seen"]

_OPAQUE = ".wh..wh..opq"
_WHITEOUT = ".wh."
_XATTRS = ("SCHILY.xattr.", "LIBARCHIVE.xattr.")
_TYPES = {
    tarfile.REGTYPE: "file",
    tarfile.AREGTYPE: "file",
    tarfile.CONTTYPE: "file",
    tarfile.GNUTYPE_SPARSE: "file",
    tarfile.LNKTYPE: "hard link",
    tarfile.SYMTYPE: "symbolic link",
    tarfile.CHRTYPE: "character device",
    tarfile.BLKTYPE: "block device",
    tarfile.DIRTYPE: "folder",
    tarfile.FIFOTYPE: "pipe",
}


@dataclass(slots=True)
class File:
    """What lies at a path; names that are hard links of one another share one."""

    type: str
    mode: str
    owner: str
    time: str
    link: str
    """Where a symbolic link points, or the first name of a file that has several."""
    device: str
    xattrs: str
    sha256: bytes | None

    @property
    def content(self) -> str | None:
        """Digest of a regular file's bytes."""
        return None if self.sha256 is None else f"sha256:{self.sha256.hex()}"


@dataclass(slots=True)
class Entry:
    """One path of the layers, and what they say of the paths below it."""

    file: File | None = None
    """Null where only paths below it are named, or where it is only hidden."""
    hides: bool = False
    """Whether what lower layers hold at this path, and below it, is gone."""
    below: dict[str, Entry] | None = None

    def at(self, names: Sequence[str]) -> Entry:
        """Return the entry at a path below this one, made where there is none."""
        entry = self
        for name in names:
            if entry.below is None:
                entry.below = {}
            entry = entry.below.setdefault(name, Entry())
        return entry

    def find(self, path: str) -> Entry | None:
        """Return what lies at a path below this one."""
        entry: Entry | None = self
        for name in _parts(path):
            entry = entry.below.get(name) if entry is not None and entry.below is not None else None
        return entry

    @property
    def is_folder(self) -> bool:
        """Whether paths may lie below it."""
        return self.file is None or self.file.type == "folder"


def _sha256(archive: tarfile.TarFile, info: tarfile.TarInfo) -> bytes:
    stream, state = archive.extractfile(info), hashlib.sha256()
    while stream is not None and (chunk := stream.read(CHUNK_BYTES)):
        state.update(chunk)
    return state.digest()


def _file(archive: tarfile.TarFile, info: tarfile.TarInfo, *, contents: bool) -> File:
    xattrs = sorted(item for item in info.pax_headers.items() if item[0].startswith(_XATTRS))
    return File(
        type=_TYPES.get(info.type, "something else"),
        mode=f"{info.mode & 0o7777:04o}",
        owner=f"{info.uid}:{info.gid}",
        time=f"{info.mtime:.9f}".rstrip("0").rstrip("."),
        link=info.linkname,
        device=f"{info.devmajor}:{info.devminor}" if info.ischr() or info.isblk() else "",
        xattrs=" ".join(f"{key}={value!a}" for key, value in xattrs),
        sha256=_sha256(archive, info) if contents and info.isreg() else None,
    )


def _parts(name: str) -> list[str]:
    return [part for part in name.split("/") if part not in ("", ".")]


def _members(layer: SavedLayer) -> Iterator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    try:
        with layer.path.open("rb") as file:
            window: Any = Window(file, layer.offset, layer.size)
            with tarfile.open(fileobj=window, mode="r:") as archive:
                for info in archive:
                    yield archive, info
                    cast(Any, archive).members = []  # else it remembers every one
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BuildError(
            "layer-malformed", f"the layer cannot be read: {error}", where=layer.diff_id
        ) from None


def _read(layer: SavedLayer, order: Any, *, contents: bool) -> Entry:
    """Read one layer by itself; `order` takes every name as it comes."""
    root = Entry()
    for archive, info in _members(layer):
        order.update(f"{info.name}\0".encode("utf-8", "surrogateescape"))
        *folder, last = _parts(info.name) or [""]
        if last == _OPAQUE:
            root.at(folder).hides = True
        elif last.startswith(_WHITEOUT):
            root.at([*folder, last.removeprefix(_WHITEOUT)]).hides = True
        else:
            entry = root.at([*folder, last] if last else [])
            target = root.at(_parts(info.linkname)).file if info.islnk() else None
            entry.file = target or _file(archive, info, contents=contents)
            if not entry.is_folder:
                entry.below = None
    return root


def _lay(lower: Entry, upper: Entry) -> None:
    """Lay one layer over what is below it, which becomes what is seen of both."""
    todo = [(lower, upper)]
    while todo:
        under, over = todo.pop()
        if over.hides or not over.is_folder or not under.is_folder:
            over.hides = over.hides or under.hides or not under.is_folder
            under.file, under.hides, under.below = over.file, over.hides, over.below
            continue
        under.file = over.file or under.file
        for name, entry in (over.below or {}).items():
            if under.below is None:
                under.below = {}
            if name in under.below:
                todo.append((under.below[name], entry))
            else:
                under.below[name] = entry


def _name_links(root: Entry) -> None:
    """Give each file that is seen by several names the first of them."""
    names: dict[int, list[str]] = defaultdict(list)
    files: dict[int, File] = {}
    for path, entry, _ in pairs(root, None):
        if entry is not None and entry.file is not None and entry.file.type == "file":
            names[id(entry.file)].append(path)
            files[id(entry.file)] = entry.file
    for number, paths in names.items():
        files[number].link = min(paths) if len(paths) > 1 else ""


def seen(layers: Sequence[SavedLayer], *, contents: bool = True) -> tuple[Entry, bytes]:
    """Return what a container would see of these layers, and a digest of all names in the order of writing.

    Args:
        contents: whether the bytes of files are read.

    Raises:
        BuildError: `layer-malformed`.
    """
    root, order = Entry(), hashlib.sha256()
    for layer in layers:
        _lay(root, _read(layer, order, contents=contents))
    _name_links(root)
    return root, order.digest()


def pairs(first: Entry | None, second: Entry | None) -> Iterator[tuple[str, Entry | None, Entry | None]]:
    """Yield every path that either side has, folders before what lies in them, the root as `/`."""
    todo: list[tuple[str, Entry | None, Entry | None]] = [("", first, second)]
    while todo:
        path, one, other = todo.pop()
        yield path or "/", one, other
        below = [side.below or {} if side is not None else {} for side in (one, other)]
        prefix = f"{path}/" if path else ""
        for name in sorted(below[0].keys() | below[1].keys(), reverse=True):
            todo.append((f"{prefix}{name}", below[0].get(name), below[1].get(name)))
