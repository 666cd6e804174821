"""Read an image from an OCI image layout: a folder of blobs, each held to the digest that names it."""

from __future__ import annotations

import gzip
import shutil
import zlib
from pathlib import Path
from typing import Any

from repro.build.saved import SavedImage, SavedLayer
from repro.digest import CHUNK_BYTES, digest_stream, hex_of, is_digest
from repro.errors import BuildError, TrustError
from repro.strictjson import loads

__all__ = ["open_layout"]

_INDEX_TYPES = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
)


def _bad(message: str, where: str) -> BuildError:
    return BuildError("layout-malformed", message, where=where, remedy="write the layout again")


def _blob(root: Path, digest: Any) -> Path:
    if not is_digest(str(digest)):
        raise _bad(f"{digest!a} is no sha256 digest", str(root))
    path = root / "blobs" / "sha256" / hex_of(str(digest))
    if not path.is_file():
        raise _bad("a blob is missing", str(digest))
    with path.open("rb") as stream:
        if digest_stream(stream)[0] != digest:
            raise _bad("a blob's bytes are not those its digest names", str(digest))
    return path


def _document(path: Path) -> dict[str, Any]:
    try:
        value = loads(path.read_bytes(), where=str(path))
    except TrustError as error:
        raise _bad(error.message, str(path)) from None
    if not isinstance(value, dict):
        raise _bad("a document is no JSON object", str(path))
    return value


def _layer(root: Path, described: dict[str, Any], diff_id: str, scratch: Path) -> SavedLayer:
    path, media_type = _blob(root, described["digest"]), str(described.get("mediaType", ""))
    if not is_digest(diff_id):
        raise _bad(f"{diff_id!a} is no sha256 digest", str(root))
    if media_type.endswith("zstd"):
        raise _bad("layers packed with zstd cannot be read", str(described["digest"]))
    if not media_type.endswith("gzip"):
        return SavedLayer(diff_id, path, 0, path.stat().st_size)
    plain = scratch / f"{hex_of(diff_id)}.tar"
    try:
        with gzip.open(path) as packed, plain.open("wb") as file:
            shutil.copyfileobj(packed, file, CHUNK_BYTES)
    except (OSError, EOFError, zlib.error) as error:
        raise _bad(f"a layer cannot be unpacked: {error}", str(described["digest"])) from None
    return SavedLayer(diff_id, plain, 0, plain.stat().st_size)


def _manifest(root: Path, wanted: str | None) -> dict[str, Any]:
    """The one image of a layout, or the wanted one; entries that are attestations are passed over."""
    document = _document(root / "index.json")
    while True:
        images = [
            entry
            for entry in document.get("manifests", [])
            if "vnd.docker.reference.type" not in entry.get("annotations", {})
        ]
        images = [entry for entry in images if entry.get("digest") == wanted] or images
        if len(images) != 1:
            raise _bad(f"the index names {len(images)} images, not one", str(root))
        document = _document(_blob(root, images[0].get("digest")))
        if document.get("mediaType", images[0].get("mediaType")) not in _INDEX_TYPES:
            return document


def open_layout(root: Path, *, scratch: Path, wanted: str | None = None) -> SavedImage:
    """Read the index of a layout that holds one image.

    Args:
        root: folder with `index.json` and `blobs/`.
        scratch: folder for layers that have to be unpacked.
        wanted: digest of the manifest to take where the index names several.

    Raises:
        BuildError: `layout-malformed`.
    """
    try:
        manifest = _manifest(root, wanted)
        config = _document(_blob(root, manifest["config"]["digest"]))
        described, diff_ids = manifest["layers"], config["rootfs"]["diff_ids"]
        layers = tuple(
            _layer(root, layer, str(diff_id), scratch)
            for layer, diff_id in zip(described, diff_ids, strict=True)
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise _bad(f"it has not the members of a layout: {error!r}", str(root)) from None
    for layer in layers:
        layer.check()
    return SavedImage(config, layers, manifest["config"]["digest"])
