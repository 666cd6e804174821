"""Look at the files of a model or data set for what should not be locked as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath

from repro.errors import LockError

__all__ = ["LfsPointer", "examine", "read_pointer"]

_POINTER_LIMIT = 1024
_POINTER_HEAD = b"version https://git-lfs.github.com/spec/v1\n"
_OID = re.compile(rb"^oid sha256:([0-9a-f]{64})$", re.MULTILINE)
_SIZE = re.compile(rb"^size (\d+)$", re.MULTILINE)
_PICKLES = frozenset({".bin", ".ckpt", ".joblib", ".pickle", ".pkl", ".pt", ".pth"})

LfsPointer = tuple[str, int]
"""Digest and size in bytes of the file that a Git LFS pointer stands for."""


def read_pointer(path: Path) -> LfsPointer | None:
    """Return what a file stands for, where it is a Git LFS pointer.

    Format: https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md
    """
    if path.stat().st_size >= _POINTER_LIMIT:
        return None
    data = path.read_bytes()
    oid, size = _OID.search(data), _SIZE.search(data)
    if not data.startswith(_POINTER_HEAD) or oid is None or size is None:
        return None
    return f"sha256:{oid[1].decode()}", int(size[1])


def _refuse_pointers(listed: Sequence[tuple[str, Path]], where: str) -> None:
    found = [(name, pointer) for name, path in listed if (pointer := read_pointer(path)) is not None]
    if found:
        told = "; ".join(f"{name} stands for {digest}, {size} bytes" for name, (digest, size) in found)
        raise LockError(
            "lfs-pointer",
            f"a Git LFS pointer lies where the file itself should be: {told}",
            where=where,
            remedy="fetch the files with `git lfs pull`, then lock again",
        )


def _refuse_missing_shards(listed: Sequence[tuple[str, Path]], where: str) -> None:
    """Check that every shard which a `*.index.json` of safetensors or PyTorch names is there."""
    names = {name for name, _ in listed}
    for name, path in listed:
        if not name.endswith((".safetensors.index.json", ".bin.index.json")):
            continue
        try:
            shards = set(json.loads(path.read_bytes())["weight_map"].values())
        except (ValueError, KeyError, TypeError, AttributeError):
            raise LockError(
                "shard-index-malformed", "no weight_map can be read", where=f"{where}/{name}"
            ) from None
        folder = PurePosixPath(name).parent
        if missing := sorted(shard for shard in map(str, shards) if (folder / shard).as_posix() not in names):
            raise LockError(
                "shard-missing",
                f"{name} names shards that are not there: {', '.join(missing)}",
                where=where,
                remedy="fetch the model again as a whole",
            )


def _code(listed: Sequence[tuple[str, Path]]) -> Iterator[str]:
    for name, _ in listed:
        suffix = PurePosixPath(name).suffix
        if suffix == ".py":
            yield f"{name} is code: whoever loads this with trust_remote_code runs it"
        elif suffix in _PICKLES:
            yield f"{name} may be a pickle: loading one runs code, unless with weights_only=True"


def examine(listed: Sequence[tuple[str, Path]], *, where: str) -> list[str]:
    """Check listed files and return warnings.

    Args:
        listed: names and places, as `list_tree` gives them.
        where: what is looked at, for messages.

    Raises:
        LockError: kind `lfs-pointer`, `shard-missing` or `shard-index-malformed`.
    """
    _refuse_pointers(listed, where)
    _refuse_missing_shards(listed, where)
    return list(_code(listed))
