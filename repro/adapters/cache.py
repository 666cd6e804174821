"""Content-addressed files on this machine: `<folder>/sha256/<2 hex>/<64 hex>`."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Mapping
from pathlib import Path

from repro.digest import Digest, digest_stream, hex_of, is_digest

__all__ = ["FileCache", "cache_folder"]


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Return `REPRO_CACHE`, else `repro` below `XDG_CACHE_HOME`, else `~/.cache/repro`."""
    if named := environment.get("REPRO_CACHE"):
        return Path(named).expanduser().absolute()
    home = environment.get("XDG_CACHE_HOME")
    base = Path(home) if home and Path(home).is_absolute() else Path.home() / ".cache"
    return base / "repro"


class FileCache:
    """Fulfils `repro.ports.Cache`. Safe with other processes: files appear whole, and are never changed."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _place(self, digest: str) -> Path:
        digits = hex_of(digest)
        return self.folder / "sha256" / digits[:2] / digits

    def path(self, digest: str) -> Path | None:
        """Return where the bytes with this digest lie, or None."""
        place = self._place(digest)
        return place if is_digest(digest) and place.is_file() else None

    def add(self, source: Path, *, move: bool = False) -> Digest:
        """Take a file in and return the digest of its bytes.

        Args:
            source: the file.
            move: take the file itself, which must lie on the cache's file system, and not a copy.
        """
        incoming = self.folder / "incoming"
        incoming.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=incoming)
        held = Path(name)
        try:
            with os.fdopen(handle, "r+b") as copy:
                if move:
                    source.replace(held)
                else:
                    with source.open("rb") as original:
                        shutil.copyfileobj(original, copy, 1 << 20)
                    copy.flush()
                    os.fsync(copy.fileno())
            with held.open("rb") as stream:
                digest, _ = digest_stream(stream)
                os.fsync(stream.fileno())
            held.chmod(0o444)
            place = self._place(digest)
            place.parent.mkdir(parents=True, exist_ok=True)
            held.replace(place)
        finally:
            with contextlib.suppress(FileNotFoundError):
                held.unlink()
        return digest
