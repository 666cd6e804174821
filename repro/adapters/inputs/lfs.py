"""Git LFS without its client: pointers in a tree become the files they stand for.

Protocol: the Batch API and the `basic` transfer of
https://github.com/git-lfs/git-lfs/tree/main/docs/api
"""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import requests

from repro.adapters.inputs.url import TIMEOUT_S, download, without_secret
from repro.digest import digest_stream, hex_of
from repro.errors import LockError, NetworkError
from repro.ports import Progress
from repro.resolve.contents import LfsPointer, read_pointer

__all__ = ["fetch_pointers"]

_TYPE = "application/vnd.git-lfs+json"


def fetch_pointers(root: Path, remote: str, progress: Progress) -> None:
    """Replace every pointer below `root`.

    Args:
        remote: the repository's address; other than by HTTP, pointers stay as they are.

    Raises:
        LockError: kind `lfs-differs` where other bytes come than the pointer says.
        NetworkError: kind `lfs-refused`, or as `download` says.
    """
    pointers = {
        path: pointer
        for path in sorted(root.rglob("*"))
        if path.is_file() and not path.is_symlink() and (pointer := read_pointer(path)) is not None
    }
    if not pointers or urlsplit(remote).scheme not in ("http", "https"):
        return
    progress.start("fetch Git LFS files", total=sum(size for _, size in pointers.values()))
    with requests.Session() as session:
        actions = _actions(session, remote, set(pointers.values()))
        for path, pointer in pointers.items():
            _replace(session, path, pointer, actions[hex_of(pointer[0])], progress)


def _actions(session: requests.Session, remote: str, pointers: set[LfsPointer]) -> dict[str, Any]:
    """Ask where to download each object."""
    base = remote if remote.endswith(".git") else f"{remote.rstrip('/')}.git"
    objects = [{"oid": hex_of(digest), "size": size} for digest, size in sorted(pointers)]
    answer = session.post(
        f"{base}/info/lfs/objects/batch",
        json={"operation": "download", "transfers": ["basic"], "hash_algo": "sha256", "objects": objects},
        headers={"Accept": _TYPE, "Content-Type": _TYPE},
        timeout=TIMEOUT_S,
    )
    if not answer.ok:
        raise NetworkError(
            "lfs-refused",
            f"the Git LFS server answered {answer.status_code} {answer.reason}",
            where=without_secret(remote),
            remedy="check the network, and the credentials for the repository in .netrc",
        )
    found = {
        item["oid"]: item["actions"]["download"] for item in answer.json()["objects"] if "actions" in item
    }
    if missing := [item["oid"] for item in objects if item["oid"] not in found]:
        raise NetworkError(
            "lfs-refused",
            f"the Git LFS server does not have {', '.join(map(str, missing))}",
            where=without_secret(remote),
            remedy="ask the repository's owner to push the Git LFS files",
        )
    return found


def _replace(
    session: requests.Session, path: Path, pointer: LfsPointer, action: dict[str, Any], progress: Progress
) -> None:
    part = path.with_name(f".{path.name}.part")
    try:
        download(action["href"], part, progress, session=session, headers=dict(action.get("header", {})))
        with part.open("rb") as stream:
            got = digest_stream(stream)
        if got != pointer:
            raise LockError(
                "lfs-differs",
                f"{path.name} should be {pointer[0]}, {pointer[1]} bytes; {got[0]}, {got[1]} bytes came",
                remedy="ask whoever runs the Git LFS server",
            )
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
