"""Two images, whoever built them: config member by member, files one by one, each difference with its class.

Layers that both begin with are not read. Of the others, each side's files are what a container would see of
them: later layers over earlier ones, whiteouts applied (OCI Image Specification v1.1, `layer.md`). Layers are
read as streams; memory grows with the number of files that are told apart, not with their size.
"""

from __future__ import annotations

import hashlib
import re
import tarfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, cast

from repro.build.saved import SavedImage, SavedLayer, Window
from repro.digest import CHUNK_BYTES
from repro.errors import BuildError
from repro.image import DifferenceClass, ImageComparison, ImageDifference

__all__ = ["compare_images"]

KEPT = 10_000
"""Differences that are kept; all are counted."""

_BASE_LABEL = "org.opencontainers.image.base.digest"
_BYTECODE = re.compile(r"(.*/)?__pycache__(/.*)?|.*\.py[co]")
_TRACES = re.compile(
    r"(var/(log|cache|lib/apt/lists|lib/dpkg/[\w-]+-old)|root/\.cache|home/[^/]+/\.cache|tmp|run)(/.*)?"
    r"|(.*/)?[^/]*\.log|etc/(ld\.so\.cache|machine-id|hostname|hosts|resolv\.conf)"
)
_PACKAGES = re.compile(r"(.*/)?(site|dist)-packages(/.*)?|var/lib/(dpkg|rpm|apk)(/.*)?|usr/share/doc(/.*)?")


@dataclass(frozen=True, slots=True)
class _File:
    """One path as a container would see it."""

    type: str
    mode: str
    owner: str
    time: str
    size: int
    link: str
    device: str
    xattrs: str
    content: str | None


def _digest(archive: tarfile.TarFile, info: tarfile.TarInfo) -> str:
    stream, state = archive.extractfile(info), hashlib.sha256()
    while stream is not None and (chunk := stream.read(CHUNK_BYTES)):
        state.update(chunk)
    return f"sha256:{state.hexdigest()}"


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


def _read(archive: tarfile.TarFile, info: tarfile.TarInfo) -> _File:
    xattrs = sorted(item for item in info.pax_headers.items() if item[0].startswith("SCHILY.xattr."))
    return _File(
        type=_TYPES.get(info.type, "something else"),
        mode=f"{info.mode & 0o7777:04o}",
        owner=f"{info.uid}:{info.gid}",
        time=f"{info.mtime:.9f}".rstrip("0").rstrip("."),
        size=info.size,
        link=info.linkname,
        device=f"{info.devmajor}:{info.devminor}" if info.ischr() or info.isblk() else "",
        xattrs=" ".join(f"{key}={value!a}" for key, value in xattrs),
        content=_digest(archive, info) if info.isreg() else None,
    )


def _members(layer: SavedLayer) -> Iterator[tuple[str, _File]]:
    try:
        with layer.path.open("rb") as file:
            window: Any = Window(file, layer.offset, layer.size)
            with tarfile.open(fileobj=window, mode="r:") as archive:
                for info in archive:
                    yield info.name.removeprefix("./").strip("/"), _read(archive, info)
                    cast(Any, archive).members = []  # else it remembers every one
    except (tarfile.TarError, EOFError, ValueError) as error:
        raise BuildError(
            "layer-malformed", f"the layer cannot be read: {error}", where=layer.diff_id
        ) from None


def _seen(layers: Sequence[SavedLayer]) -> tuple[dict[str, _File], list[str]]:
    """Return what a container would see of these layers, and every name in the order of writing."""
    files: dict[str, _File] = {}
    order = []
    for layer in layers:
        for name, file in _members(layer):
            folder, _, last = name.rpartition("/")
            order.append(name)
            if last == ".wh..wh..opq":
                _remove_below(files, folder)
            elif last.startswith(".wh."):
                hidden = f"{folder}/{last[4:]}".lstrip("/")
                _remove_below(files, hidden)
                files.pop(hidden, None)
            elif name not in ("", "."):
                files[name] = file
    return files, order


def _remove_below(files: dict[str, _File], folder: str) -> None:
    for name in [name for name in files if name.startswith(f"{folder}/")]:
        del files[name]


def _file_class(path: str, aspect: str) -> DifferenceClass:
    if aspect == "time":
        return "times"
    if aspect in ("owner", "mode"):
        return "ownership"
    for pattern, name in (
        (_BYTECODE, "byte code"),
        (_TRACES, "log and cache files"),
        (_PACKAGES, "package files"),
    ):
        if pattern.fullmatch(path):
            return cast(DifferenceClass, name)
    return "other files"


_ASPECTS = ("type", "mode", "owner", "time", "link", "device", "xattrs", "content")


def _files(first: Sequence[SavedLayer], second: Sequence[SavedLayer]) -> Iterator[ImageDifference]:
    (a, order_a), (b, order_b) = _seen(first), _seen(second)
    differing = False
    for path in sorted(a.keys() | b.keys()):
        one, other = a.get(path), b.get(path)
        for aspect in ("presence",) if one is None or other is None else _ASPECTS:
            name = "type" if aspect == "presence" else aspect
            values = [None if side is None else getattr(side, name) for side in (one, other)]
            if values[0] != values[1]:
                differing = True
                yield ImageDifference(
                    path=path,
                    aspect=aspect,
                    first=values[0],
                    second=values[1],
                    kind=_file_class(path, aspect),
                )
    if not differing:
        aspect = "order of members" if order_a != order_b else "encoding of the archive"
        ids = [" ".join(layer.diff_id[:19] for layer in side) for side in (first, second)]
        yield ImageDifference(path="the layers", aspect=aspect, first=ids[0], second=ids[1], kind="order")


def _flat(value: Any, prefix: str = "") -> dict[str, str]:
    """Members of a config by their path, as text."""
    if isinstance(value, dict):
        found: dict[str, str] = {}
        for key, part in value.items():
            found |= _flat(part, f"{prefix}.{key}".lstrip("."))
        return found
    return {prefix: value if isinstance(value, str) else repr(value)}


def _config(first: dict[str, Any], second: dict[str, Any]) -> Iterator[ImageDifference]:
    sides = [
        _flat({key: value for key, value in side.items() if key != "rootfs"}) for side in (first, second)
    ]
    for path in sorted(sides[0].keys() | sides[1].keys()):
        one, other = sides[0].get(path), sides[1].get(path)
        if one != other:
            kind: DifferenceClass = "configuration"
            if path == "created" or path.startswith("history"):
                kind = "times" if path == "created" else "configuration"
            elif path.endswith(_BASE_LABEL) and one and other:
                kind = "base moved"
            yield ImageDifference(path=path, aspect="config", first=one, second=other, kind=kind)


def compare_images(first: SavedImage, second: SavedImage, *, base_layers: int = 0) -> ImageComparison:
    """Tell two images apart.

    Args:
        base_layers: how many of the first layers are known to be the base's, 0 where nobody says. Where these
            differ, the base moved, and that is said once and not file by file.

    Raises:
        BuildError: `layer-malformed`.
    """
    ids = [[layer.diff_id for layer in side.layers] for side in (first, second)]
    counts: Counter[DifferenceClass] = Counter()
    kept: list[ImageDifference] = []

    def take(found: Iterator[ImageDifference]) -> None:
        for difference in found:
            counts[difference.kind] += 1
            if len(kept) < KEPT:
                kept.append(difference)

    start = 0
    if base_layers and ids[0][:base_layers] != ids[1][:base_layers]:
        told = [" ".join(digest[:19] for digest in side[:base_layers]) for side in ids]
        moved = ImageDifference(
            path="the base", aspect="layers", first=told[0], second=told[1], kind="base moved"
        )
        take(iter([moved]))
        start = base_layers
    take(_config(first.config, second.config))
    while start < min(map(len, ids)) and ids[0][start] == ids[1][start]:
        start += 1
    if ids[0][start:] != ids[1][start:]:
        take(_files(first.layers[start:], second.layers[start:]))
    return ImageComparison(
        first=tuple(ids[0]),
        second=tuple(ids[1]),
        counts=dict(sorted(counts.items())),
        differences=tuple(kept),
    )
