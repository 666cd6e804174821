"""An image's own config, its canonical OCI manifest, and the archive an engine loads it from.

Formats: OCI Image Specification v1.1 (config, manifest) and the docker-archive that
`docker load` reads (`manifest.json` beside configs and layers).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from repro.build.tarball import END, file_entry, header, padding
from repro.digest import Digest, canonical_json, digest_bytes, hex_of

__all__ = ["Layer", "docker_archive", "image_config", "image_manifest"]

CONFIG_TYPE = "application/vnd.oci.image.config.v1+json"
LAYER_TYPE = "application/vnd.oci.image.layer.v1.tar"
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"

_MEMBERS = (
    "Cmd", "Entrypoint", "Env", "ExposedPorts", "Labels", "StopSignal", "User", "Volumes", "WorkingDir",
)  # fmt: skip
"""What a config may say by the specification; anything else is a builder's own."""

_BUILDER_LABELS = ("io.buildah.",)


@dataclass(frozen=True, slots=True)
class Layer:
    """An uncompressed layer: its digest, its size in bytes, and how to read it again."""

    diff_id: str
    size: int
    chunks: Callable[[], Iterator[bytes]] | None
    """None where the engine holds the layer already and need not be given it."""


def _timestamp(epoch: int) -> str:
    return datetime.fromtimestamp(epoch, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _settings(built: Mapping[str, Any]) -> dict[str, Any]:
    """What the Dockerfile and the base said, by the rules `environment` and `labels`."""
    kept = {key: built[key] for key in _MEMBERS if built.get(key)}
    if variables := kept.get("Env"):
        by_name = {variable.partition("=")[0]: variable for variable in variables}
        kept["Env"] = [by_name[name] for name in sorted(by_name)]
    if labels := kept.pop("Labels", None):
        ours = {key: value for key, value in labels.items() if not key.startswith(_BUILDER_LABELS)}
        kept |= {"Labels": ours} if ours else {}
    return kept


def image_config(
    built: Mapping[str, Any], diff_ids: Sequence[str], *, base_layers: int, epoch: int
) -> dict[str, Any]:
    """Write an image's config.

    Args:
        built: the config the builder made.
        diff_ids: digests of the uncompressed layers, lowest first.
        base_layers: how many of them are the base's.
        epoch: the one time stamp, seconds since 1970.
    """
    created = _timestamp(epoch)
    history = [
        {"created": created, "created_by": "base" if index < base_layers else "repro"}
        for index in range(len(diff_ids))
    ]
    config = {
        "architecture": built["architecture"],
        "config": _settings(built.get("config") or {}),
        "created": created,
        "history": history,
        "os": built["os"],
        "rootfs": {"diff_ids": list(diff_ids), "type": "layers"},
    }
    if variant := built.get("variant"):
        config["variant"] = variant
    return config


def image_manifest(config: bytes, layers: Sequence[Layer]) -> bytes:
    """Encode the canonical OCI manifest: this config, these layers uncompressed."""
    return canonical_json(
        {
            "config": {"digest": digest_bytes(config), "mediaType": CONFIG_TYPE, "size": len(config)},
            "layers": [
                {"digest": layer.diff_id, "mediaType": LAYER_TYPE, "size": layer.size} for layer in layers
            ],
            "mediaType": MANIFEST_TYPE,
            "schemaVersion": 2,
        }
    )


def _whole(name: str, data: bytes) -> bytes:
    return header(file_entry(name, len(data)), 0) + data + padding(len(data))


def docker_archive(config: bytes, layers: Sequence[Layer], *, tag: str) -> Iterator[bytes]:
    """Yield an archive for `docker load`. The image's id is then the digest of `config`."""
    names = [f"{hex_of(layer.diff_id)}.tar" for layer in layers]
    written: set[Digest | str] = set()
    for name, layer in zip(names, layers, strict=True):
        if layer.chunks is None or layer.diff_id in written:
            continue
        written.add(layer.diff_id)
        yield header(file_entry(name, layer.size), 0)
        yield from layer.chunks()
        yield padding(layer.size)
    config_name = f"{hex_of(digest_bytes(config))}.json"
    yield _whole(config_name, config)
    yield _whole(
        "manifest.json", canonical_json([{"Config": config_name, "Layers": names, "RepoTags": [tag]}])
    )
    yield END
