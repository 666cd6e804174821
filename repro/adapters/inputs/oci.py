"""Files that a registry holds as an OCI artifact, such as `oras push` and model packers make."""

from __future__ import annotations

import hashlib
import os
import tarfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any

from repro.adapters.reference import parse_reference
from repro.adapters.registry import Registry
from repro.digest import is_digest
from repro.errors import LockError, NetworkError
from repro.ports import Progress
from repro.resolution import Found, Reference

__all__ = ["OciSource"]

_TITLES = ("org.opencontainers.image.title", "org.cncf.model.filepath")
_UNPACK = "io.deis.oras.content.unpack"
_LICENCE = "org.opencontainers.image.licenses"


class OciSource:
    """Fulfils `repro.ports.ArtifactSource` for `oci:`."""

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        """Write each layer as the file its annotation names, or unpack it where it is a tar.

        Raises:
            LockError: kinds `base-reference-invalid`, `base-not-found`, `oci-malformed`.
            NetworkError: as `Registry` says, or `registry-wrong-bytes`.
        """
        named = parse_reference(reference.text)
        with Registry(named, os.environ) as registry:
            manifest, digest = registry.manifest()
            layers = manifest.get("layers") or []
            if not layers or not all(is_digest(str(layer.get("digest"))) for layer in layers):
                raise _malformed(reference, "the manifest names no layers")
            progress.start(f"fetch {named.name}", total=sum(int(layer.get("size", 0)) for layer in layers))
            for layer in layers:
                self._layer(registry, layer, reference, into, progress)
        return Found(
            requested=reference.text,
            resolved=f"{named.name}@{digest}",
            licence=(manifest.get("annotations") or {}).get(_LICENCE),
        )

    def _layer(
        self,
        registry: Registry,
        layer: Mapping[str, Any],
        reference: Reference,
        into: Path,
        progress: Progress,
    ) -> None:
        annotations = layer.get("annotations") or {}
        title = next((annotations[key] for key in _TITLES if key in annotations), None)
        is_tar = str(layer.get("mediaType", "")).endswith((".tar", "+gzip", ".tar.gzip"))
        unpack = annotations.get(_UNPACK) == "true" or (title is None and is_tar)
        if title is None and not unpack:
            raise _malformed(reference, f"the layer {layer['digest']} has no name and is no tar")
        place = into / _below(title or layer["digest"].replace(":", "-"), reference)
        place.parent.mkdir(parents=True, exist_ok=True)
        state = hashlib.sha256()
        with place.open("xb") as stream:
            for chunk in registry.blob(layer["digest"]):
                stream.write(chunk)
                state.update(chunk)
                progress.advance(len(chunk), place.name)
        if f"sha256:{state.hexdigest()}" != layer["digest"]:
            raise NetworkError(
                "registry-wrong-bytes",
                f"the registry gave sha256:{state.hexdigest()} where {layer['digest']} was asked for",
                where=reference.text,
                remedy="ask another registry; do not use what this one gave",
            )
        if unpack:
            _unpack(place, into, reference)


def _unpack(archive: Path, into: Path, reference: Reference) -> None:
    try:
        with tarfile.open(archive) as members:
            members.extractall(into, filter="data")
    except tarfile.TarError as error:
        raise _malformed(reference, f"a layer cannot be unpacked: {error}") from None
    archive.unlink()


def _below(title: str, reference: Reference) -> str:
    path = PurePosixPath(title)
    if path.is_absolute() or ".." in path.parts or not path.parts:
        raise _malformed(reference, f"a layer's name leads out of its folder: {title!r}")
    return title


def _malformed(reference: Reference, message: str) -> LockError:
    return LockError(
        "oci-malformed",
        message,
        where=reference.text,
        remedy="push the files with a tool that names them, such as oras",
    )
