"""Two images told apart: every class of difference, and nothing where nothing differs."""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import tarfile
import tracemalloc
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from repro.build.compare_images import compare_images
from repro.build.layout import open_layout
from repro.build.saved import SavedImage, SavedLayer
from repro.cli import cli
from repro.digest import digest_json
from repro.errors import BuildError
from repro.image import ImageComparison

SITE = "opt/venv/lib/python3.11/site-packages"


@dataclass
class Content:
    data: bytes = b"x"
    mtime: int = 1
    uid: int = 0
    mode: int = 0o644
    link: str | None = None
    hard: str | None = None
    folder: bool = False


def packed(files: Mapping[str, Content], *, form: int = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w", format=form) as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size, info.mtime, info.uid, info.mode = (
                len(content.data),
                content.mtime,
                content.uid,
                content.mode,
            )
            if content.link is not None:
                info.type, info.linkname, info.size = tarfile.SYMTYPE, content.link, 0
            if content.hard is not None:
                info.type, info.linkname, info.size = tarfile.LNKTYPE, content.hard, 0
            if content.folder:
                info.type, info.size = tarfile.DIRTYPE, 0
            archive.addfile(info, io.BytesIO(content.data))
    return buffer.getvalue()


@dataclass
class Made:
    """Images below a folder."""

    folder: Path
    number: int = field(default=0)

    def image(self, *layers: bytes, labels: Mapping[str, str] | None = None, **config: Any) -> SavedImage:
        kept = []
        for data in layers:
            self.number += 1
            path = self.folder / f"{self.number}.tar"
            path.write_bytes(data)
            kept.append(SavedLayer(f"sha256:{hashlib.sha256(data).hexdigest()}", path, 0, len(data)))
        tree = {"config": {"Labels": dict(labels or {})}, **config}
        return SavedImage(tree, tuple(kept), digest_json(tree))


@pytest.fixture
def made(tmp_path: Path) -> Made:
    return Made(tmp_path)


def classes(found: ImageComparison) -> dict[str, int]:
    assert sum(found.counts.values()) == len(found.differences)
    return found.counts


PLAIN = {f"{SITE}/a.py": Content(), "etc/motd": Content(b"hello"), "var/log/apt.log": Content()}


def test_equal_images_are_the_same(made: Made) -> None:
    found = compare_images(made.image(packed(PLAIN)), made.image(packed(PLAIN)))
    assert found.same
    assert found.differences == ()


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        ({"etc/motd": Content(b"hello", mtime=2)}, {"times": 1}),
        ({f"{SITE}/__pycache__/a.pyc": Content()}, {"byte code": 1}),
        ({"etc/motd": Content(b"hello", uid=1000)}, {"ownership": 1}),
        ({"etc/motd": Content(b"hello", mode=0o755)}, {"ownership": 1}),
        ({"var/log/apt.log": Content(b"later")}, {"log and cache files": 1}),
        ({"root/.cache/pip/http": Content()}, {"log and cache files": 1}),
        ({f"{SITE}/a.py": Content(b"y")}, {"package files": 1}),
        ({"etc/motd": Content(b"other")}, {"other files": 1}),
        ({"etc/motd": Content(link="hello")}, {"other files": 3}),
    ],
)
def test_every_difference_has_its_class(
    made: Made, change: dict[str, Content], expected: dict[str, int]
) -> None:
    found = compare_images(made.image(packed(PLAIN)), made.image(packed({**PLAIN, **change})))
    assert classes(found) == expected
    assert not found.same


def test_the_same_files_written_otherwise_differ_in_order_alone(made: Made) -> None:
    turned = dict(reversed(PLAIN.items()))
    assert classes(compare_images(made.image(packed(PLAIN)), made.image(packed(turned)))) == {"order": 1}
    other = packed(PLAIN, form=tarfile.GNU_FORMAT) + bytes(10240)
    found = compare_images(made.image(packed(PLAIN)), made.image(other))
    assert [one.aspect for one in found.differences] == ["encoding of the archive"]


def test_config_and_base_are_told_apart(made: Made) -> None:
    base = {"org.opencontainers.image.base.digest": "sha256:1"}
    one = made.image(packed(PLAIN), labels=base, created="2026-01-01T00:00:00Z", os="linux")
    moved = {"org.opencontainers.image.base.digest": "sha256:2"}
    other = made.image(packed(PLAIN), labels=moved, created="2026-01-02T00:00:00Z", os="plan9")
    assert classes(compare_images(one, other)) == {"base moved": 1, "configuration": 1, "times": 1}


def test_a_moved_base_is_said_once(made: Made) -> None:
    ours = packed(PLAIN)
    one = made.image(packed({"bin/sh": Content(b"1")}), ours)
    other = made.image(packed({"bin/sh": Content(b"2"), "bin/ls": Content()}), ours)
    assert classes(compare_images(one, other, base_layers=1)) == {"base moved": 1}
    assert classes(compare_images(one, other)) == {"other files": 2}


def test_later_layers_hide_earlier_ones(made: Made) -> None:
    shared = packed({"keep": Content()})
    one = made.image(shared, packed({"a/x": Content(), "a/y": Content(), "b": Content()}))
    split = [{"a/x": Content(b"0"), "a/old": Content(), "b": Content(b"0"), "c": Content()}]
    split += [{"a/.wh..wh..opq": Content(b""), ".wh.c": Content(b""), ".wh.b": Content(b"")}]
    split += [{"a/x": Content(), "a/y": Content(), "b": Content()}]
    other = made.image(shared, *map(packed, split))
    assert [one.kind for one in compare_images(one, other).differences] == ["order"]


def differing(found: ImageComparison) -> set[tuple[str, str]]:
    return {(one.path, one.aspect) for one in found.differences}


WHITEOUT, FOLDER = Content(b""), Content(folder=True)


@pytest.mark.parametrize("hidden", [{"a/.wh..wh..opq": WHITEOUT}, {"a/.wh.x": WHITEOUT}, {".wh.a": WHITEOUT}])
@pytest.mark.parametrize("last", [False, True])
def test_a_whiteout_hides_no_file_of_its_own_layer(
    made: Made, hidden: dict[str, Content], last: bool
) -> None:
    extra = {"a/x": Content(b"new")}
    layer = {**extra, **hidden} if last else {**hidden, **extra}
    below = packed({"b": Content()})
    found = compare_images(made.image(below, packed({})), made.image(below, packed(layer)))
    assert differing(found) == {("a/x", "presence")}


def test_a_whiteout_of_what_both_share_is_a_difference(made: Made) -> None:
    shared = packed({"a": FOLDER, "a/x": Content(), "b": Content()})
    nothing = made.image(shared, packed({"a": FOLDER}))
    for layer, expected in (
        ({"a": FOLDER, "a/.wh.x": WHITEOUT}, {("a/x", "whiteout")}),
        ({"a": FOLDER, "a/.wh..wh..opq": WHITEOUT}, {("a", "whiteout")}),
        ({"a": FOLDER, ".wh.b": WHITEOUT}, {("b", "whiteout")}),
        ({"a": FOLDER, "a/.wh.absent": WHITEOUT}, {("the layers", "order of members")}),
    ):
        assert differing(compare_images(nothing, made.image(shared, packed(layer)))) == expected


def test_what_is_no_folder_takes_the_place_of_one_and_of_all_in_it(made: Made) -> None:
    folder = packed({"a": FOLDER, "a/x": Content(), "a/y": Content()})
    one = made.image(packed({"z": Content()}), folder, packed({"a": Content(b"file")}))
    other = made.image(packed({"z": Content()}), packed({"a": Content(b"file")}))
    assert [one.kind for one in compare_images(one, other).differences] == ["order"]
    back = made.image(packed({"z": Content()}), folder, packed({"a": Content()}), packed({"a": FOLDER}))
    assert differing(compare_images(other, back)) == {("a", "type"), ("a", "content")}


def test_hard_links_are_the_files_they_name(made: Made) -> None:
    one = made.image(packed({"a": Content(b"same"), "b": Content(hard="a"), "c": Content(hard="./a")}))
    turned = made.image(packed({"c": Content(b"same"), "a": Content(hard="c"), "b": Content(hard="c")}))
    assert [one.kind for one in compare_images(one, turned).differences] == ["order"]
    changed = made.image(packed({"a": Content(b"else"), "b": Content(hard="a"), "c": Content(hard="a")}))
    assert differing(compare_images(one, changed)) == {(name, "content") for name in "abc"}
    apart = made.image(packed({name: Content(b"same") for name in "abc"}))
    assert differing(compare_images(one, apart)) == {(name, "link") for name in "abc"}
    replaced = made.image(
        packed({"a": Content(b"same"), "b": Content(hard="a"), "c": Content(hard="a")}),
        packed({"a": Content(b"same")}),
    )
    assert differing(compare_images(one, replaced)) == {(name, "link") for name in "abc"}


def test_a_thousand_folders_deep_and_a_thousand_whiteouts_are_read(made: Made) -> None:
    deep = "/".join("d" * 1500)
    layer = {f"{deep}/x": Content(), **{f"f{number}": Content() for number in range(1000)}}
    gone = {f".wh.f{number}": WHITEOUT for number in range(1000)}
    one = made.image(packed({"z": Content()}), packed(layer), packed(gone))
    other = made.image(packed({"z": Content()}), packed({f"{deep}/x": Content(b"y")}))
    assert differing(compare_images(one, other)) == {(f"{deep}/x", "content")}


def test_memory_does_not_grow_with_the_size_of_files(made: Made) -> None:
    big = [packed({"weights": Content(bytes(64 << 20) + end)}) for end in (b"a", b"b")]
    images = [made.image(data) for data in big]
    tracemalloc.start()
    found = compare_images(*images)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert classes(found) == {"other files": 1}
    assert peak < 8 << 20


def test_a_layer_that_is_no_archive_is_named(made: Made) -> None:
    with pytest.raises(BuildError) as caught:
        compare_images(made.image(b"no tar at all" * 100), made.image(packed(PLAIN)))
    assert caught.value.kind == "layer-malformed"


def write_layout(root: Path, layers: list[bytes]) -> None:
    """An OCI layout whose layers are packed with gzip."""
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)

    def blob(data: bytes, media_type: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        (blobs / digest).write_bytes(data)
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(data)}

    diff_ids = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]
    config = {"os": "linux", "rootfs": {"type": "layers", "diff_ids": diff_ids}}
    described = [
        blob(gzip.compress(data, mtime=0), "application/vnd.oci.image.layer.v1.tar+gzip") for data in layers
    ]
    manifest = {
        "schemaVersion": 2,
        "config": blob(json.dumps(config).encode(), "application/vnd.oci.image.config.v1+json"),
        "layers": described,
    }
    entry = blob(json.dumps(manifest).encode(), "application/vnd.oci.image.manifest.v1+json")
    attestation = {**entry, "annotations": {"vnd.docker.reference.type": "attestation-manifest"}}
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [attestation, entry]}))


def test_layouts_are_read_and_held_to_their_digests(tmp_path: Path) -> None:
    for name, content in (("one", b"1"), ("other", b"2")):
        write_layout(tmp_path / name, [packed({**PLAIN, "etc/motd": Content(content)})])
    result = CliRunner().invoke(
        cli, ["diff", str(tmp_path / "one"), str(tmp_path / "other"), "--json"], standalone_mode=False
    )
    answer = json.loads(result.stdout)
    assert (answer["same"], answer["counts"]) == (False, {"other files": 1})
    assert result.return_value == 3
    result = CliRunner().invoke(
        cli, ["diff", str(tmp_path / "one"), str(tmp_path / "one")], standalone_mode=False
    )
    assert result.return_value == 0
    assert result.stdout.startswith("same")
    blob = max((tmp_path / "one" / "blobs" / "sha256").iterdir(), key=lambda path: path.stat().st_size)
    blob.write_bytes(blob.read_bytes()[:-1])
    with pytest.raises(BuildError) as caught:
        open_layout(tmp_path / "one", scratch=tmp_path)
    assert caught.value.kind == "layout-malformed"
