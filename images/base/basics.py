"""What every part of the base build needs: its error, its voice, programs, digests and whole files."""

from __future__ import annotations

import contextlib
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

__all__ = ["CACHE", "BaseError", "architecture", "run", "say", "sha256_of", "written"]

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro"


class BaseError(Exception):
    """Ends the program with a sentence and an exit code: 1 could not, 3 the lock does not hold."""

    def __init__(self, message: str, code: int = 1) -> None:
        super().__init__(message)
        self.code = code


def say(message: str) -> None:
    """Tell the person who waits what goes on."""
    print(f"base: {message}", file=sys.stderr)


def run(*command: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
    """Run a program to its end and return what it printed; failure is a `BaseError` with its last words."""
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, stdin=subprocess.DEVNULL, env=env, cwd=cwd
        )
    except FileNotFoundError:
        raise BaseError(f"{command[0]} is not installed on this machine") from None
    if done.returncode:
        tail = "\n".join((done.stderr or done.stdout).splitlines()[-15:])
        raise BaseError(f"{' '.join(map(str, command[:3]))} … failed with {done.returncode}:\n{tail}")
    return done.stdout


def architecture() -> str:
    """This machine's architecture in Debian's words, which for amd64 and arm64 are also OCI's."""
    return run("dpkg", "--print-architecture").strip()


def sha256_of(path: Path) -> str:
    """Hex digest of a file, read in bounded memory."""
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()


@contextlib.contextmanager
def written(path: Path) -> Iterator[Path]:
    """A new file beside `path` that takes its place once it is complete."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    os.close(handle)
    part = Path(name)
    try:
        yield part
        part.chmod(0o644)
        with part.open("rb") as stream:
            os.fsync(stream.fileno())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)
