"""Attacks on an image in an OCI layout, and what an engine may leave unsaid."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from repro.adapters.imagefinder import CONFIG_TYPE, LAYER_TYPE, MANIFEST_TYPE, engine_image, layout_image
from repro.digest import Digest, canonical_json, digest_bytes, hex_of
from repro.errors import TrustError
from repro.image import HeldImage, ImageIdentity


class Layout:
    """An image of two layers; `signed` follows whatever the manifest says."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.layers = [b"first layer", b"second layer"]
        self.config: Any = {
            "os": "linux",
            "architecture": "amd64",
            "rootfs": {"type": "layers", "diff_ids": [digest_bytes(layer) for layer in self.layers]},
        }
        self.manifest: Any = {
            "schemaVersion": 2,
            "mediaType": MANIFEST_TYPE,
            "layers": [self.describe(layer, LAYER_TYPE) for layer in self.layers],
        }
        self.write()

    def describe(self, data: bytes, media_type: str) -> dict[str, Any]:
        return {"mediaType": media_type, "digest": digest_bytes(data), "size": len(data)}

    def put(self, data: bytes, digest: Digest | None = None) -> Path:
        path = self.root / "blobs/sha256" / hex_of(digest or digest_bytes(data))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return path

    def write(self) -> None:
        config = canonical_json(self.config)
        self.put(config)
        for layer in self.layers:
            self.put(layer)
        self.manifest["config"] = self.manifest.get("config") or self.describe(config, CONFIG_TYPE)
        self.signed = self.identity(canonical_json(self.manifest), config)
        self.put(canonical_json(self.manifest))

    def identity(self, manifest: bytes, config: bytes) -> ImageIdentity:
        return ImageIdentity(
            config_digest=digest_bytes(config),
            manifest_digest=digest_bytes(manifest),
            diff_ids=tuple(digest_bytes(layer) for layer in self.layers),
            layer_sizes=tuple(len(layer) for layer in self.layers),
            size=sum(len(layer) for layer in self.layers),
            os="linux",
            architecture="amd64",
        )


@pytest.fixture
def layout(tmp_path: Path) -> Layout:
    return Layout(tmp_path)


def test_the_image_that_was_signed(layout: Layout) -> None:
    assert layout_image(layout.root, layout.signed) == layout.signed


def test_50_an_image_that_is_not_there_is_not_found(tmp_path: Path, layout: Layout) -> None:
    assert layout_image(tmp_path / "elsewhere", layout.signed) is None


def test_46_another_architecture_is_another_identity(layout: Layout) -> None:
    layout.config["architecture"] = "arm64"
    del layout.manifest["config"]
    layout.write()
    found = layout_image(layout.root, layout.signed)
    assert found is not None
    assert found != layout.signed


def replaced(layout: Layout) -> None:
    layout.put(b"other layer", digest_bytes(b"first layer"))


def longer(layout: Layout) -> None:
    layout.put(b"first layer and more", digest_bytes(b"first layer"))


def missing(layout: Layout) -> None:
    layout.put(b"second layer").unlink()


def config_missing(layout: Layout) -> None:
    layout.put(canonical_json(layout.config)).unlink()


def manifest_replaced(layout: Layout) -> None:
    layout.put(b"{}", Digest(layout.signed.manifest_digest))


def config_replaced(layout: Layout) -> None:
    layout.put(b"{}", Digest(layout.signed.config_digest))


def member(change: Callable[[Any], object]) -> Callable[[Layout], None]:
    """A signer who signed a manifest that no image of ours has."""

    def attack(layout: Layout) -> None:
        change(layout.manifest)
        layout.write()

    return attack


def other_layers(layout: Layout) -> None:
    layout.config["rootfs"]["diff_ids"].reverse()
    del layout.manifest["config"]
    layout.write()


def not_json(layout: Layout) -> None:
    data = b'{"schemaVersion":2,"schemaVersion":2}'
    layout.put(data)
    layout.signed = layout.signed.model_copy(update={"manifest_digest": digest_bytes(data)})


ATTACKS: list[tuple[str, Callable[[Layout], None]]] = [
    ("48 layer replaced", replaced),
    ("48 layer longer", longer),
    ("48 layer missing", missing),
    ("48 config missing", config_missing),
    ("48 config replaced", config_replaced),
    ("48 manifest replaced", manifest_replaced),
    ("51 config of other layers", other_layers),
    ("52 schema 1", member(lambda m: m.update(schemaVersion=1))),
    ("52 index", member(lambda m: m.update(mediaType="application/vnd.oci.image.index.v1+json"))),
    ("52 manifests beside layers", member(lambda m: m.update(manifests=[]))),
    ("52 foreign layer", member(lambda m: m["layers"][0].update(mediaType=LAYER_TYPE + "+foreign"))),
    ("52 compressed layer", member(lambda m: m["layers"][0].update(mediaType=LAYER_TYPE + "+gzip"))),
    ("52 layer by address", member(lambda m: m["layers"][0].update(urls=["https://x.example"]))),
    ("52 layer by path", member(lambda m: m["layers"][0].update(digest="sha256:../../../etc/passwd"))),
    ("52 no layers", member(lambda m: m.update(layers=[]))),
    ("52 layers no list", member(lambda m: m.update(layers="x"))),
    ("52 size", member(lambda m: m["layers"][0].update(size=1))),
    ("21 doubled member", not_json),
]


@pytest.mark.parametrize("attack", [a for _, a in ATTACKS], ids=[name for name, _ in ATTACKS])
def test_image_attack(layout: Layout, attack: Callable[[Layout], None]) -> None:
    attack(layout)
    with pytest.raises(TrustError) as caught:
        layout_image(layout.root, layout.signed)
    assert caught.value.kind == "E_IMAGE"


class Shelf:
    """An engine that holds one image, or none."""

    def __init__(self, held: HeldImage | None) -> None:
        self.held = held

    def find(self, config_digest: str, *, diff_ids: Sequence[str] | None = None) -> HeldImage | None:
        return self.held


def held(layout: Layout, **changes: Any) -> HeldImage:
    tree = {
        "id": "sha256:1",
        "config_digest": layout.signed.config_digest,
        "diff_ids": list(layout.signed.diff_ids),
        "os": "linux",
        "architecture": "amd64",
        "size": 5,
        "tags": [],
        "repo_digests": [],
        **changes,
    }
    return HeldImage.parse(json.loads(json.dumps(tree)))


def test_what_an_engine_says(layout: Layout) -> None:
    def found(image: HeldImage | None) -> ImageIdentity | None:
        return engine_image(Shelf(image), layout.signed)  # type: ignore[arg-type]

    assert found(held(layout)) == layout.signed
    assert found(None) is None
    assert found(held(layout, diff_ids=None)) is None
    assert found(held(layout, config_digest=None)) is None
    assert found(held(layout, diff_ids=[digest_bytes(b"x")])) != layout.signed
    assert found(held(layout, architecture="arm64")) != layout.signed
