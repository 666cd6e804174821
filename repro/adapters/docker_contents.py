"""Which config an image has where its engine names it by a manifest: read from what the engine saves.

Format: OCI Image Specification v1.1, image layout, as a tar. Blobs come in any order; reading ends with
the one that tells.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Iterator
from typing import Any

from repro.digest import digest_bytes, is_digest

__all__ = ["saved_config_digest"]

_BLOBS = "blobs/sha256/"
_MAX_BYTES = 4 << 20
"""What a manifest or an index may have; larger blobs are layers."""


class _Stream(io.RawIOBase):
    """Chunks as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        if not self._rest:
            self._rest = next(self._chunks, b"")
        count = min(len(buffer), len(self._rest))
        buffer[:count], self._rest = self._rest[:count], self._rest[count:]
        return count


def _follow(named: str, known: dict[str, Any]) -> str | None:
    """Go from an index or a manifest to a config; None where the next document has not come yet."""
    document = known.get(named)
    if not isinstance(document, dict):
        return None
    if isinstance(config := document.get("config"), dict):
        digest = str(config.get("digest"))
        return digest if is_digest(digest) else None
    for entry in document.get("manifests") or ():
        if (found := _follow(str(entry.get("digest")), known)) is not None:
            return found
    return None


def saved_config_digest(archive: Iterator[bytes], image: str) -> str | None:
    """Return the config digest of the image that an engine names `image`, from its saved form.

    Every document on the way is hashed. None where the archive does not tell.
    """
    known: dict[str, Any] = {}
    try:
        with tarfile.open(fileobj=io.BufferedReader(_Stream(archive)), mode="r|") as saved:
            for member in saved:
                if not member.name.startswith(_BLOBS) or member.size > _MAX_BYTES:
                    continue
                data = saved.extractfile(member)
                assert data is not None
                content = data.read()
                if content[:1] != b"{":
                    continue
                known[digest_bytes(content)] = json.loads(content)
                if (found := _follow(image, known)) is not None:
                    return found
    except (tarfile.TarError, ValueError, EOFError):
        return None
    return None
