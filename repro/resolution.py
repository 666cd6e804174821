"""What resolvers are asked, and what they answer. Lives for one `repro lock`; the lock keeps the outcome."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.lock import PackageFile
from repro.noun import Noun

__all__ = ["Found", "Inputs", "Reference", "Resolution", "WheelIndex"]


class Reference(Noun):
    """A model or data set that lies elsewhere."""

    text: str
    """As `repro.yaml` has it, for one kind of source."""
    revision: str | None
    """The revision that is wanted; None for the source's own default."""
    role: Literal["model", "dataset"]


class Found(Noun):
    """What a source says of the files it brought. Their digests are for the asker to compute."""

    requested: str
    """The reference, without any credential."""
    resolved: str | None = None
    """What it leads to now, where that has another name."""
    commit: str | None = None
    """The immutable revision, where the source has such a thing."""
    licence: str | None = None
    hints: dict[str, str] = Field(default_factory=dict)
    """What the source says identifies its files, by path. Kept, never relied on."""
    warnings: tuple[str, ...] = ()


class WheelIndex(Noun):
    """A place that serves wheels, named by the project."""

    name: str
    url: str
    """May hold `${VARIABLE}` or a folder of this machine: for the resolver alone, never for the lock."""
    flat: bool = False
    """A page or folder of files, as `--find-links` takes it, and not a simple repository API."""
    packages: tuple[str, ...] = ()
    """Normalised names that come from here and from nowhere else; without any, all names may."""


class Inputs(Noun):
    """Requirement files as a resolver takes them: options and hashes read out, references relative."""

    requirements: tuple[str, ...]
    """Paths of the files to resolve, keys of `documents`."""
    constraints: tuple[str, ...] = ()
    documents: dict[str, str]
    """Text by POSIX path relative to the project; holds requirements, `-r` and `-c` lines only."""
    indexes: tuple[WheelIndex, ...] = ()
    replaces_default: bool = False
    """Whether a requirement file names its own `--index-url`, so that pip's default is not asked."""
    prereleases: bool = False
    closed: tuple[str, ...] | None = None
    """The only names that may be locked, where all of the requirements are a lock already."""
    direct: tuple[str, ...] = ()
    """Normalised names of the packages that a requirement gives by the URL of a wheel."""
    allowed: dict[str, tuple[str, ...]] = Field(default_factory=dict)
    """Digests that the requirement files allow, by normalised name; a name that is absent is free."""


class Resolution(Noun):
    """The exact wheels, held in the cache."""

    compiled: str
    """pip-compile's output: every pin, the published hashes of each release, and why it is there."""
    pip: PackageFile
    """The wheel of the pip that installs them."""
    files: tuple[PackageFile, ...]
    """One wheel per package, sorted by name."""
    tools: dict[str, str]
    """Versions of the tools that resolved."""
    warnings: tuple[str, ...] = ()
