"""Images pushed to a real registry, and brought into a real engine from wherever a person has them."""

from __future__ import annotations

import base64
import gzip
import json
import shutil
import subprocess
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import requests

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.adapters.reference import parse_reference
from repro.adapters.registry_push import RegistryWriter
from repro.build.archive import open_archive
from repro.build.push import push_image
from repro.cli.console import Console
from repro.cli.shipping import push_built, signed_image
from repro.digest import digest_bytes, hex_of, pretty_json
from repro.errors import BuildError, NetworkError, ReproError, RunError
from repro.image import HeldImage, ImageRecord
from repro.job import Job
from repro.manifest import Manifest, parse_manifest
from tests.adapters.debian_registry import push, push_manifest, serve_registry
from tests.attest.attest_world import World as RunWorld
from tests.build.small_project import Small
from tests.build.test_build import SHORT, World, base_lock
from tests.parts import Parts

pytestmark = pytest.mark.engine

REPOSITORY = "team/pilot"
PASSWORD_OF_ANN = "ann:$2b$04$abcdefghijklmnopqrstuu/LVz6MZlItEy42I2juLihZ66HnQx/cy"
SOURCES = ("digest", "tag", "foreign", "layout", "packed layout", "save", "save.gz", "layout.tar")


def quiet() -> Console:
    return Console(quiet=True)


@dataclass
class Place:
    """A signed image and another, in an engine, in a registry, and as files."""

    engine: DockerEngine
    host: str
    folder: Path
    signed: ImageRecord
    other: ImageRecord
    manifest: Manifest

    @property
    def name(self) -> str:
        return f"oci://{self.host}/{REPOSITORY}"

    def holds(self, record: ImageRecord) -> bool:
        return self.engine.find(record.identity.config_digest) is not None

    def forget(self) -> None:
        """Take the signed image out of the engine, and whatever else came with it."""
        for image in (self.signed, self.other):
            with suppress(Exception):
                self.engine.client.images.remove(image.identity.config_digest, force=True)
        assert not self.holds(self.signed)

    def supply(self, source: str | Path | None, console: Console | None = None) -> ImageRecord | None:
        given = None if source is None else str(source)
        return signed_image(given, self.manifest, console or quiet())(self.engine)

    def source(self, kind: str) -> str | Path:
        """Where the signed image lies, kind by kind."""
        match kind:
            case "digest":
                return self.name
            case "tag" | "foreign":
                return f"{self.name}:{kind}"
            case _:
                return self.folder / kind


def get(host: str, path: str) -> bytes:
    kinds = ("oci.image.manifest.v1", "docker.distribution.manifest.v2")
    accept = ", ".join(f"application/vnd.{kind}+json" for kind in kinds)
    answer = requests.get(f"http://{host}/v2/{REPOSITORY}/{path}", headers={"Accept": accept}, timeout=60)
    answer.raise_for_status()
    return answer.content


def write_layout(host: str, tag: str, root: Path) -> None:
    """What a registry has under a tag, as a layout."""
    blobs = root / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    data = get(host, f"manifests/{tag}")
    manifest = json.loads(data)
    (blobs / hex_of(digest_bytes(data))).write_bytes(data)
    for part in (manifest["config"], *manifest["layers"]):
        (blobs / hex_of(part["digest"])).write_bytes(get(host, f"blobs/{part['digest']}"))
    entry = {"mediaType": manifest["mediaType"], "digest": digest_bytes(data), "size": len(data)}
    (root / "index.json").write_text(json.dumps({"schemaVersion": 2, "manifests": [entry]}))


def write_files(place: Place, record: ImageRecord, prefix: str = "") -> None:
    """The image as `docker save` and as layouts have it."""
    folder, short = place.folder, record.identity.config_digest
    saved = b"".join(place.engine.save(short))
    (folder / f"{prefix}save").write_bytes(saved)
    (folder / f"{prefix}save.gz").write_bytes(gzip.compress(saved, 0))
    write_layout(place.host, f"{prefix}tag", folder / f"{prefix}layout")
    push_packed(place.host, f"{prefix}foreign", folder / f"{prefix}layout")
    write_layout(place.host, f"{prefix}foreign", folder / f"{prefix}packed layout")
    with tarfile.open(folder / f"{prefix}layout.tar", "w") as archive:
        archive.add(folder / f"{prefix}layout", arcname=".")


def push_packed(host: str, tag: str, layout: Path) -> None:
    """Push as engines do: layers packed with gzip, so that the manifest is another one."""
    blobs = layout / "blobs" / "sha256"
    (entry,) = json.loads((layout / "index.json").read_text())["manifests"]
    manifest = json.loads((blobs / hex_of(entry["digest"])).read_bytes())
    for layer in manifest["layers"]:
        packed = gzip.compress((blobs / hex_of(layer["digest"])).read_bytes(), 0)
        layer |= {"digest": push(host, REPOSITORY, packed), "size": len(packed)}
        layer["mediaType"] += "+gzip"
    push_manifest(host, REPOSITORY, tag, manifest)


@pytest.fixture(scope="module")
def place(
    quiet_engine: DockerEngine, base_image: HeldImage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("shipping")
    (folder / "parts").mkdir()
    small = Small(Parts(folder / "parts"), folder / "project", dockerfile=SHORT)
    lock = base_lock(base_image)
    signed = World(quiet_engine, small, lock).build()
    (small.root / "train.py").write_text("print('another program')\n")
    other = World(quiet_engine, small, lock).build()
    assert other.identity != signed.identity
    tree = RunWorld(folder / "run").manifest_tree(image=signed.tree())
    manifest = parse_manifest(pretty_json(tree), where="manifest.json")
    with serve_registry(folder / "registry") as host:
        made = Place(quiet_engine, host, folder, signed, other, manifest)
        for record, prefix in ((signed, ""), (other, "other-")):
            push_built(record, f"{host}/{REPOSITORY}:{prefix}tag", engine=quiet_engine, console=quiet())
            write_files(made, record, prefix)
        yield made
        made.forget()


def test_a_registry_knows_the_image_by_the_digests_that_are_signed(place: Place) -> None:
    identity = place.signed.identity
    data = get(place.host, "manifests/tag")
    assert digest_bytes(data) == identity.manifest_digest
    assert json.loads(data)["config"]["digest"] == identity.config_digest
    assert digest_bytes(get(place.host, f"blobs/{identity.config_digest}")) == identity.config_digest
    foreign = json.loads(get(place.host, "manifests/foreign"))
    assert foreign["config"]["digest"] == identity.config_digest
    assert [part["digest"] for part in foreign["layers"]] != list(identity.diff_ids)


def test_to_push_once_more_changes_nothing_and_moves_a_tag(place: Place) -> None:
    if not place.holds(place.other):
        place.engine.load(iter(((place.folder / "other-save").read_bytes(),)))
    named = f"oci://{place.host}/{REPOSITORY}"
    for where in (named, f"{named}:moves", f"{named}@{place.other.identity.manifest_digest}"):
        pushed = push_built(place.other, where, engine=place.engine, console=quiet())
        assert pushed == f"{named}@{place.other.identity.manifest_digest}"
    where = f"{named}@{place.signed.identity.manifest_digest}"
    with pytest.raises(BuildError) as refused:
        push_built(place.other, where, engine=place.engine, console=quiet())
    assert refused.value.kind == "push-differs"
    assert digest_bytes(get(place.host, "manifests/moves")) == place.other.identity.manifest_digest


class Raced(RegistryWriter):
    """Somebody else moves the tag right after us."""

    other = b""

    def push_manifest(
        self, data: bytes, media_type: str, *, tag: str | None = None, unless_changed: str | None = None
    ) -> Mapping[str, str] | None:
        answer = super().push_manifest(data, media_type, tag=tag, unless_changed=unless_changed)
        super().push_manifest(self.other, media_type, tag=tag)
        return answer


def test_what_a_tag_names_after_a_push_is_read_back(place: Place, tmp_path: Path) -> None:
    reference = parse_reference(f"{place.host}/{REPOSITORY}:raced")
    image, identity = open_archive(place.folder / "save", scratch=tmp_path), place.signed.identity
    registry = Raced(reference, {})
    registry.other = get(place.host, "manifests/other-tag")
    with registry, pytest.raises(BuildError) as found:
        push_image(image, identity, registry, tag="raced", progress=quiet())
    assert (found.value.kind, found.value.where) == ("push-differs", "raced")
    for digest in (identity.manifest_digest, place.other.identity.config_digest):
        assert digest in found.value.message
    with RegistryWriter(reference, {}) as plain, pytest.raises(BuildError) as refused:
        push_image(image, place.other.identity, plain, tag=None, progress=quiet())
    assert refused.value.kind == "image-differs"


@pytest.mark.parametrize("kind", SOURCES)
def test_the_signed_image_is_brought_from_anywhere(place: Place, kind: str) -> None:
    place.forget()
    assert place.supply(place.source(kind)) == place.signed
    held = place.engine.find(place.signed.identity.config_digest)
    assert held is not None
    assert held.diff_ids == place.signed.identity.diff_ids


@pytest.mark.interop
def test_what_another_tool_copies_is_brought_too(place: Place, tmp_path: Path) -> None:
    skopeo = shutil.which("skopeo")
    if skopeo is None:
        pytest.skip("skopeo is not installed here")

    def copy(source: str, target: str, *options: str) -> None:
        command = [skopeo, "copy", "-q", "--src-tls-verify=false", "--dest-tls-verify=false", *options]
        subprocess.run([*command, source, target], check=True)

    registry = f"docker://{place.host}/{REPOSITORY}"
    copy(f"{registry}:tag", f"oci:{tmp_path}/layout:v1")
    copy(f"{registry}:tag", f"oci:{tmp_path}/packed:v1", "--dest-compress")
    copy(f"{registry}:tag", f"oci-archive:{tmp_path}/oci.tar:v1")
    copy(f"{registry}:tag", f"docker-archive:{tmp_path}/docker.tar:team/pilot:v1")
    copy(f"oci:{tmp_path}/layout:v1", f"{registry}:copied", "--dest-compress")
    files = [str(tmp_path / name) for name in ("layout", "packed", "oci.tar", "docker.tar")]
    for source in (*files, f"{place.name}:copied"):
        place.forget()
        assert place.supply(source) == place.signed
        assert place.holds(place.signed)


@pytest.mark.parametrize("kind", SOURCES[1:])
def test_another_image_is_refused_with_both_digests_and_never_loaded(place: Place, kind: str) -> None:
    place.forget()
    wrong = f"{place.name}:other-{kind}" if kind in ("tag", "foreign") else place.folder / f"other-{kind}"
    with pytest.raises(RunError) as refused:
        place.supply(wrong)
    assert refused.value.kind == "image-differs"
    assert refused.value.where == str(wrong)
    for record in (place.signed, place.other):
        assert record.identity.config_digest in refused.value.message
        assert not place.holds(record)


def test_what_a_person_named_is_looked_at_even_where_the_engine_holds_the_image(place: Place) -> None:
    place.supply(place.source("save"))
    for wrong in (f"{place.name}:other-tag", place.folder / "other-layout"):
        with pytest.raises(RunError, match=place.other.identity.config_digest):
            place.supply(wrong)
    assert place.supply(f"{place.name}:tag") == place.signed
    assert place.supply("engine") == place.supply(None) == place.signed


def test_a_layout_of_several_images_gives_the_signed_one(place: Place, tmp_path: Path) -> None:
    place.forget()
    index: dict[str, Any] = {"schemaVersion": 2, "manifests": []}
    (tmp_path / "blobs" / "sha256").mkdir(parents=True)
    for name in ("other-layout", "layout"):
        for blob in (place.folder / name / "blobs" / "sha256").iterdir():
            (tmp_path / "blobs" / "sha256" / blob.name).write_bytes(blob.read_bytes())
        index["manifests"] += json.loads((place.folder / name / "index.json").read_text())["manifests"]
    (tmp_path / "index.json").write_text(json.dumps(index))
    assert place.supply(tmp_path) == place.signed


@pytest.mark.parametrize("name", ["save", "save.gz", "layout.tar"])
@pytest.mark.parametrize("part", [0.0, 0.001, 0.5, 0.99])
def test_a_truncated_archive_is_named_and_never_loaded(
    place: Place, tmp_path: Path, name: str, part: float
) -> None:
    place.forget()
    data = (place.folder / name).read_bytes()
    short = tmp_path / "short.tar"
    short.write_bytes(data[: int(len(data) * part)])
    with pytest.raises(BuildError) as refused:
        place.supply(short)
    assert (refused.value.kind, refused.value.where) == ("archive-malformed", str(short))
    assert not place.holds(place.signed)


def test_a_layer_with_other_bytes_is_refused_wherever_it_lies(place: Place, tmp_path: Path) -> None:
    place.forget()
    layer = hex_of(place.signed.identity.diff_ids[-1])
    whole = (place.folder / "layout" / "blobs" / "sha256" / layer).read_bytes()
    for name in ("save", "layout.tar"):
        data = bytearray((place.folder / name).read_bytes())
        data[data.index(whole) + 5] ^= 1
        (tmp_path / name).write_bytes(data)
        with pytest.raises(BuildError) as refused:
            place.supply(tmp_path / name)
        assert refused.value.kind == "archive-malformed"
    kept = next((place.folder / "registry").rglob(f"sha256/??/{layer}/data"))
    changed = bytearray(whole)
    changed[5] ^= 1
    kept.write_bytes(changed)
    try:
        with pytest.raises(NetworkError) as wrong:
            place.supply(place.name)
    finally:
        kept.write_bytes(whole)
    assert wrong.value.kind == "registry-wrong-bytes"
    assert not place.holds(place.signed)


def test_a_digest_that_leads_out_of_the_folder_is_refused(place: Place, tmp_path: Path) -> None:
    place.forget()
    source = place.folder / "packed layout"
    manifest = json.loads(get(place.host, "manifests/foreign"))
    config = json.loads((source / "blobs" / "sha256" / hex_of(manifest["config"]["digest"])).read_bytes())
    config["rootfs"]["diff_ids"][-1] = "../../../escaped"
    blobs = tmp_path / "layout" / "blobs" / "sha256"
    blobs.mkdir(parents=True)
    for blob in (source / "blobs" / "sha256").iterdir():
        (blobs / blob.name).write_bytes(blob.read_bytes())
    digests: list[str] = []
    for document in (config, manifest):
        if digests:
            document["config"]["digest"] = digests[0]
        data = json.dumps(document).encode()
        digests.append(digest_bytes(data))
        (blobs / hex_of(digests[-1])).write_bytes(data)
    (tmp_path / "layout" / "index.json").write_text(json.dumps({"manifests": [{"digest": digests[1]}]}))
    with pytest.raises(BuildError, match=r"'../../../escaped' is no sha256 digest"):
        place.supply(tmp_path / "layout")


def test_what_is_nowhere_is_left_to_be_rebuilt_and_said(
    place: Place, capsys: pytest.CaptureFixture[str]
) -> None:
    place.forget()
    for source in (f"oci://{place.host}/team/empty", f"{place.name}:none", "engine", None):
        assert place.supply(source, Console()) is None
        assert "it is rebuilt from the signed lock" in capsys.readouterr().err
    with pytest.raises(BuildError) as absent:
        place.supply(place.folder / "no such file")
    assert absent.value.kind == "image-absent"


def test_a_run_without_an_image_has_none_to_bring(place: Place) -> None:
    bare = replace(place, manifest=place.manifest.model_copy(update={"image": None}))
    assert bare.supply(None) is None
    with pytest.raises(RunError) as refused:
        bare.supply("engine")
    assert refused.value.kind == "no-signed-image"


def test_an_image_that_was_brought_runs(place: Place) -> None:
    place.forget()
    place.supply(place.name)
    lines: list[str] = []
    job = Job(
        argv=("/bin/sh", "-c", "cat /workspace/train.py"),
        environment={},
        workdir="/",
        image=place.signed.identity.config_digest,
        timeout_s=60,
    )
    result = DockerRuntime(place.engine).run(job, on_line=lines.append)
    assert (result.exit_code, lines) == (0, ["import tinypkg", "print(tinypkg.VALUE)"])


def test_credentials_are_those_of_docker_login(
    place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place.supply(place.source("save"))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path))
    with serve_registry(tmp_path / "registry", htpasswd=PASSWORD_OF_ANN) as host:
        where = f"{host}/{REPOSITORY}:v1"

        def push_it() -> str:
            return push_built(place.signed, where, engine=place.engine, console=quiet())

        with pytest.raises(NetworkError) as refused:
            push_it()
        assert refused.value.kind == "registry-refused"
        known = base64.b64encode(b"ann:open sesame").decode()
        (tmp_path / "config.json").write_text(json.dumps({"auths": {host: {"auth": known}}}))
        assert push_it().endswith(place.signed.identity.manifest_digest)
        place.forget()
        assert place.supply(f"oci://{where}") == place.signed


def test_what_the_engine_holds_no_more_cannot_be_pushed(place: Place) -> None:
    place.forget()
    with pytest.raises(ReproError) as absent:
        push_built(place.signed, f"{place.host}/{REPOSITORY}", engine=place.engine, console=quiet())
    assert absent.value.kind == "image-absent"
