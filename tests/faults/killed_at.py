"""Run `repro` and kill it right before the k-th change it makes to a file system below a folder.

    python -m tests.faults.killed_at FOLDER K COMMAND...

Changes are what Python's audit events show: files opened for writing, renamed, removed, made or linked.
With K = 0 nothing is killed, and the number of changes is printed to stderr as the last line.
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

CHANGES = {
    "os.chmod",
    "os.link",
    "os.mkdir",
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.symlink",
    "os.truncate",
}
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def is_change(name: str, told: tuple[Any, ...], folder: str) -> bool:
    """Whether an audit event tells of a change below a folder."""
    writes = name == "open" and isinstance(told[2], int) and bool(told[2] & WRITING)
    paths = (os.fspath(one) for one in told if isinstance(one, str | os.PathLike))
    return (writes or name in CHANGES) and any(path.startswith(folder) for path in paths)


def main(folder: str, kill_at: int, arguments: list[str]) -> None:
    """Arm the hook and run the command line."""
    seen = 0

    def hook(name: str, told: tuple[Any, ...]) -> None:
        nonlocal seen
        if is_change(name, told, folder):
            seen += 1
            if seen == kill_at:
                os.kill(os.getpid(), signal.SIGKILL)

    from repro.cli import main as entry

    sys.argv = ["repro", *arguments]
    sys.addaudithook(hook)
    try:
        entry()
    finally:
        sys.stderr.write(f"\n{seen}\n")


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), sys.argv[3:])
