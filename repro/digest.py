"""Content identity: `sha256:<hex>` and the one JSON encoding that is hashed."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable
from typing import Annotated, Any, BinaryIO, NewType

from pydantic import StringConstraints

__all__ = [
    "CHUNK_BYTES",
    "Digest",
    "DigestStr",
    "canonical_json",
    "digest_bytes",
    "digest_json",
    "digest_stream",
    "hex_of",
    "is_digest",
    "pretty_json",
]

Digest = NewType("Digest", str)
"""`sha256:` and 64 lower-case hex digits."""

CHUNK_BYTES = 1 << 20

_PATTERN = re.compile(r"sha256:[0-9a-f]{64}")

DigestStr = Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$", strict=True)]
"""A digest as a pydantic field."""


def is_digest(text: str) -> bool:
    """Say whether `text` is exactly a digest."""
    return _PATTERN.fullmatch(text) is not None


def hex_of(digest: str) -> str:
    """Return the 64 hex digits of a digest."""
    return digest.removeprefix("sha256:")


def digest_bytes(data: bytes) -> Digest:
    """Digest of bytes in memory."""
    return Digest("sha256:" + hashlib.sha256(data).hexdigest())


def digest_stream(stream: BinaryIO | Iterable[bytes]) -> tuple[Digest, int]:
    """Digest and size in bytes of everything left in `stream`, read once in bounded memory."""
    state, size = hashlib.sha256(), 0
    chunks = iter(lambda: stream.read(CHUNK_BYTES), b"") if hasattr(stream, "read") else stream
    for chunk in chunks:
        state.update(chunk)
        size += len(chunk)
    return Digest("sha256:" + state.hexdigest()), size


def canonical_json(value: Any) -> bytes:
    """Encode for hashing and signing: sorted keys, no white space, UTF-8, no floats expected.

    With ASCII keys and no floats this is the RFC 8785 form.
    """
    text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8")


def pretty_json(value: Any) -> bytes:
    """Encode for files that people read: sorted keys, two spaces, final newline."""
    text = json.dumps(value, sort_keys=True, indent=2, ensure_ascii=False, allow_nan=False)
    return text.encode("utf-8") + b"\n"


def digest_json(value: Any) -> Digest:
    """Digest of a value's canonical JSON."""
    return digest_bytes(canonical_json(value))
