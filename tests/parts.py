"""Small parts that tests of several areas build on."""

from __future__ import annotations

import base64
import ensurepip
import hashlib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from repro.digest import Digest, digest_stream
from repro.lock import FileLock

__all__ = ["Parts"]


@dataclass
class Parts:
    """Makes small wheels and projects, and a cache that holds the wheels."""

    folder: Path
    held: dict[str, Path] = field(default_factory=dict)

    def path(self, digest: str) -> Path | None:
        """As `repro.ports.Cache`."""
        return self.held.get(digest)

    def add(self, source: Path, *, move: bool = False) -> Digest:
        """As `repro.ports.Cache`, but the file stays where it is."""
        locked = self.lock(source)
        self.held[locked.digest] = source
        return Digest(locked.digest)

    def lock(self, path: Path, name: str | None = None) -> FileLock:
        """Lock one file."""
        with path.open("rb") as stream:
            digest, size = digest_stream(stream)
        return FileLock(path=name or path.name, size=size, digest=digest)

    def wheel(self, name: str, version: str, files: dict[str, str], scripts: str = "") -> FileLock:
        """Make a pure wheel, hold it and lock it."""
        place = self.folder / f"{name}-{version}-py3-none-any.whl"
        info = f"{name}-{version}.dist-info"
        members = {
            **files,
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
            f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
            **({f"{info}/entry_points.txt": f"[console_scripts]\n{scripts}\n"} if scripts else {}),
        }
        record = f"{info}/RECORD"
        lines = []
        for path, text in members.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).decode().rstrip("=")
            lines.append(f"{path},sha256={digest},{len(text.encode())}")
        with zipfile.ZipFile(place, "w") as archive:
            for path, text in {**members, record: "\n".join([*lines, f"{record},,", ""])}.items():
                archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), text)
        self.add(place)
        return self.lock(place)

    def pip(self) -> FileLock:
        """Hold and lock the pip wheel that comes with this Python."""
        found = sorted((Path(ensurepip.__file__).parent / "_bundled").glob("pip-*.whl"))
        if not found:
            pytest.skip("this Python comes without a pip wheel")
        self.add(found[0])
        return self.lock(found[0])
