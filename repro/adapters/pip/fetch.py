"""Bring wheels into the cache: in parallel, going on where an earlier run ended, checked while they come."""

from __future__ import annotations

import errno
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal
from urllib.parse import unquote, urlsplit

from repro.adapters.cache import FileCache
from repro.adapters.pip.failure import redact
from repro.adapters.pip.tools import Tools
from repro.digest import hex_of
from repro.errors import LockError, NetworkError
from repro.lock import PackageFile
from repro.ports import Progress

__all__ = ["Wanted", "fetch"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Wanted:
    """One wheel that pip takes."""

    name: str
    version: str
    url: str
    index: str
    published: str | None
    """Digest that the index publishes."""
    allowed: tuple[str, ...] | None
    """Digests that the requirements allow; None where they say nothing."""
    requested: bool

    @property
    def filename(self) -> str:
        """The wheel's name, with `%2B` and the like decoded."""
        return unquote(urlsplit(self.url).path.rpartition("/")[2])

    def locked(self, digest: str, size: int) -> PackageFile:
        """Return the lock's record of the file with these bytes.

        Raises:
            LockError: kind `hash-contradiction` or `hash-not-allowed`.
        """
        if self.published not in (None, digest):
            raise LockError(
                "hash-contradiction",
                f"the index {self.index} publishes {self.published} for {self.filename}, but serves {digest}",
                remedy="ask whoever runs the index; do not install the file before they answer",
            )
        if self.allowed is not None and digest not in self.allowed:
            raise LockError(
                "hash-not-allowed",
                f"{self.filename} is {digest}, which is none of the hashes that the requirements give",
                remedy="give the hash of the wheel for this platform too, or take the "
                "hashes out: the lock adds them",
            )
        source: Literal["published", "computed"] = "published" if self.published else "computed"
        return PackageFile(
            name=self.name,
            version=self.version,
            filename=self.filename,
            size=size,
            digest=digest,
            index=self.index,
            hash_source=source,
            requested=self.requested,
            url=redact(self.url) if self.index == "direct" else None,
        )


def fetch(
    files: Sequence[Wanted],
    tools: Tools,
    cache: FileCache,
    folder: Path,
    indexes: Sequence[Mapping[str, Any]],
    progress: Progress,
) -> list[PackageFile]:
    """Hold every file in the cache and return the lock's records.

    Args:
        folder: for files on their way, on the cache's file system.
        indexes: as the request to the tools names them, for their credentials.

    Raises:
        LockError: kind `hash-contradiction` or `hash-not-allowed`.
        NetworkError: kind `download-failed`.
    """
    locked: dict[str, PackageFile] = {}
    missing: dict[str, Wanted] = {}
    for number, file in enumerate(files):
        if file.published and (held := cache.path(file.published)):
            locked[file.name] = file.locked(file.published, held.stat().st_size)
        else:
            missing[str(folder / f"part-{number}")] = file
    if missing:
        progress.start("fetch wheels", total=len(missing))
        _Download(missing, locked, cache, progress).run(tools, folder, indexes)
    return [locked[file.name] for file in files]


@dataclass(slots=True)
class _Download:
    """Files on their way, by the path each is written to."""

    missing: Mapping[str, Wanted]
    locked: dict[str, PackageFile]
    cache: FileCache
    progress: Progress
    failures: list[Mapping[str, Any]] = field(default_factory=list)

    def _on_event(self, event: Mapping[str, Any]) -> None:
        if "failed" in event:
            self.failures.append(event)
        elif "done" in event:
            file, part = self.missing[event["done"]], Path(event["done"])
            size = part.stat().st_size
            digest = self.cache.add(part, move=True)
            self.locked[file.name] = file.locked(digest, size)
            self.progress.advance(note=file.filename)

    def run(self, tools: Tools, folder: Path, indexes: Sequence[Mapping[str, Any]]) -> None:
        """Download; what does not come whole is kept under the digest it should have, for the next time."""
        partial = self.cache.folder / "partial"
        partial.mkdir(parents=True, exist_ok=True)
        resumable = {
            part: partial / hex_of(file.published) for part, file in self.missing.items() if file.published
        }
        # A rename claims a file: two runs cannot go on with the same one.
        for part, kept in resumable.items():
            with suppress(FileNotFoundError):
                kept.rename(part)
        files = [{"url": file.url, "part": part} for part, file in self.missing.items()]
        request = {"cache": str(self.cache.folder), "files": files, "indexes": list(indexes)}
        try:
            code, said = tools.run("fetch", request, folder, self._on_event)
        finally:
            for part, kept in resumable.items():
                with suppress(FileNotFoundError):
                    Path(part).rename(kept)
        if self.failures:
            _refuse(self.failures, self.missing)
        if code:
            raise NetworkError("download-failed", f"the wheels could not be fetched: {said[-500:]}")


def _refuse(failures: Sequence[Mapping[str, Any]], missing: Mapping[str, Wanted]) -> None:
    if any(failure["errno"] == errno.ENOSPC for failure in failures):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    told = "; ".join(
        f"{missing[failure['failed']].filename}: {redact(failure['why'])}" for failure in failures
    )
    raise NetworkError(
        "download-failed",
        f"{len(failures)} of {len(missing)} wheels could not be fetched: {told}",
        remedy="run again: what came whole is kept, and the rest goes on where it ended",
    )
