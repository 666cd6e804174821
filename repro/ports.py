"""What the verbs need from the world. Adapters fulfil these; tests may too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from repro.digest import Digest
from repro.image import Builder, EngineInfo, HeldImage
from repro.job import Job, JobResult
from repro.lock import BaseLock, GitState, PackageFile, PackageLock, Platform
from repro.resolution import Found, Inputs, Reference, Resolution

__all__ = [
    "ArtifactSource",
    "BaseFinder",
    "Cache",
    "Clock",
    "Engine",
    "Git",
    "ImageRegistry",
    "OnLine",
    "Progress",
    "Resolver",
    "RunFolder",
    "Runtime",
    "Signer",
    "Timestamper",
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

    folder: Path
    """Root of the cache. Verbs keep what they can make again in subfolders of their own."""

    def path(self, digest: str) -> Path | None:
        """Return where the bytes with this digest lie, or None."""

    def add(self, source: Path, *, move: bool = False) -> Digest:
        """Take a file in, or a copy of it, and return the digest of its bytes."""


class Git(Protocol):
    """Reads a working tree."""

    def state(self, folder: Path) -> GitState | None:
        """Return commit and dirtiness of the tree that holds `folder`, or None where there is none."""


class ArtifactSource(Protocol):
    """Brings the files of a model or data set that lies elsewhere."""

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        """Write the files of a reference into the empty folder `into`.

        Raises:
            LockError: the reference cannot be made immutable.
            NetworkError: what must be asked does not answer.
        """


class BaseFinder(Protocol):
    """Finds base images."""

    def find(self, reference: str, *, architecture: str) -> BaseLock:
        """Resolve a mutable reference.

        Raises:
            LockError: kind `base-not-found` where no image answers to it.
        """


class Resolver(Protocol):
    """Turns requirement files into exact wheels held in the cache."""

    def resolve(
        self,
        inputs: Inputs,
        *,
        platform: Platform,
        previous: Sequence[PackageFile],
        upgrade: Sequence[str] | None,
        progress: Progress,
    ) -> Resolution:
        """Resolve and fetch.

        Args:
            inputs: requirement files, read.
            platform: what the wheels must fit, which need not be this machine.
            previous: what was locked before.
            upgrade: None keeps what `previous` has, () renews everything, names renew these packages.

        Raises:
            LockError: what is required cannot be had, or not without doubt.
            NetworkError: an index does not answer, or refuses.
        """

    def fetch(self, packages: PackageLock, *, root: Path, progress: Progress) -> None:
        """Hold every locked wheel in the cache; does no network work where all of them are there.

        Args:
            packages: what is locked.
            root: folder of the project, for indexes that lie in it.

        Raises:
            LockError: kind `wheel-gone` where no index has the file any more.
            NetworkError: an index does not answer, or refuses.
        """


class Engine(Protocol):
    """Holds and builds images.

    Every method may raise EngineError, kinds `engine-gone`, `disk-full`, `engine-failed`.
    """

    @property
    def builder(self) -> Builder:
        """What builds here."""

    def info(self) -> EngineInfo:
        """Say which engine this is."""

    def inspect(self, reference: str) -> HeldImage | None:
        """Return what the engine knows of an image, or None where it has none by that name or id."""

    def find(self, config_digest: str, *, diff_ids: Sequence[str] | None = None) -> HeldImage | None:
        """Return the image with this config digest, or None where it is not held.

        Args:
            config_digest: of the image.
            diff_ids: its layers, where they are known: some engines must read every image that may be it.
        """

    def pull(self, reference: str, *, on_line: OnLine) -> None:
        """Fetch an image, named by digest, from its registry.

        Raises:
            BuildError: kind `base-gone`.
            NetworkError: kind `registry-unreachable` or `registry-refused`.
        """

    def build(self, context: Iterator[bytes], *, arguments: Mapping[str, str], on_line: OnLine) -> str:
        """Build from a tar that holds `Dockerfile`, with no network and no cache; return the engine's own id.

        Whatever the build made beside the image is gone afterwards; so is the image where the build failed.

        Raises:
            BuildError: kind `build-failed`, with the step and its last lines.
        """

    def save(self, image: str) -> Iterator[bytes]:
        """Stream a docker-archive of an image."""

    def load(self, archive: Iterator[bytes]) -> str:
        """Load a docker-archive of one image; return the engine's own id."""

    def remove(self, image: str) -> None:
        """Remove an image and what only it needs."""


class ImageRegistry(Protocol):
    """One repository of a registry, to be written to.

    Every method may raise NetworkError, kinds `registry-unreachable`, `registry-refused`, `registry-failed`,
    `registry-wrong-bytes`, `registry-busy` or `credential-helper-missing`.
    """

    def push_blob(self, digest: str, size: int, chunks: Callable[[], Iterator[bytes]]) -> None:
        """Push `size` bytes, unless they are there; `chunks` gives them from their start each time."""

    def push_manifest(self, data: bytes, media_type: str, *, tag: str | None = None) -> object:
        """Push a manifest under its digest, or under a tag."""

    def read_back(self, version: str) -> tuple[Digest, Digest]:
        """Ask what a tag or a digest names now; return the digests of its manifest and of its config."""


class Runtime(Protocol):
    """Runs jobs, in images or on the host."""

    kind: str
    """`image` or `host`."""

    def run(self, job: Job, *, on_line: OnLine) -> JobResult:
        """Run to the end. The whole process tree is gone when this returns or raises."""


class RunFolder(Protocol):
    """Reads a folder that somebody else may have prepared. Links are never followed."""

    name: str
    """What to call the folder in messages."""

    def names(self) -> Sequence[str]:
        """Return every entry that is no folder, as sorted POSIX paths relative to the folder."""

    def read(self, name: str, *, limit: int) -> bytes:
        """Return a file's bytes, read once; at most `limit` of them.

        Raises:
            TrustError: kind `E_PATH` for anything but a plain file with one name, `E_SIZE` above `limit`.
        """

    def digest(self, name: str) -> tuple[Digest, int]:
        """Return a file's digest and size in bytes, read once in bounded memory.

        Raises:
            TrustError: kind `E_PATH`.
        """


class Signer(Protocol):
    """Holds a private key."""

    fingerprint: Digest
    """Digest of the public key, SPKI DER."""
    certificate: bytes | None
    """DER of the certificate for the key, where the key is certified."""

    def sign(self, message: bytes) -> bytes:
        """Return the signature: DER for ECDSA P-256 with SHA-256, 64 bytes for Ed25519."""


class Timestamper(Protocol):
    """Asks a time-stamping authority."""

    def stamp(self, message: bytes) -> bytes:
        """Return the DER of an RFC 3161 TimeStampResp over SHA-256 of `message`.

        Raises:
            NetworkError: where the authority does not answer.
        """
