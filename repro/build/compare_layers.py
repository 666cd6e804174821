"""Two layers, file by file: what differs, in which way."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import BinaryIO

from repro.build import tarball
from repro.build.normalise import LayerIndex, Member

__all__ = ["Aspect", "LayerFiles", "compare_files"]

_TYPES = {
    tarball.FILE: "file",
    tarball.HARDLINK: "hard link",
    tarball.SYMLINK: "symbolic link",
    tarball.CHARACTER: "character device",
    tarball.BLOCKDEV: "block device",
    tarball.DIRECTORY: "folder",
    tarball.FIFO: "pipe",
}


@dataclass(frozen=True, slots=True)
class Aspect:
    """One way in which a file differs; values as text, None where the file is absent."""

    path: str
    aspect: str
    expected: str | None
    found: str | None


class LayerFiles:
    """The files of a layer, in an uncompressed tar that stays open."""

    def __init__(self, source: BinaryIO, where: str) -> None:
        self._index = LayerIndex(source, where)
        self.members = self._index.members

    def read(self, path: str) -> bytes:
        """Return a small file's bytes."""
        member = self.members[path.encode("utf-8", "surrogateescape")]
        return b"".join(self._index.content(member))[: member.entry.size]

    def digest(self, member: Member) -> str:
        """Digest of a file's bytes."""
        state, left = hashlib.sha256(), member.entry.size
        for chunk in self._index.content(member):
            state.update(chunk[:left])
            left -= min(left, len(chunk))
        return f"sha256:{state.hexdigest()}"


def _described(member: Member) -> dict[str, str]:
    """Everything but the content, in words."""
    entry = member.entry
    return {
        "type": _TYPES[entry.kind],
        "mode": f"{entry.mode:04o}",
        "owner": f"{entry.uid}:{entry.gid}",
        "link": entry.link.decode("utf-8", "backslashreplace"),
        "device": "{}:{}".format(*entry.device),
        "xattrs": " ".join(f"{k.decode(errors='replace')}={v.hex()}" for k, v in entry.xattrs),
    }


def _differences(path: str, left: Member, right: Member, a: LayerFiles, b: LayerFiles) -> Iterator[Aspect]:
    expected, found = _described(left), _described(right)
    for aspect, value in expected.items():
        if value != found[aspect]:
            yield Aspect(path, aspect, value, found[aspect])
    if left.entry.kind == right.entry.kind == tarball.FILE:
        one, other = a.digest(left), b.digest(right)
        if one != other:
            yield Aspect(path, "content", one, other)


def compare_files(expected: LayerFiles, found: LayerFiles) -> Iterator[Aspect]:
    """Yield every difference in order of path. Memory grows with the number of files, not their size."""
    for name in sorted(expected.members.keys() | found.members.keys()):
        path = name.decode("utf-8", "surrogateescape")
        left, right = expected.members.get(name), found.members.get(name)
        if left is not None and right is not None:
            yield from _differences(path, left, right, expected, found)
        else:
            there = (left or right).entry  # type: ignore[union-attr] # one of them is there
            kind = _TYPES[there.kind]
            yield Aspect(path, "presence", kind if left else None, kind if right else None)
