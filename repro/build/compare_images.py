"""Two images, whoever built them: config member by member, files one by one, each difference with its class.

Layers that both begin with are not read. Of the others, each side's files are what a container would see of
them (`overlay.py`); a whiteout that takes a file of the shared layers away is a difference of its own.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any, cast

from repro.build.overlay import Entry, pairs, seen
from repro.build.saved import SavedImage, SavedLayer
from repro.image import ImageComparison, ImageDifference
from repro.spec import DifferenceClass

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


class _Lower:
    """The layers below those that are compared: read, by name alone, once a whiteout may hide some of it."""

    def __init__(self, *sides: Sequence[SavedLayer]) -> None:
        self._sides = sides

    @cached_property
    def _roots(self) -> list[Entry]:
        return [seen(layers, contents=False)[0] for layers in self._sides]

    def hidden(self, path: str, entry: Entry) -> bool:
        """Whether an entry of a higher layer takes away something that a container would see."""
        if not entry.hides:
            return False
        found = [below for root in self._roots if (below := root.find(path)) is not None]
        return any(below.below for below in found) if entry.file is not None else bool(found)


def _values(
    path: str, one: Entry | None, other: Entry | None, lower: _Lower
) -> Iterator[tuple[str, Any, Any]]:
    """Yield aspect and both values, of each aspect that both sides can have."""
    files = [None if side is None else side.file for side in (one, other)]
    hides = [side is not None and side.is_folder and lower.hidden(path, side) for side in (one, other)]
    if files[0] is not None and files[1] is not None:
        for aspect in _ASPECTS:
            yield aspect, getattr(files[0], aspect), getattr(files[1], aspect)
    elif path != "/":
        types = [None if file is None else file.type for file in files]
        yield "presence", types[0], types[1]
    words = ["hides lower layers" if hidden else None for hidden in hides]
    yield "whiteout", words[0], words[1]


def _files(
    first: Sequence[SavedLayer], second: Sequence[SavedLayer], lower: _Lower
) -> Iterator[ImageDifference]:
    (a, order_a), (b, order_b) = seen(first), seen(second)
    differing = False
    for path, one, other in pairs(a, b):
        for aspect, value, other_value in _values(path, one, other, lower):
            if value != other_value:
                differing = True
                yield ImageDifference(
                    path=path,
                    aspect=aspect,
                    first=value,
                    second=other_value,
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
        lower = _Lower(first.layers[:start], second.layers[:start])
        take(_files(first.layers[start:], second.layers[start:], lower))
    return ImageComparison(
        first=tuple(ids[0]),
        second=tuple(ids[1]),
        counts=dict(sorted(counts.items())),
        differences=tuple(kept),
    )
