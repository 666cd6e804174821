"""The files of a project that a resolver reads: where they may lie, how they are decoded, what a line is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from repro.errors import LockError

__all__ = ["below", "read_text", "requirement_lines"]

_COMMENT = re.compile(r"(^|\s+)#.*$")


def below(path: PurePosixPath, here: str) -> str:
    """Return a path below the project, without `.` and `..`."""
    parts: list[str] = []
    for part in path.parts:
        if part == ".." and parts:
            parts.pop()
        elif part != ".":
            parts.append(part)
    if path.is_absolute() or ".." in parts or not parts:
        raise LockError(
            "input-outside-project",
            f"{path} lies outside the folder of repro.yaml",
            where=here,
            remedy="move the file into the project, so that whoever replays has it too",
        )
    return "/".join(parts)


def read_text(root: Path, path: str, place: str) -> str:
    """Return the text of a file below `root`; `place` is what names it, for messages."""
    try:
        data = (root / path).read_bytes()
    except (FileNotFoundError, IsADirectoryError, NotADirectoryError):
        raise LockError(
            "input-missing", f"{path} is not there", where=place, remedy="write the file, or correct the name"
        ) from None
    encoding = "utf-16" if data.startswith((b"\xff\xfe", b"\xfe\xff")) else "utf-8-sig"
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise LockError(
            "requirement-malformed",
            f"not UTF-8 at byte {error.start}",
            where=path,
            remedy="save the file as UTF-8",
        ) from None


def requirement_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield requirement lines with the number of their first line, continuations joined, comments gone."""
    first, joined = 0, ""
    for number, line in enumerate(text.splitlines(), start=1):
        first = first or number
        bare = line.rstrip()
        if bare.endswith("\\") and not bare.lstrip().startswith("#"):
            joined += bare[:-1]
            continue
        if kept := _COMMENT.sub("", joined + line).strip():
            yield first, kept
        first, joined = 0, ""
    if kept := joined.strip():
        yield first, kept
