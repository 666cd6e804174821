"""Read a base image while an engine streams it: config, environment, and what each layer holds."""

from __future__ import annotations

import io
import json
import posixpath
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

from repro.adapters.baselayers import LayerFacts, as_stream, read_layer
from repro.digest import CHUNK_BYTES, digest_bytes
from repro.errors import LockError

__all__ = ["SavedBase", "read_saved"]

_JSON_LIMIT = 8 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class SavedBase:
    """An image as its own bytes describe it."""

    config_digest: str
    layers: tuple[LayerFacts, ...]
    """Lowest first; each read to its end, and what the config says."""
    environment: tuple[str, ...]


@dataclass(kw_only=True)
class _Members:
    documents: dict[str, bytes] = field(default_factory=dict)
    layers: dict[str, LayerFacts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    def take(self, tar: tarfile.TarFile, member: tarfile.TarInfo) -> None:
        name = posixpath.normpath(member.name)
        if member.issym() or member.islnk():
            folder = posixpath.dirname(name) if member.issym() else ""
            self.links[name] = posixpath.normpath(posixpath.join(folder, member.linkname))
        elif (opened := tar.extractfile(member)) is not None:
            stream = io.BufferedReader(cast(io.RawIOBase, opened), CHUNK_BYTES)
            if member.size <= _JSON_LIMIT and stream.peek(1)[:1] in (b"{", b"["):
                self.documents[name] = stream.read()
            elif (layer := read_layer(stream)) is not None:
                self.layers[name] = layer

    def real(self, name: str) -> str:
        name = posixpath.normpath(name)
        for _ in range(10):
            name = self.links.get(name, name)
        return name


def read_saved(chunks: Iterator[bytes], reference: str) -> SavedBase:
    """Read a docker-archive of one image, in whatever order its members come.

    Args:
        chunks: the archive, read once.
        reference: what the image is asked for by, for messages.

    Raises:
        LockError: `base-unreadable`, or `base-layer-differs` where bytes are not what the config says.
    """
    members = _Members()
    try:
        with tarfile.open(fileobj=as_stream(chunks), mode="r|", bufsize=CHUNK_BYTES) as tar:
            for member in tar:
                members.take(tar, member)
        (described,) = json.loads(members.documents["manifest.json"])
        config_bytes = members.documents[members.real(described["Config"])]
        config: dict[str, Any] = json.loads(config_bytes)
        layers = tuple(members.layers[members.real(name)] for name in described["Layers"])
        expected = tuple(config["rootfs"]["diff_ids"])
        environment = tuple(map(str, (config.get("config") or {}).get("Env") or ()))
    except (tarfile.TarError, KeyError, ValueError, TypeError, AttributeError, EOFError) as error:
        raise LockError(
            "base-unreadable",
            f"the engine saved the image in a form that cannot be read: {error!r}",
            where=reference,
            remedy="pull or load the image again, or name one that a registry serves",
        ) from None
    if expected != tuple(layer.diff_id for layer in layers):
        raise LockError(
            "base-layer-differs",
            "the engine's layers of the image are not those that its config names",
            where=reference,
            remedy="remove the image from the engine, and pull or load it again",
        )
    return SavedBase(config_digest=digest_bytes(config_bytes), layers=layers, environment=environment)
