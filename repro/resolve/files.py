"""Folders by content: which files count, and what they are.

A tree's files are listed with POSIX paths relative to it, sorted by path. What
`IGNORED` names is left out wherever it stands, before anything else is looked at.
A symbolic link to a file inside the tree counts as that file; any other link is
refused, and so is whatever is no plain file, for nobody else would have it.
"""

from __future__ import annotations

import fnmatch
import hashlib
import os
import stat
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from repro.errors import LockError
from repro.lock import FileLock
from repro.ports import Progress

__all__ = ["IGNORED", "hash_file", "hash_files", "hash_tree", "list_tree"]

IGNORED = (
    ".DS_Store",
    ".cache",
    ".git",
    ".hg",
    ".ipynb_checkpoints",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".svn",
    ".venv",
    "*.pyc",
    "__pycache__",
)
"""Names, with `*` for anything, of what no tree counts: what tools and version control leave behind."""

_WORKERS = min(16, (os.cpu_count() or 1) + 2)


def _check_name(path: str) -> None:
    """Refuse names that two machines may write differently."""
    try:
        path.encode("utf-8")
    except UnicodeEncodeError:
        raise LockError(
            "name-unusable", f"the name {path!r} is not UTF-8", where=path, remedy="rename the file"
        ) from None
    if not unicodedata.is_normalized("NFC", path) or any(
        unicodedata.category(char) in ("Cc", "Cf", "Co", "Cn") for char in path
    ):
        raise LockError(
            "name-unusable",
            f"the name {path!r} holds characters that machines write differently",
            where=path,
            remedy="rename the file",
        )


def _is_ignored(name: str, ignored: Sequence[str]) -> bool:
    return any(fnmatch.fnmatchcase(name, pattern) for pattern in ignored)


def _inside(path: Path, root: Path) -> Path:
    """Return what a link leads to, a plain file below `root`."""
    try:
        target = path.resolve(strict=True)
    except OSError:
        raise LockError(
            "link-broken",
            "the link leads nowhere",
            where=str(path),
            remedy="remove the link, or put the file there",
        ) from None
    if not target.is_relative_to(root.resolve()) or not target.is_file():
        raise LockError(
            "link-outside",
            f"the link leads to {target}, which is no file inside the locked folder",
            where=str(path),
            remedy="put a copy of the file there instead of the link",
        )
    return target


def list_tree(
    root: Path, *, ignored: Sequence[str] = IGNORED, without: Iterable[Path] = ()
) -> list[tuple[str, Path]]:
    """List the files that count below `root`, or `root` itself where it is a file.

    Args:
        root: folder or file.
        ignored: names to leave out, as in `IGNORED`.
        without: further paths to leave out with all below them.

    Returns:
        POSIX path relative to `root` (a lone file's own name) and the place to read it, sorted by path.

    Raises:
        LockError: `input-missing`, `link-broken`, `link-outside`, `file-special` or `name-unusable`.
    """
    if root.is_file():
        return [(root.name, root)]
    if not root.is_dir():
        raise LockError(
            "input-missing",
            "neither a file nor a folder is there",
            where=str(root),
            remedy="correct the path",
        )
    excluded = {os.fspath(path) for path in without}
    return sorted(_walk(root, root, ignored, excluded))


def _walk(folder: Path, root: Path, ignored: Sequence[str], excluded: set[str]) -> Iterator[tuple[str, Path]]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if _is_ignored(entry.name, ignored) or entry.path in excluded:
                continue
            path = Path(entry.path)
            relative = path.relative_to(root).as_posix()
            _check_name(relative)
            if entry.is_symlink():
                yield relative, _inside(path, root)
            elif entry.is_dir():
                yield from _walk(path, root, ignored, excluded)
            elif stat.S_ISREG(entry.stat().st_mode):
                yield relative, path
            else:
                raise LockError(
                    "file-special",
                    "this is no plain file",
                    where=entry.path,
                    remedy="move it out of the folder",
                )


def hash_file(path: Path) -> tuple[str, int]:
    """Return the digest and size in bytes of a file, read once in bounded memory."""
    with path.open("rb") as stream:
        state = hashlib.file_digest(stream, "sha256")
        return f"sha256:{state.hexdigest()}", stream.tell()


def hash_files(listed: Sequence[tuple[str, Path]], progress: Progress | None = None) -> tuple[FileLock, ...]:
    """Hash listed files, several at once: OpenSSL's SHA-256 runs without the interpreter's lock."""

    def one(item: tuple[str, Path]) -> FileLock:
        digest, size = hash_file(item[1])
        return FileLock(path=item[0], size=size, digest=digest)

    if len(listed) < 2:
        return tuple(map(one, listed))
    # The largest first, so that no thread is left alone with it at the end.
    order = sorted(range(len(listed)), key=lambda index: -listed[index][1].stat().st_size)
    done: dict[int, FileLock] = {}
    with ThreadPoolExecutor(_WORKERS) as pool:
        for index, file in zip(order, pool.map(one, [listed[index] for index in order]), strict=True):
            done[index] = file
            if progress is not None:
                progress.advance(file.size, file.path)
    return tuple(done[index] for index in range(len(listed)))


def hash_tree(
    root: Path,
    *,
    ignored: Sequence[str] = IGNORED,
    without: Iterable[Path] = (),
    progress: Progress | None = None,
) -> tuple[FileLock, ...]:
    """List and hash a tree.

    Raises:
        LockError: as `list_tree`.
    """
    return hash_files(list_tree(root, ignored=ignored, without=without), progress)
