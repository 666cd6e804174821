"""Image → what its root filesystem holds: later layers over earlier ones, whiteouts applied.

Rules: OCI Image Specification v1.1, `layer.md`, "Representing Changes". Listing and digest: `rootfs.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

from repro.build import tarball
from repro.build.normalise import LayerIndex, Member
from repro.build.rootfs import FILE, LINK, PROGRAM, Listing
from repro.build.saved import SavedImage, SavedLayer, Window

__all__ = ["image_listing"]

_WHITEOUT = b".wh."
_OPAQUE = b".wh..wh..opq"


def image_listing(image: SavedImage) -> Listing:
    """List the files and links that a container would see.

    Memory grows with the number of files, not with their size.

    Raises:
        BuildError: `layer-unreadable`, `layer-duplicate`, `layer-link-broken`, `layer-unsafe` or
            `layer-unknown-type`.
    """
    seen: dict[bytes, tuple[bytes, bytes]] = {}
    for layer in image.layers:
        seen = _over(seen, layer)
    return seen


def _over(lower: Listing, layer: SavedLayer) -> dict[bytes, tuple[bytes, bytes]]:
    with layer.path.open("rb") as file:
        window: Any = Window(file, layer.offset, layer.size)
        index = LayerIndex(window, layer.diff_id)
        gone, emptied, folders = _hidden(index.members)
        kept = {
            path: value
            for path, value in lower.items()
            if path not in gone
            and path not in folders
            and not any(above in gone or above in emptied for above in _above(path))
        }
        return kept | dict(_entries(index))


def _hidden(members: dict[bytes, Member]) -> tuple[set[bytes], set[bytes], set[bytes]]:
    """What a layer hides of those below it.

    Returns:
        paths that go with all below them, folders whose content goes, and paths that are folders now.
    """
    gone: set[bytes] = set()
    emptied: set[bytes] = set()
    folders: set[bytes] = set()
    for path, member in members.items():
        folder, slash, name = path.rpartition(b"/")
        folders.update(_above(path))
        if name == _OPAQUE:
            emptied.add(folder)
        elif name.startswith(_WHITEOUT):
            gone.add(folder + slash + name.removeprefix(_WHITEOUT))
        elif member.entry.kind == tarball.DIRECTORY:
            folders.add(path)
        else:
            gone.add(path)
    return gone, emptied, folders


def _above(path: bytes) -> Iterator[bytes]:
    """Every folder that a path lies in, the root too."""
    while path:
        path = path.rpartition(b"/")[0]
        yield path


def _entries(index: LayerIndex) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    digests: dict[bytes, bytes] = {}
    for path, member in index.members.items():
        entry = member.entry
        if path.rpartition(b"/")[2].startswith(_WHITEOUT):
            continue
        if entry.kind == tarball.SYMLINK:
            yield path, (LINK, entry.link)
        elif entry.kind in (tarball.FILE, tarball.HARDLINK):
            holder = entry.link if entry.kind == tarball.HARDLINK else path
            if index.members[holder].entry.kind != tarball.FILE:
                continue
            if holder not in digests:
                digests[holder] = _digest(index, index.members[holder])
            yield path, (PROGRAM if entry.mode & 0o100 else FILE, digests[holder])


def _digest(index: LayerIndex, member: Member) -> bytes:
    state, left = hashlib.sha256(), member.entry.size
    for chunk in index.content(member):
        state.update(chunk[:left])
        left -= min(left, len(chunk))
    return state.hexdigest().encode()
