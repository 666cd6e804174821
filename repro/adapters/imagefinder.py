"""Find a signed image where an auditor says it lies: in an engine, a registry, or an OCI image layout.

Format: OCI Image Specification v1.1, image layout and manifest. Everything in a
layout is named by its digest, and every digest is computed again.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

from repro.adapters.registry import Registry
from repro.digest import digest_bytes, digest_stream, hex_of, is_digest
from repro.errors import LockError, NetworkError, TrustError
from repro.image import ImageIdentity
from repro.ports import Engine
from repro.strictjson import loads

__all__ = ["engine_image", "layout_image", "registry_image"]

MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
_MAX_BYTES = 8 << 20


def engine_image(engine: Engine, signed: ImageIdentity) -> ImageIdentity | None:
    """Say what an engine holds under the signed config digest; None where it does not say or holds nothing.

    Raises:
        EngineError: the engine went away.
    """
    held = engine.find(signed.config_digest, diff_ids=signed.diff_ids)
    if held is None or held.config_digest is None or held.diff_ids is None:
        return None
    return signed.model_copy(
        update={
            "config_digest": held.config_digest,
            "diff_ids": held.diff_ids,
            "os": held.os,
            "architecture": held.architecture,
        }
    )


def layout_image(root: Path, signed: ImageIdentity) -> ImageIdentity | None:
    """Say what lies in an OCI image layout under the signed manifest digest; None where nothing does.

    Raises:
        TrustError: kind `E_IMAGE` where bytes are not those their digest names, a part is missing, or the
            manifest is not one of ours: uncompressed layers, no addresses, no index.
    """
    if not _blob(root, signed.manifest_digest).is_file():
        return None
    return _identity(signed.manifest_digest, partial(_document, root), partial(_layer, root))


def registry_image(registry: Registry, signed: ImageIdentity) -> ImageIdentity | None:
    """Say what a registry holds under the signed manifest digest; every layer is read through and hashed.

    Raises:
        TrustError: kind `E_IMAGE`, as `layout_image`.
        NetworkError: the registry does not answer as it should.
    """

    try:
        manifest = registry.read("manifests", signed.manifest_digest, limit=_MAX_BYTES)
    except LockError:
        return None

    def document(digest: str) -> dict[str, Any]:
        if digest == signed.manifest_digest:
            return _object(manifest, digest)
        with _refusing(digest):
            return _object(registry.read("blobs", digest, limit=_MAX_BYTES), digest)

    def layer(part: dict[str, Any]) -> int:
        state, size = hashlib.sha256(), 0
        with _refusing(part["digest"]):
            for chunk in registry.blob(part["digest"]):
                state.update(chunk)
                size += len(chunk)
        return _as_named(part, f"sha256:{state.hexdigest()}", size)

    return _identity(signed.manifest_digest, document, layer)


@contextmanager
def _refusing(digest: str) -> Iterator[None]:
    """What a registry lacks, or gives wrong, is the image's fault; that it cannot be reached is not."""
    try:
        yield
    except LockError:
        _refuse("a part of the image is missing", digest)
    except NetworkError as error:
        if error.kind != "registry-wrong-bytes":
            raise
        _refuse("bytes of the image are not those its digest names", digest)


def _identity(
    manifest_digest: str,
    document: Callable[[str], dict[str, Any]],
    layer: Callable[[dict[str, Any]], int],
) -> ImageIdentity:
    """Read an image whose parts are got by digest, and checked against it by who gets them."""
    config_digest, layers = _parts(document(manifest_digest))
    config = document(config_digest)
    rootfs = config.get("rootfs")
    diff_ids = rootfs.get("diff_ids") if isinstance(rootfs, dict) else None
    if diff_ids != [layer["digest"] for layer in layers]:
        _refuse("its config names other layers than its manifest", config_digest)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        sizes = tuple(pool.map(layer, layers))
    return ImageIdentity(
        config_digest=config_digest,
        manifest_digest=manifest_digest,
        diff_ids=tuple(layer["digest"] for layer in layers),
        layer_sizes=sizes,
        size=sum(sizes),
        os=str(config.get("os")),
        architecture=str(config.get("architecture")),
    )


def _refuse(message: str, where: str) -> NoReturn:
    raise TrustError("E_IMAGE", message, where=where, remedy="obtain the image again")


def _blob(root: Path, digest: str) -> Path:
    return root / "blobs" / "sha256" / hex_of(digest)


def _document(root: Path, digest: str) -> dict[str, Any]:
    path = _blob(root, digest)
    if not path.is_file():
        _refuse("a part of the image is missing", digest)
    with path.open("rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    return _object(data, digest)


def _object(data: bytes, digest: str) -> dict[str, Any]:
    if digest_bytes(data) != digest:
        _refuse("bytes of the image are not those its digest names", digest)
    try:
        tree = loads(data, where=digest, max_bytes=_MAX_BYTES)
    except TrustError as error:
        _refuse(error.message, digest)
    if not isinstance(tree, dict):
        _refuse("a part of the image is no JSON object", digest)
    return tree


def _parts(manifest: dict[str, Any]) -> tuple[str, list[dict[str, Any]]]:
    """Return the config's digest and the layers of a manifest that can mean one thing only."""
    if set(manifest) != {"schemaVersion", "mediaType", "config", "layers"}:
        _refuse("its manifest has other members than an image of ours", "manifest")
    if manifest["schemaVersion"] != 2 or manifest["mediaType"] != MANIFEST_TYPE:
        _refuse("its manifest is of another kind", "manifest")
    layers = manifest["layers"]
    described = [(manifest["config"], CONFIG_TYPE), *((layer, LAYER_TYPE) for layer in _listed(layers))]
    for part, media_type in described:
        if not isinstance(part, dict) or set(part) != {"mediaType", "digest", "size"}:
            _refuse("its manifest describes a part with other members than ours", "manifest")
        if part["mediaType"] != media_type or not is_digest(str(part["digest"])):
            _refuse(f"a part is of another kind than {media_type}", "manifest")
    return str(manifest["config"]["digest"]), layers


def _listed(layers: Any) -> list[Any]:
    if not isinstance(layers, list) or not layers:
        _refuse("its manifest lists no layers", "manifest")
    return layers


def _layer(root: Path, layer: dict[str, Any]) -> int:
    path = _blob(root, layer["digest"])
    if not path.is_file():
        _refuse("a layer is missing", layer["digest"])
    with path.open("rb") as stream:
        return _as_named(layer, *digest_stream(stream))


def _as_named(layer: dict[str, Any], digest: str, size: int) -> int:
    if digest != layer["digest"] or size != layer["size"]:
        _refuse("a layer's bytes are not those its digest names", layer["digest"])
    return size
