"""What the verbs need from the world. Adapters fulfil these; tests may too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, BinaryIO, Protocol

from repro.digest import Digest
from repro.job import Job, JobResult
from repro.lock import BaseLock, GitState, PackageFile, Platform

__all__ = [
    "BaseFinder",
    "Cache",
    "Clock",
    "Engine",
    "EngineInfo",
    "Git",
    "OnLine",
    "Progress",
    "Resolution",
    "Resolver",
    "Runtime",
]

OnLine = Callable[[str], None]
"""Called with each line of output, without its line end."""


class Progress(Protocol):
    """Tells a person how far something is."""

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a named piece of work of `total` units, where that is known."""

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count `amount` more units."""

    def line(self, text: str) -> None:
        """Say one line."""


class Clock(Protocol):
    """Wall clock, injected so that records can be tested."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC."""


class Cache(Protocol):
    """Content-addressed files on this machine, checked when they enter."""

    def path(self, digest: str) -> Path | None:
        """Return where the bytes with this digest lie, or None."""

    def add(self, source: Path, *, name: str) -> Digest:
        """Take a copy of a file in and return its digest."""


class Git(Protocol):
    """Reads a working tree."""

    def state(self, folder: Path) -> GitState | None:
        """Return commit and dirtiness of the tree that holds `folder`, or None where there is none."""


class BaseFinder(Protocol):
    """Finds base images."""

    def find(self, reference: str, *, architecture: str) -> BaseLock:
        """Resolve a mutable reference.

        Raises:
            LockError: kind `base-not-found` where no image answers to it.
        """


class Resolution(Protocol):
    """What a resolver found: the human lock and the exact wheels."""

    human: str
    """pip-compile's output with hashes, without host paths or index addresses."""
    pip: PackageFile
    files: Sequence[PackageFile]
    tools: Mapping[str, str]


class Resolver(Protocol):
    """Turns requirement files into exact wheels held in the cache."""

    def resolve(
        self,
        requirements: Sequence[Path],
        constraints: Sequence[Path],
        *,
        platform: Platform,
        indexes: Sequence[Any],
        previous: Sequence[PackageFile],
        upgrade: Sequence[str] | None,
        progress: Progress,
    ) -> Resolution:
        """Resolve and fetch. `upgrade` is None to keep what `previous` has, () to renew everything."""


class EngineInfo(Protocol):
    """Which engine answers."""

    name: str
    version: str
    store: str
    host: str


class Engine(Protocol):
    """Holds and builds images."""

    def info(self) -> EngineInfo:
        """Say which engine this is."""

    def inspect(self, reference: str) -> Mapping[str, Any] | None:
        """Return what the engine knows of an image, or None where it has none by that name or id."""

    def build(self, context: BinaryIO, *, arguments: Mapping[str, str], on_line: OnLine) -> str:
        """Build from a tar that holds `Dockerfile`, with no network; return the engine's own id."""

    def save(self, image: str) -> Iterator[bytes]:
        """Stream a docker-archive of an image."""

    def load(self, archive: Iterator[bytes] | BinaryIO) -> str:
        """Load a docker-archive; return the engine's own id."""

    def remove(self, image: str) -> None:
        """Remove an image and what only it needs."""


class Runtime(Protocol):
    """Runs jobs, in images or on the host."""

    kind: str
    """`image` or `host`."""

    def run(self, job: Job, *, on_line: OnLine) -> JobResult:
        """Run to the end. The whole process tree is gone when this returns or raises."""
