"""Image → registry: our config, our layers and our manifest as they were built, and read back."""

from __future__ import annotations

from repro.build.oci import MANIFEST_TYPE, Layer, image_manifest
from repro.build.saved import SavedImage
from repro.digest import canonical_json, digest_bytes
from repro.errors import BuildError
from repro.image import ImageIdentity
from repro.ports import ImageRegistry, Progress

__all__ = ["push_image"]


def push_image(
    image: SavedImage,
    identity: ImageIdentity,
    registry: ImageRegistry,
    *,
    tag: str | None,
    progress: Progress,
) -> None:
    """Push an image so that a registry knows it by the manifest digest that is recorded and signed.

    Layers go uncompressed, for a compressed one depends on who compressed it.

    Args:
        image: as the engine saved it.
        identity: what was built.
        tag: name to move to the image; None for its digest alone.

    Raises:
        BuildError: `image-differs` where the engine saved something else, `push-differs` where the registry
            then names something else.
        NetworkError: the registry does not answer as it should.
    """
    config = canonical_json(image.config)
    layers = [Layer(layer.diff_id, layer.size, layer.chunks) for layer in image.layers]
    manifest = image_manifest(config, layers)
    if (digest_bytes(config), digest_bytes(manifest)) != (identity.config_digest, identity.manifest_digest):
        raise BuildError(
            "image-differs",
            f"the engine saved {image.config_digest} where {identity.config_digest} was built",
            remedy="remove the image from the engine and build it again",
        )
    for number, layer in enumerate(image.layers, start=1):
        progress.start(f"pushing layer {number} of {len(layers)}")
        registry.push_blob(layer.diff_id, layer.size, layer.chunks)
    registry.push_blob(identity.config_digest, len(config), lambda: iter((config,)))
    registry.push_manifest(manifest, MANIFEST_TYPE, tag=tag)
    _require_pushed(identity, registry, tag)


def _require_pushed(identity: ImageIdentity, registry: ImageRegistry, tag: str | None) -> None:
    pushed = (identity.manifest_digest, identity.config_digest)
    for version in filter(None, (identity.manifest_digest, tag)):
        found = registry.read_back(version)
        if found != pushed:
            raise BuildError(
                "push-differs",
                f"the registry has manifest {found[0]} of config {found[1]} there, "
                f"and {pushed[0]} of {pushed[1]} was pushed",
                where=version,
                remedy="push again, and nobody else to the same tag meanwhile; else report this",
            )
