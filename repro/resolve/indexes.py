"""Package indexes by name: declared in `repro.yaml`, given in requirement files, and used in a lock."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit, urlunsplit

from packaging.utils import canonicalize_name

from repro.errors import LockError
from repro.lock import IndexLock
from repro.resolution import Inputs, Resolution, WheelIndex
from repro.spec import IndexSpec

__all__ = ["declared_indexes", "index_name", "used_indexes"]

RESERVED = ("default", "direct")
"""Index names of the lock itself: pip's own default, and a wheel that is required by its URL."""


def index_name(place: str) -> str:
    """Return a name for an index that a requirement file gives by address: host and path, no credential."""
    parts = urlsplit(place)
    host = parts.hostname or "folder"
    words = [host, *(part for part in PurePosixPath(parts.path).parts if part not in ("/", "simple"))]
    if parts.hostname is None:
        words = ["folder", PurePosixPath(parts.path).name]
    return re.sub(r"[^a-z0-9._-]+", "-", "-".join(words).lower()).strip("-._")[:64]


def declared_indexes(indexes: Sequence[IndexSpec]) -> list[WheelIndex]:
    """Check the indexes of `repro.yaml` against each other."""
    declared: list[WheelIndex] = []
    bound: dict[str, str] = {}
    for index in indexes:
        if index.name in RESERVED or index.name in [other.name for other in declared]:
            raise LockError(
                "index-name-taken",
                f"the index name {index.name} stands for something else",
                where="accelerators.*.indexes",
                remedy=f"choose a name of its own; {' and '.join(RESERVED)} are taken",
            )
        packages = tuple(canonicalize_name(name) for name in index.packages)
        for name in packages:
            if name in bound:
                raise LockError(
                    "index-ambiguity",
                    f"{name} is bound to {bound[name]} and to {index.name}",
                    where="accelerators.*.indexes",
                    remedy="bind it to one of them",
                )
            bound[name] = index.name
        declared.append(WheelIndex(name=index.name, url=index.url, packages=packages))
    return declared


def used_indexes(inputs: Inputs, resolution: Resolution, root: Path) -> tuple[IndexLock, ...]:
    """Record the project's own indexes that files came from. No credential, and no place of this machine."""
    used = {file.index for file in resolution.files}
    locked = []
    for index in inputs.indexes:
        if index.name not in used:
            continue
        url = _without_secret(index.url)
        if "://" not in url:
            place = Path(url)
            if not place.is_relative_to(root.resolve()):
                raise LockError(
                    "index-outside-project",
                    f"wheels came from the folder {url}, which others do not have",
                    where=index.name,
                    remedy="put the wheels into the project, or serve them from an index",
                )
            url = place.relative_to(root.resolve()).as_posix()
        locked.append(IndexLock(name=index.name, url=url, flat=index.flat))
    return tuple(locked)


def _without_secret(url: str) -> str:
    parts = urlsplit(url)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.netloc else url
