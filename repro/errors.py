"""Every error this project raises on purpose.

One root, one family per part of the pipeline, and a *kind* per fault: a short
kebab-case name that stays stable, so that scripts and tests can match on it.
`docs/errors.md` lists every kind; a test keeps the two in step.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

__all__ = [
    "BuildError",
    "CompareError",
    "EngineError",
    "FileError",
    "Flaw",
    "HostError",
    "LockError",
    "NetworkError",
    "ReproError",
    "RunError",
    "SpecError",
    "TraceError",
    "TrustError",
]


class ReproError(Exception):
    """What failed, where, and what to do about it.

    Args:
        kind: stable kebab-case name of the fault, such as ``engine-absent``.
        message: one sentence that says what failed, without a trailing full stop.
        where: file, line, key, step or reference the fault belongs to.
        remedy: what a person can do next.
    """

    family: ClassVar[str] = "error"

    def __init__(
        self, kind: str, message: str, *, where: str | None = None, remedy: str | None = None
    ) -> None:
        super().__init__(kind, message)
        self.kind = kind
        self.message = message
        self.where = where
        self.remedy = remedy

    def __str__(self) -> str:
        return f"{self.where}: {self.message}" if self.where else self.message


@dataclass(frozen=True, kw_only=True, slots=True)
class Flaw:
    """One thing wrong with a document: `line` and `column` count from 1, 0 means the whole file."""

    path: str
    line: int
    column: int
    message: str


class SpecError(ReproError):
    """`repro.yaml` or another file written by hand cannot be used; `flaws` holds every reason at once."""

    family = "spec"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        flaws: Sequence[Flaw] = (),
    ) -> None:
        super().__init__(kind, message, where=where, remedy=remedy)
        self.flaws = tuple(flaws)


class LockError(ReproError):
    """A mutable reference could not be made immutable, or the lock does not hold.

    `reasons` says why, where a lock is stale: a `repro.resolve.reason.Reason` each.
    """

    family = "lock"

    def __init__(
        self,
        kind: str,
        message: str,
        *,
        where: str | None = None,
        remedy: str | None = None,
        reasons: Sequence[str] = (),
    ) -> None:
        super().__init__(kind, message, where=where, remedy=remedy)
        self.reasons = tuple(reasons)


class BuildError(ReproError):
    """An image could not be built, normalised or loaded."""

    family = "build"


class EngineError(ReproError):
    """The container engine is absent, refused, or went away."""

    family = "engine"


class RunError(ReproError):
    """The pilot did not start, did not finish, or was not recorded."""

    family = "run"


class TraceError(ReproError):
    """A recorded trace cannot be read."""

    family = "trace"


class CompareError(ReproError):
    """Two runs cannot be put side by side."""

    family = "compare"


class TrustError(ReproError):
    """A key, signature, statement or trust policy cannot be used; `kind` is the check's code."""

    family = "trust"


class HostError(ReproError):
    """A fact about this machine could not be read."""

    family = "host"


class NetworkError(ReproError):
    """Something outside this machine did not answer as it should."""

    family = "network"


class FileError(ReproError):
    """A file or folder could not be read or written."""

    family = "file"
