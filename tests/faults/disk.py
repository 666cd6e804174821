"""A disk that fills up: each command runs with no room left, then with a page more, until it fits.

Every run that does not fit must say `disk-full`, leave what lay there as it was, and nothing of its own.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.e2e_world import repro
from tests.faults.faults_world import Tiny

PAGE = 4096
MOST = 64 << 20


@dataclass(slots=True)
class Tally:
    """What came of one command on a full disk."""

    command: str
    refused: int = 0
    fits_from_bytes: int | None = None
    faults: list[str] = field(default_factory=list)


@contextmanager
def small_disk(folder: Path, size: str) -> Iterator[Path]:
    """A file system of its own, in memory. Needs root."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


@contextmanager
def filled(disk: Path, free: int) -> Iterator[None]:
    """Leave `free` bytes of a disk, in whole pages."""
    ballast = disk / "ballast"
    room = os.statvfs(disk)
    with ballast.open("wb", buffering=0) as stream:
        os.posix_fallocate(stream.fileno(), 0, room.f_bavail * room.f_frsize - free)
    try:
        yield
    finally:
        ballast.unlink()


def files_below(folder: Path) -> dict[str, bytes]:
    """Every file and its bytes."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def fill_up(name: str, arguments: tuple[str | Path, ...], disk: Path, *, growth: float = 0.25) -> Tally:
    """Run a command with a page more room each time, later `growth` times more, until it fits."""
    tally, free = Tally(name), 0
    while tally.fits_from_bytes is None and free <= MOST:
        before = files_below(disk)
        with filled(disk, free):
            result = repro(*arguments)
        if result.returncode == 0:
            tally.fits_from_bytes = free
        elif "error[disk-full]" not in result.stderr or "Traceback" in result.stderr:
            tally.faults.append(f"{free} bytes free: {result.returncode} {result.stderr[-300:]}")
        elif files_below(disk) != before:
            changed = sorted(path for path, data in files_below(disk).items() if before.get(path) != data)
            tally.faults.append(f"{free} bytes free: it gave up, but left {changed} behind")
        tally.refused += result.returncode != 0
        free += max(PAGE, int(free * growth) // PAGE * PAGE)
    if tally.fits_from_bytes is None:
        tally.faults.append(f"{MOST} bytes were not enough")
    return tally


def commands(tiny: Tiny) -> dict[str, tuple[str | Path, ...]]:
    """Commands that write files into the project or the run."""
    folder, trust = tiny.project.parent, ("--trust", tiny.trust)
    new = folder / "keys" / "third"
    return {
        "keys new": ("keys", "new", new, "--no-passphrase"),
        "keys trust": ("keys", "trust", tiny.trust, new.with_suffix(".pub"), "--principal", "third"),
        "lock": ("lock", "--upgrade", "-C", tiny.project),
        "sign": ("sign", tiny.run, "--key", tiny.second_key),
        "report": ("report", tiny.run, *trust, "-o", folder / "report.html"),
        "export": ("export", tiny.run, "--format", "slsa", "-o", folder / "slsa.json"),
        "capture": ("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host"),
    }
