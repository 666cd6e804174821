"""What DVC says of files that lie beside its `.dvc` files. Its MD5 sums are compared, and never relied on.

Three ages of the format are read: a list of outputs alone; `outs` whose MD5 may be
that of the text with Unix line ends; and `outs` with `hash: md5`, that of the bytes.
https://dvc.org/doc/user-guide/project-structure/dvc-files
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from repro import strictyaml
from repro.errors import LockError, SpecError

__all__ = ["DvcOut", "check_dvc", "read_dvc"]

_CHUNK = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class DvcOut:
    """One output of a `.dvc` file."""

    path: str
    """Relative to the `.dvc` file."""
    md5: str
    """32 hex digits."""
    folder: bool
    """Whether the sum is that of a folder's list of files."""
    size: int | None
    of_bytes: bool
    """Whether it is the sum of the bytes as they are, and not perhaps of text with Unix line ends."""


def read_dvc(data: bytes, *, where: str) -> tuple[DvcOut, ...]:
    """Read a `.dvc` file.

    Raises:
        LockError: kind `dvc-malformed`.
    """
    try:
        tree: Any = strictyaml.load(data, where=where).value
        outs = tree if isinstance(tree, list) else tree["outs"]
        return tuple(_out(out) for out in outs)
    except (SpecError, KeyError, TypeError, AttributeError) as error:
        raise LockError(
            "dvc-malformed", f"the file names no outputs ({type(error).__name__})", where=where
        ) from None


def _out(out: dict[str, Any]) -> DvcOut:
    md5 = str(out["md5"])
    return DvcOut(
        path=str(out["path"]),
        md5=md5.removesuffix(".dir"),
        folder=md5.endswith(".dir"),
        size=out.get("size"),
        of_bytes=out.get("hash") == "md5",
    )


def _md5(path: Path, *, unix: bool = False) -> str:
    """MD5 of a file; `unix` for text with `\\r\\n` taken as `\\n`, as DVC before 3.0 did."""
    state = hashlib.md5(usedforsecurity=False)
    with path.open("rb") as stream:
        for chunk in iter(lambda: stream.read(_CHUNK), b""):
            while unix and chunk.endswith(b"\r") and (more := stream.read(1)):
                chunk += more
            state.update(chunk.replace(b"\r\n", b"\n") if unix else chunk)
    return state.hexdigest()


def _folder_md5(files: Sequence[tuple[str, Path]], *, unix: bool) -> str:
    """MD5 of DVC's own list of a folder: the sums and paths of its files, sorted, as JSON."""
    listed = [{"md5": _md5(path, unix=unix), "relpath": name} for name, path in sorted(files)]
    return hashlib.md5(json.dumps(listed, sort_keys=True).encode(), usedforsecurity=False).hexdigest()


def _sums(out: DvcOut, files: Sequence[tuple[str, Path]]) -> Iterator[str]:
    """Yield every sum that would do."""
    for unix in (False,) if out.of_bytes else (False, True):
        yield _folder_md5(files, unix=unix) if out.folder else _md5(files[0][1], unix=unix)


@dataclass(frozen=True, slots=True)
class _Tracked:
    """A `.dvc` file, and the listed files it may speak of, by path relative to the folder it lies in."""

    name: str
    path: Path
    files: tuple[tuple[str, Path], ...]

    def members(self, out: DvcOut) -> list[tuple[str, Path]]:
        """Return the files of an output: itself, or those of a folder with paths relative to it."""
        if not out.folder:
            return [(name, path) for name, path in self.files if name == out.path]
        head = f"{out.path}/"
        return [(name.removeprefix(head), path) for name, path in self.files if name.startswith(head)]


def _tracked(place: Path, listed: Sequence[tuple[str, Path]]) -> Iterator[_Tracked]:
    """Yield the `.dvc` files among the listed ones, and the one beside them all."""
    for name, path in listed:
        if name.endswith(".dvc"):
            head = name.removesuffix(PurePosixPath(name).name)
            inner = ((other.removeprefix(head), at) for other, at in listed if other.startswith(head))
            yield _Tracked(name, path, tuple(inner))
    beside = place.with_name(f"{place.name}.dvc")
    if beside.is_file():
        alone = place.is_file()
        names = ((place.name if alone else f"{place.name}/{name}", path) for name, path in listed)
        yield _Tracked(beside.name, beside, tuple(names))


def check_dvc(
    place: Path, listed: Sequence[tuple[str, Path]], *, where: str
) -> tuple[dict[str, str], list[str]]:
    """Compare listed files with the `.dvc` files among them and beside `place`.

    Args:
        place: the file or folder that is locked.
        listed: its files, as `list_tree` gives them.
        where: what is looked at, for messages.

    Returns:
        MD5 sums by `.dvc` file and path, and warnings of outputs that are not there.

    Raises:
        LockError: kind `hash-mismatch` where a file is not what DVC says, or `dvc-malformed`.
    """
    hints: dict[str, str] = {}
    warnings: list[str] = []
    for file in _tracked(place, listed):
        for out in read_dvc(file.path.read_bytes(), where=file.name):
            members = file.members(out)
            if not members:
                warnings.append(f"{file.name}: {out.path} is not here; `dvc pull` fetches it")
                continue
            if out.md5 not in (sums := list(_sums(out, members))):
                raise LockError(
                    "hash-mismatch",
                    f"{file.name} says that {out.path} has the MD5 {out.md5}; it has {sums[0]}",
                    where=where,
                    remedy="fetch it again with `dvc pull`, or record it with `dvc add`, then lock again",
                )
            hints[f"{file.name}: {out.path}"] = f"md5:{out.md5}{'.dir' if out.folder else ''}"
    return hints, warnings
