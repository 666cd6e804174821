"""Copy an image from a registry into a folder: an OCI image layout, every blob held to its digest.

Format: OCI Image Specification v1.1, image layout. Layers stay as they are packed in the registry.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from repro.adapters.registry import Registry, RegistryImage
from repro.digest import hex_of, is_digest
from repro.errors import NetworkError
from repro.ports import Progress

__all__ = ["copy_image"]

_MAX_BYTES = 8 << 20


def copy_image(registry: Registry, image: RegistryImage, root: Path, *, progress: Progress) -> None:
    """Write the image that `Registry.base` found as a layout.

    Args:
        root: folder to make.

    Raises:
        LockError: `base-not-found` where a part of it is missing.
        NetworkError: as `Registry.base`; `registry-wrong-bytes` where a blob is not what its digest names.
    """
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    digest = str(image.lock.manifest_digest)
    manifest = registry.read("manifests", digest, limit=_MAX_BYTES)
    (blobs / hex_of(digest)).write_bytes(manifest)
    config = registry.read("blobs", image.lock.config_digest, limit=_MAX_BYTES)
    (blobs / hex_of(image.lock.config_digest)).write_bytes(config)
    for number, layer in enumerate(dict.fromkeys(image.layers), start=1):
        progress.start(f"fetching layer {number} of {len(image.layers)}")
        _copy_blob(registry, layer, blobs, progress)
    index = {"schemaVersion": 2, "manifests": [{"digest": digest, "size": len(manifest)}]}
    (root / "oci-layout").write_text('{"imageLayoutVersion": "1.0.0"}')
    (root / "index.json").write_text(json.dumps(index))


def _copy_blob(registry: Registry, digest: str, blobs: Path, progress: Progress) -> None:
    if not is_digest(digest):
        raise _wrong(f"the registry names a layer {digest!a}, which is no sha256 digest")
    state = hashlib.sha256()
    with (blobs / hex_of(digest)).open("xb") as file:
        for chunk in registry.blob(digest):
            file.write(chunk)
            state.update(chunk)
            progress.advance(len(chunk))
    if f"sha256:{state.hexdigest()}" != digest:
        raise _wrong(f"the registry gave sha256:{state.hexdigest()} where {digest} was asked for")


def _wrong(message: str) -> NetworkError:
    remedy = "ask another registry; do not use what this one gave"
    return NetworkError("registry-wrong-bytes", message, remedy=remedy)
