"""Is a lock still true? Asked offline, of the files that are there now."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.errors import LockError
from repro.lock import AcceleratorLock, ArtifactLock, FileLock, Lock
from repro.resolve.asked import asked_by_accelerator, asked_by_all, changes
from repro.resolve.files import hash_file, hash_files, list_tree
from repro.resolve.packages import documents_of, read
from repro.resolve.reason import Reason
from repro.resolve.source import source_files
from repro.spec import Spec

__all__ = ["Freshness", "accelerator_reasons", "check", "compare_files"]

QUICK_BYTES = 32 << 20
"""Larger files of models and data sets are hashed only where a deep check was asked for."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Freshness:
    """Whether a lock holds."""

    reasons: tuple[Reason, ...]
    """Sentences that name the key or file; none where the lock is fresh."""
    unread: tuple[str, ...] = ()
    """Files of which only the size was compared."""

    @property
    def fresh(self) -> bool:
        """Whether nothing has changed since the lock was made."""
        return not self.reasons


def compare_files(
    locked: Sequence[FileLock], now: Sequence[FileLock], *, artifact: str = "", key: str = ""
) -> list[Reason]:
    """Say in sentences which files differ.

    Args:
        artifact: name of the model or data set whose files they are; else they are the project's own.
        key: of `repro.yaml` that names the artifact.
    """
    old = {file.path: file for file in locked}
    new = {file.path: file for file in now}
    told = []
    for path in sorted({*old, *new}):
        if path in old and path in new and old[path].digest == new[path].digest:
            continue
        what = "is gone" if path not in new else "is new" if path not in old else "has changed"
        text = f"{path} {what} since the lock was made"
        told.append(Reason.of_spec(f"{artifact}: {text}", key) if artifact else Reason(text, file=path))
    return told


def _one_file(file: FileLock, root: Path) -> Iterator[Reason]:
    if not (root / file.path).is_file():
        yield Reason(f"{file.path} is gone since the lock was made", file=file.path)
    elif hash_file(root / file.path)[0] != file.digest:
        yield Reason(f"{file.path} has changed since the lock was made", file=file.path)


def accelerator_reasons(spec: Spec, locked: AcceleratorLock, accelerator: str, root: Path) -> list[Reason]:
    """Say why the lock of one accelerator no longer holds.

    Raises:
        LockError: a requirement file cannot be read, or holds what no lock can.
    """
    told = changes(
        locked.asked, asked_by_accelerator(spec, accelerator), prefix=f"accelerators.{accelerator}."
    )
    if not told:
        told += _one_file(locked.dockerfile, root)
        inputs, _ = read(spec.accelerators[accelerator], root, locked.packages.platform)  # type: ignore[index]
        now = hash_files([(path, root / path) for path in sorted(inputs.documents)])
        told += compare_files(locked.packages.inputs, now)
    for field, path in documents_of(accelerator).items():
        place = root / path
        if not place.is_file():
            told.append(Reason(f"{path} is gone", file=path))
        elif hash_file(place)[0] != getattr(locked.packages, field):
            told.append(Reason(f"{path} is not the file that repro.lock records", file=path))
    return told


def _artifact(artifact: ArtifactLock, place: Path, key: str, *, deep: bool) -> tuple[list[Reason], list[str]]:
    """Return why an artifact's files no longer fit, and which were compared by size alone."""
    try:
        listed = list_tree(place)
    except LockError as error:
        return [Reason.of_spec(f"{artifact.name}: {error}", key)], []
    locked = {file.path: file for file in artifact.files}
    large = {
        name
        for name, path in listed
        if not deep and name in locked and path.stat().st_size == locked[name].size > QUICK_BYTES
    }
    now = hash_files([(name, path) for name, path in listed if name not in large])
    same = tuple(locked[name] for name in large)
    told = compare_files(artifact.files, (*now, *same), artifact=artifact.name, key=key)
    return told, [f"{artifact.name}: {name}" for name in sorted(large)]


def check(
    spec: Spec,
    lock: Lock,
    root: Path,
    *,
    places: Mapping[str, Path],
    accelerators: Sequence[str] | None = None,
    deep: bool = False,
) -> Freshness:
    """Compare a lock with the project as it is now. Never asks the network.

    Args:
        spec: `repro.yaml` as it is now.
        lock: `repro.lock`.
        root: folder of both.
        places: where each model and data set lies, by name. What was brought from elsewhere and is not
            there now does not make a lock stale.
        accelerators: which accelerators to look at; all by default.
        deep: hash large files of models and data sets too.

    Raises:
        LockError: a requirement file cannot be read, or holds what no lock can.
    """
    told = changes(lock.asked, asked_by_all(spec))
    told += compare_files(lock.source.files, source_files(spec, root, ignored=lock.ignored))
    unread: list[str] = []
    named = [("models", one) for one in lock.models] + [("datasets", one) for one in lock.datasets]
    for section, artifact in named:
        if artifact.kind == "path" or places[artifact.name].exists():
            key = f"{section}.{artifact.name}"
            reasons, sizes = _artifact(artifact, places[artifact.name], key, deep=deep)
            told += reasons
            unread += sizes
    for name in accelerators or sorted({*spec.accelerators, *lock.accelerators}):
        if name not in spec.accelerators:
            told.append(Reason.of_spec(f"repro.yaml no longer names the accelerator {name}", "accelerators"))
        elif name not in lock.accelerators:
            told.append(Reason.of_spec(f"the accelerator {name} is not locked", f"accelerators.{name}"))
        else:
            told += accelerator_reasons(spec, lock.accelerators[name], name, root)
    return Freshness(reasons=tuple(told), unread=tuple(unread))
