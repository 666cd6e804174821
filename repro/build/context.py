"""Plan → build context: a tar of the same bytes whoever makes it, streamed."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from repro.build.plan import requirements_text
from repro.build.tarball import DIRECTORY, END, Entry, file_entry, header, padding
from repro.digest import CHUNK_BYTES, digest_stream
from repro.errors import BuildError
from repro.image import BuildPlan
from repro.lock import FileLock
from repro.ports import Cache

__all__ = ["check_inputs", "context_chunks", "copy_file", "folders_of", "installed_size"]


def _wheel_path(wheel: FileLock, cache: Cache) -> Path:
    path = cache.path(wheel.digest)
    if path is None:
        raise BuildError(
            "wheel-absent",
            f"the cache does not hold {wheel.path}",
            where=wheel.digest,
            remedy="fetch the locked wheels again with `repro lock`",
        )
    return path


def _require(file: FileLock, path: Path) -> None:
    """Check that a file of the project still is what was locked."""
    try:
        with path.open("rb") as stream:
            digest, size = digest_stream(stream)
    except OSError as error:
        raise BuildError(
            "source-missing",
            f"a locked file cannot be read: {error.strerror}",
            where=file.path,
            remedy="restore it, or lock again with `repro lock`",
        ) from None
    if (digest, size) != (file.digest, file.size):
        raise BuildError(
            "source-changed",
            f"the file is not what was locked: expected {file.digest}, found {digest}",
            where=file.path,
            remedy="lock again with `repro lock`, or restore the file",
        )


def check_inputs(plan: BuildPlan, *, root: Path, cache: Cache) -> None:
    """Check that everything the plan names is at hand, unchanged.

    Args:
        root: the project's folder.

    Raises:
        BuildError: `wheel-absent`, `source-missing` or `source-changed`.
    """
    for wheel in (plan.pip, *plan.wheels):
        _wheel_path(wheel, cache)
    for file in (plan.dockerfile, *plan.source):
        _require(file, root / file.path)


def installed_size(plan: BuildPlan, cache: Cache) -> int:
    """Bytes that the wheels take up once unpacked."""
    total = 0
    for wheel in plan.wheels:
        with zipfile.ZipFile(_wheel_path(wheel, cache)) as archive:
            total += sum(info.file_size for info in archive.infolist())
    return total


def _is_script(path: Path) -> bool:
    with path.open("rb") as stream:
        return stream.read(2) == b"#!"


def copy_file(
    name: str,
    path: Path,
    expected: FileLock,
    epoch: int,
    on_bytes: Callable[[int], None] = lambda _: None,
) -> Iterator[bytes]:
    """Yield one file. A file that starts with `#!` is executable: its mode, too, follows from its content."""
    mode = 0o755 if _is_script(path) else 0o644
    yield header(file_entry(name, expected.size, mode=mode), epoch)
    left = expected.size
    with path.open("rb") as stream:
        while left and (chunk := stream.read(min(left, CHUNK_BYTES))):
            yield chunk
            left -= len(chunk)
            on_bytes(len(chunk))
    if left:
        raise BuildError("source-changed", "the file became shorter while it was read", where=expected.path)
    yield padding(expected.size)


def folders_of(names: list[str]) -> set[str]:
    """Return every folder above these names."""
    return {str(parent) for name in names for parent in PurePosixPath(name).parents if str(parent) != "."}


def context_chunks(
    plan: BuildPlan, *, root: Path, cache: Cache, on_bytes: Callable[[int], None] = lambda _: None
) -> Iterator[bytes]:
    """Yield the context: `Dockerfile`, `requirements.txt`, `pip/`, `wheels/` and `source/`, sorted by name.

    Call `check_inputs` first.

    Args:
        root: the project's folder.
        on_bytes: called with the number of content bytes sent since the last call.
    """
    text = requirements_text(plan.wheels)
    files = {
        "Dockerfile": (plan.dockerfile, root / plan.dockerfile.path),
        f"pip/{plan.pip.path}": (plan.pip, _wheel_path(plan.pip, cache)),
        **{f"wheels/{wheel.path}": (wheel, _wheel_path(wheel, cache)) for wheel in plan.wheels},
        **{f"source/{file.path}": (file, root / file.path) for file in plan.source},
    }
    folders = {"pip", "source", "wheels"} | folders_of(list(files))
    for name in sorted({*files, *folders, "requirements.txt"}):
        if name in folders:
            yield header(Entry(name=name.encode(), kind=DIRECTORY, mode=0o755), plan.epoch)
        elif name in files:
            locked, path = files[name]
            yield from copy_file(name, path, locked, plan.epoch, on_bytes)
        else:
            yield header(file_entry(name, len(text)), plan.epoch) + text + padding(len(text))
    yield END
