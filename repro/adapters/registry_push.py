"""The write side of the OCI distribution API: blobs and manifests, each read back by its digest.

Protocol: OCI Distribution Specification v1.1, sections "Pushing blobs" and "Pushing manifests".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from urllib.parse import urljoin, urlsplit

import requests

from repro.adapters.registry import Registry
from repro.digest import Digest, digest_bytes

__all__ = ["RegistryWriter"]

Chunks = Callable[[], Iterator[bytes]]
"""Gives the bytes of a blob, from their start each time."""


class RegistryWriter(Registry):
    """One repository of one registry, to be written to. Methods raise as `Registry.base` does."""

    def has_blob(self, digest: str) -> bool:
        """Say whether the repository holds a blob."""
        with self._ask("HEAD", f"{self._root}/blobs/{digest}", {}) as response:
            if response.status_code == requests.codes.not_found:
                return False
            self._check(response.status_code)
            return True

    def push_blob(self, digest: str, size: int, chunks: Chunks) -> None:
        """Push a blob in one piece, unless it is there; the registry checks its digest.

        Args:
            digest: `sha256:…` of the bytes.
            size: in bytes.
            chunks: called once for each time the bytes are sent.
        """
        if self.has_blob(digest):
            return
        with self._ask("POST", f"{self._root}/blobs/uploads/", {"Content-Length": "0"}) as started:
            self._check(started.status_code)
            place = urljoin(started.url, started.headers.get("Location", ""))
        joint = "&" if urlsplit(place).query else "?"
        if urlsplit(place).netloc != urlsplit(self._root).netloc:
            raise self._failed("the registry wants uploads to go to another host, which is not done")
        headers = {"Content-Type": "application/octet-stream"}
        with self._ask(
            "PUT",
            f"{place}{joint}digest={digest}",
            headers,
            lambda: _Body(chunks, size) if size else b"",
        ) as answer:
            self._check(answer.status_code)

    def push_manifest(
        self, data: bytes, media_type: str, *, tag: str | None = None, unless_changed: str | None = None
    ) -> Mapping[str, str] | None:
        """Push a manifest or an index under its digest, or under a tag.

        Args:
            data: the exact bytes.
            media_type: of them.
            tag: the name to move there; None for the digest alone.
            unless_changed: entity tag of what the tag named when it was read, where the registry gave one.

        Returns:
            the answer's headers; None where the registry says that the tag was moved meanwhile.
        """
        headers = {"Content-Type": media_type}
        if unless_changed is not None:
            headers["If-Match"] = unless_changed
        url = f"{self._root}/manifests/{tag or digest_bytes(data)}"
        with self._ask("PUT", url, headers, lambda: data) as response:
            if response.status_code == requests.codes.precondition_failed:
                return None
            self._check(response.status_code)
            return dict(response.headers)

    def read_back(self, version: str) -> tuple[Digest, Digest]:
        """Ask what a tag or a digest names now; return the digests of its manifest and of its config."""
        manifest, digest = self._document(f"manifests/{version}", version)
        config = str((manifest.get("config") or {}).get("digest"))
        return digest, self._checked(f"blobs/{config}", config)[1]


class _Body:
    """Bytes of known size as they come: requests then sends them as one piece, not in chunks."""

    def __init__(self, chunks: Chunks, size: int) -> None:
        self._chunks, self._size = chunks, size

    def __len__(self) -> int:
        return self._size

    def __iter__(self) -> Iterator[bytes]:
        return self._chunks()
