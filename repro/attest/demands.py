"""What an auditor may ask for beyond their policy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import timedelta

from repro.digest import Digest
from repro.image import ImageIdentity
from repro.lock import ArtifactLock, FileLock

__all__ = ["Demands", "FindFiles", "FindImage"]

FindImage = Callable[[ImageIdentity], ImageIdentity | None]
"""Looks for an image where the caller said, and says what lies there."""

FindFiles = Callable[[ArtifactLock, Sequence[str]], Iterable[FileLock] | None]
"""Hashes a model or a data set where the caller has it, but for files that the lock ignores."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Demands:
    """What an auditor asks for beyond the policy."""

    project: str | None = None
    run_id: str | None = None
    max_age: timedelta | None = None
    """Largest age of the signature, proved by a time stamp."""
    strict: bool = False
    """Refuse files that no signature covers."""
    replays: bool = True
    """Apply the policy's rule about replays; False while a replay is about to be made."""
    image_digest: Digest | None = None
    """Digest of the image manifest that the run must name: what it was found attached to."""
    image: FindImage | None = None
    models: FindFiles | None = None
    datasets: FindFiles | None = None
