"""What a root filesystem holds, as one digest that unpacking and converting an image do not change.

Format `repro-rootfs/1`: sha256 over one record for each file and each symbolic link, in order of path as
bytes. A record is three fields, each ended by a zero byte: the kind, the path, the value.

- `file`: a regular file; value: sha256 of its bytes, in hex.
- `program`: the same, where its owner may execute it.
- `link`: a symbolic link; value: its target.

Hard links are files of their own. Folders, devices, pipes, owners, times, extended attributes and other
permissions are not looked at: who unpacks an image without being root cannot keep them. `LEFT_OUT` is what
container runtimes write themselves, and mounts are not entered.

Runs as a program of its own too, in an image that has any Python: `python3 rootfs.py [FOLDER [DIGEST]]`
prints the digest of a folder, `/` if none is named, and exits with 3 where it is not the one that is given.
It imports nothing but the standard library.
"""

from __future__ import annotations

import hashlib
import os
import re
import stat
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = [
    "FILE",
    "FORMAT",
    "LEFT_OUT",
    "LINK",
    "PROGRAM",
    "Listing",
    "contents_digest",
    "is_left_out",
    "walk",
]

FORMAT = "repro-rootfs/1"
FILE, PROGRAM, LINK = b"file", b"program", b"link"

Listing = Mapping[bytes, tuple[bytes, bytes]]
"""Path relative to the root → kind and value."""

LEFT_OUT = (
    "dev", "proc", "sys",
    "etc/hostname", "etc/hosts", "etc/mtab", "etc/resolv.conf",
    ".dockerenv",
    ".exec", ".run", ".shell", ".singularity.d", ".test", "environment", "singularity",
    "etc/environment", "etc/fstab", "etc/rc",
)  # fmt: skip
"""What every runtime, Docker, Apptainer and Enroot write into a root filesystem, with all that is below."""

_LEFT_OUT = {name.encode() for name in LEFT_OUT}
_CHUNK_BYTES = 1 << 20


def is_left_out(path: bytes) -> bool:
    """Whether a path, or a folder above it, is one that runtimes write."""
    parts = path.split(b"/")
    return any(b"/".join(parts[:count]) in _LEFT_OUT for count in (1, 2))


def contents_digest(listing: Listing) -> str:
    """Return `sha256:<hex>` of a listing; what is left out may be in it."""
    state = hashlib.sha256()
    for path in sorted(listing):
        if not is_left_out(path):
            kind, value = listing[path]
            state.update(kind + b"\0" + path + b"\0" + value + b"\0")
    return f"sha256:{state.hexdigest()}"


def _file_digest(path: bytes) -> bytes:
    state = hashlib.sha256()
    handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW)
    with os.fdopen(handle, "rb") as stream:
        while chunk := stream.read(_CHUNK_BYTES):
            state.update(chunk)
    return state.hexdigest().encode()


def _mounts() -> set[bytes]:
    """Every mount point of this process, but the root (proc(5), mountinfo)."""
    try:
        with Path("/proc/self/mountinfo").open("rb") as lines:
            points = [line.split(b" ")[4] for line in lines]
    except FileNotFoundError:
        return set()
    escaped = re.compile(rb"\\([0-7]{3})")
    return {escaped.sub(lambda found: bytes([int(found[1], 8)]), point) for point in points} - {b"/"}


def walk(root: bytes) -> Iterator[tuple[bytes, tuple[bytes, bytes]]]:
    """Yield path, kind and value of everything below a folder, in no order.

    Raises:
        OSError: a file or folder cannot be read; `filename` says which.
    """
    above, mounts = os.path.realpath(root).rstrip(b"/") + b"/", _mounts()
    folders = [b""]
    while folders:
        folder = folders.pop()
        with os.scandir(above + folder) as entries:
            for entry in entries:
                path = folder + entry.name
                if is_left_out(path) or entry.path in mounts:
                    continue
                mode = entry.stat(follow_symlinks=False).st_mode
                if stat.S_ISDIR(mode):
                    folders.append(path + b"/")
                elif stat.S_ISLNK(mode):
                    yield path, (LINK, os.readlink(entry.path))  # noqa: PTH115 - a path in bytes
                elif stat.S_ISREG(mode):
                    yield path, (PROGRAM if mode & stat.S_IXUSR else FILE, _file_digest(entry.path))


def _main(root: str = "/", expected: str | None = None) -> int:
    found = contents_digest(dict(walk(os.fsencode(root))))
    sys.stdout.write(found + "\n")
    return 0 if expected in (None, found) else 3


if __name__ == "__main__":
    sys.exit(_main(*sys.argv[1:3]))
