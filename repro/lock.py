"""What `repro.yaml` asked for, and what it became: every reference immutable."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.digest import DigestStr
from repro.noun import Noun

__all__ = [
    "AcceleratorLock",
    "ArtifactLock",
    "BaseLock",
    "FileLock",
    "GitState",
    "IndexLock",
    "Lock",
    "PackageFile",
    "PackageLock",
    "Platform",
    "SourceLock",
]


class FileLock(Noun):
    """One file: POSIX path relative to its root, size in bytes, digest that we computed."""

    path: str
    """POSIX, relative to the folder that the member is about."""
    size: int = Field(ge=0)
    """Bytes."""
    digest: DigestStr


class Platform(Noun):
    """What wheels are chosen for: the image's interpreter and machine, not the host's."""

    python: str
    """Major and minor, such as `3.11`."""
    os: str
    architecture: str
    """As `uname -m` says it: `x86_64`, `aarch64`."""
    libc: str | None = None
    """Such as `glibc 2.36`: the newest that a wheel may ask for."""
    python_full: str | None = None
    """Full version of the base's interpreter, such as `3.11.2`, where it was read."""


class PackageFile(Noun):
    """One wheel that goes into the image."""

    name: str
    version: str
    filename: str
    size: int = Field(ge=0)
    digest: DigestStr
    index: str
    """Index it came from: `default` is pip's own, `direct` a URL that was required, others: see `indexes`."""
    hash_source: Literal["published", "computed"]
    """Whether the index published this hash too, or only we computed it from the bytes."""
    requested: bool = False
    """Named in a requirements file, not only pulled in by another package."""
    url: str | None = None
    """Where a `direct` file was required from; null for all others, which any mirror may serve."""


class IndexLock(Noun):
    """An index of the project's own, from which wheels were taken."""

    name: str
    url: str
    """Without credentials. A folder of the project is relative to it, with forward slashes."""
    flat: bool
    """A page or folder of files, as `--find-links` takes it, and not a simple repository API."""


class PackageLock(Noun):
    """The exact wheels of one accelerator, and pip's own wheel that installs them."""

    platform: Platform
    requirements: DigestStr
    """Digest of `locks/requirements.<accelerator>.txt`."""
    pylock: DigestStr
    """Digest of `locks/pylock.<accelerator>.toml`."""
    compiled: DigestStr
    """Digest of `locks/compiled.<accelerator>.txt`: what pip-compile wrote, with every platform's hashes."""
    inputs: tuple[FileLock, ...]
    """Requirements and constraints files that were resolved."""
    indexes: tuple[IndexLock, ...] = ()
    """Every index but pip's own default that `files` name."""
    resolver: dict[str, str]
    """Versions of the tools that resolved, such as pip and pip-tools."""
    pip: PackageFile
    files: tuple[PackageFile, ...]
    """Sorted by name, one per package."""
    warnings: tuple[str, ...] = ()


class BaseLock(Noun):
    """A base image: what was asked, and what it is."""

    requested: str
    source: Literal["engine", "registry"]
    index_digest: DigestStr | None = None
    manifest_digest: DigestStr | None = None
    config_digest: DigestStr
    diff_ids: tuple[DigestStr, ...]
    os: str
    architecture: str
    libc: str | None = None
    """C library inside, such as `glibc 2.36`. This and all below was read in the layers; null: not found."""
    python: str | None = None
    """Full version of the `python3` that its PATH leads to."""
    torch: str | None = None
    cuda: str | None = None
    """Of the toolkit inside, else the one its torch was built for."""
    rocm: str | None = None
    """Likewise, of ROCm or HIP."""
    warnings: tuple[str, ...] = ()
    """Where tag or environment name other versions than lie inside, and what could not be read."""


class ArtifactLock(Noun):
    """A model or a data set."""

    name: str
    kind: Literal["hub", "git", "url", "path", "oci", "wheel"]
    requested: str
    resolved: str | None = None
    """What the reference leads to now, where that has another name."""
    requested_revision: str | None = None
    commit: str | None = None
    """The immutable revision: 40 hex digits for git and hub, null where the content is the identity."""
    target: str
    """Where the pilot sees it, relative to the working folder or absolute."""
    files: tuple[FileLock, ...]
    total_bytes: int = Field(ge=0)
    licence: str | None = None
    hints: dict[str, str] = Field(default_factory=dict)
    """What others call these files, such as an ETag or DVC's MD5. Recorded, never relied on."""
    warnings: tuple[str, ...] = ()


class GitState(Noun):
    """The working tree the source came from."""

    commit: str
    dirty: bool


class SourceLock(Noun):
    """Training source and configuration, by content."""

    files: tuple[FileLock, ...]
    git: GitState | None = None


class AcceleratorLock(Noun):
    """Everything locked for one accelerator."""

    spec_digest: DigestStr
    """Digest of the meaning of this accelerator's part of `repro.yaml`."""
    asked: dict[str, DigestStr]
    """Digest of the meaning of each key of that part, so that a stale lock can say which one changed."""
    dockerfile: FileLock
    base: BaseLock
    packages: PackageLock


class Lock(Noun):
    """`repro.lock`."""

    version: Literal[1] = 1
    name: str
    spec_digest: DigestStr
    """Digest of the meaning of `repro.yaml` without its accelerators; comments do not count."""
    asked: dict[str, DigestStr]
    """Digest of the meaning of each of its keys, such as `pilot.steps`."""
    ignored: tuple[str, ...]
    """Names of files and folders that no tree of this lock counts."""
    seed: int
    determinism: Literal["strict", "warn", "off"]
    source: SourceLock
    models: tuple[ArtifactLock, ...] = ()
    datasets: tuple[ArtifactLock, ...] = ()
    accelerators: dict[str, AcceleratorLock]
