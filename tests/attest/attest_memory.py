"""A run folder in memory, for tests that verify thousands of variants."""

from __future__ import annotations

from pathlib import Path

from repro.digest import Digest, digest_bytes
from repro.errors import TrustError


class MemoryFolder:
    """Fulfils `repro.ports.RunFolder` over a dictionary."""

    name = "memory"

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files

    @classmethod
    def of(cls, root: Path) -> MemoryFolder:
        paths = (path for path in root.rglob("*") if path.is_file())
        return cls({path.relative_to(root).as_posix(): path.read_bytes() for path in paths})

    def names(self) -> list[str]:
        return sorted(self.files)

    def read(self, name: str, *, limit: int) -> bytes:
        if name not in self.files:
            raise TrustError("E_PATH", "the file is missing", where=name)
        if len(self.files[name]) > limit:
            raise TrustError("E_SIZE", "too large", where=name)
        return self.files[name]

    def digest(self, name: str) -> tuple[Digest, int]:
        data = self.read(name, limit=1 << 40)
        return digest_bytes(data), len(data)

    def with_file(self, name: str, data: bytes) -> MemoryFolder:
        return MemoryFolder({**self.files, name: data})
