"""Read a project folder: `repro.yaml`, `repro.lock` and `locks/`."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import click
from pydantic import ValidationError

from repro import strictjson, strictyaml
from repro.adapters.cache import FileCache, cache_folder
from repro.errors import LockError, SpecError, TrustError
from repro.lock import Lock
from repro.resolve import check
from repro.resolve.packages import documents_of
from repro.resolve.places import places
from repro.spec import Spec

__all__ = [
    "Locked",
    "Written",
    "choose",
    "file_cache",
    "locked_project",
    "parse_lock",
    "read_lock",
    "read_spec",
    "spec_bytes",
]


@dataclass(frozen=True, slots=True)
class Written:
    """A spec and the exact bytes it was read from."""

    root: Path
    spec: Spec
    data: bytes


@dataclass(frozen=True, slots=True)
class Locked:
    """A lock and the exact bytes of everything that makes it up, by path in the project."""

    lock: Lock
    documents: dict[str, bytes]


def spec_bytes(root: Path) -> bytes:
    """Read `repro.yaml` as it is.

    Raises:
        SpecError: `spec-missing` or `spec-not-a-file`.
    """
    path = root / "repro.yaml"
    if path.exists() and not path.is_file():
        raise SpecError(
            "spec-not-a-file",
            "repro.yaml is no plain file",
            where=str(path),
            remedy="put a file there, or name the project's folder with -C",
        )
    try:
        return path.read_bytes()
    except FileNotFoundError:
        raise SpecError(
            "spec-missing",
            "there is no repro.yaml",
            where=str(path),
            remedy="write one with `repro init`, or name the project's folder with -C",
        ) from None


def read_spec(root: Path) -> Written:
    """Read and check `repro.yaml`.

    Raises:
        SpecError: `spec-missing`, `spec-not-a-file`, or every flaw of the file at once.
    """
    data, path = spec_bytes(root), root / "repro.yaml"
    document = strictyaml.load(data, where=str(path))
    return Written(root.resolve(), strictyaml.validate(document, Spec, where=str(path)), data)


def parse_lock(data: bytes, *, where: str) -> Lock:
    """Parse `repro.lock`.

    Raises:
        LockError: `lock-invalid`.
    """
    remedy = "write it again with `repro lock`"
    try:
        return Lock.parse(strictjson.loads(data, where=where))
    except TrustError as error:
        raise LockError("lock-invalid", error.message, where=where, remedy=remedy) from None
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise LockError("lock-invalid", f"{place}: {first['msg']}", where=where, remedy=remedy) from None


def read_lock(root: Path, accelerators: list[str]) -> Locked:
    """Read `repro.lock` and the package locks of the given accelerators.

    Raises:
        LockError: `lock-missing`, `lock-invalid`, or `accelerator-unlocked`.
    """
    path = root / "repro.lock"
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        raise LockError(
            "lock-missing", "there is no repro.lock", where=str(path), remedy="write it with `repro lock`"
        ) from None
    lock = parse_lock(data, where=str(path))
    documents = {"repro.lock": data}
    for name in accelerators:
        if name not in lock.accelerators:
            raise LockError(
                "accelerator-unlocked",
                f"{name} is not locked",
                where=str(path),
                remedy=f"lock it with `repro lock -a {name}`",
            )
        for document in documents_of(name).values():
            if (root / document).is_file():
                documents[document] = (root / document).read_bytes()
    return Locked(lock, documents)


def choose(spec: Spec, accelerator: str | None) -> str:
    """Return the accelerator to work on.

    Raises:
        SpecError: `accelerator-unknown`.
        click.UsageError: several are there and none was named.
    """
    names = sorted(spec.accelerators)
    if accelerator is None:
        if len(names) == 1:
            return names[0]
        raise click.UsageError(f"repro.yaml names {', '.join(names)}: choose one with -a")
    if accelerator not in names:
        raise SpecError(
            "accelerator-unknown",
            f"repro.yaml has no accelerator {accelerator}, only {', '.join(names)}",
            where="accelerators",
            remedy=f"add it to repro.yaml, or choose with -a {names[0]}",
        )
    return accelerator


def file_cache() -> FileCache:
    """Open this person's cache of content-addressed files."""
    return FileCache(cache_folder(os.environ))


def locked_project(root: Path, accelerator: str | None) -> tuple[Written, Locked, str]:
    """Read a project whose lock is fresh, and the name of the accelerator to work on.

    Raises:
        SpecError: `repro.yaml` has flaws.
        LockError: `lock-missing`, `lock-invalid`, or `lock-stale` with every reason.
    """
    written = read_spec(root)
    name = choose(written.spec, accelerator)
    locked = read_lock(root, [name])
    where = places(locked.lock, written.root, file_cache())
    freshness = check(written.spec, locked.lock, written.root, places=where, accelerators=[name])
    if not freshness.fresh:
        raise LockError(
            "lock-stale",
            "; ".join(freshness.reasons),
            where=str(root / "repro.lock"),
            remedy=f"lock again with `repro lock -a {name}`",
            reasons=freshness.reasons,
        )
    return written, locked, name
