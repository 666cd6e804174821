"""Runs attached to their image in Debian's own registry, and brought back: by us, and by cosign."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import click
import pytest
import requests
from click.testing import CliRunner, Result

from repro.adapters.reference import parse_reference
from repro.adapters.referrers import Referrers
from repro.attest.attached import RUN_ARTIFACT, TITLE, bundle_name, run_files
from repro.bundle import BUNDLE_TYPE
from repro.cli import cli
from repro.digest import canonical_json, digest_bytes
from repro.errors import FileError, NetworkError, ReproError, TrustError
from repro.statement import REPLAY_TYPE, RUN_TYPE
from tests.adapters.debian_registry import push, serve_registry
from tests.attest.attest_authority import clock
from tests.attest.attest_world import IMAGE_IDENTITY, World, public_pem
from tests.attest.test_interop_cosign import Cosign, program

__all__ = ["program"]

REPOSITORY = "team/pilot"
LAYERS = (b"base layer" * 100, b"our layer" * 100)
MANIFEST_TYPE = "application/vnd.oci.image.manifest.v1+json"
CONFIG = canonical_json(
    {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": [digest_bytes(layer) for layer in LAYERS]},
    }
)


def described(kind: str, data: bytes) -> dict[str, Any]:
    return {"mediaType": f"application/vnd.oci.image.{kind}", "digest": digest_bytes(data), "size": len(data)}


IMAGE = canonical_json(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST_TYPE,
        "config": described("config.v1+json", CONFIG),
        "layers": [described("layer.v1.tar", layer) for layer in LAYERS],
    }
)
IDENTITY = {
    **IMAGE_IDENTITY,
    "config_digest": digest_bytes(CONFIG),
    "manifest_digest": digest_bytes(IMAGE),
    "diff_ids": [digest_bytes(layer) for layer in LAYERS],
    "layer_sizes": [len(layer) for layer in LAYERS],
    "size": sum(map(len, LAYERS)),
}


@dataclass
class Place:
    """A registry that holds the image, a signed run of it, and a policy."""

    world: World
    host: str
    storage: Path
    root: Path

    @property
    def image(self) -> str:
        return f"oci://{self.host}/{REPOSITORY}@{digest_bytes(IMAGE)}"

    @property
    def fallback(self) -> str:
        return f"http://{self.host}/v2/{REPOSITORY}/manifests/sha256-{digest_bytes(IMAGE)[7:]}"

    def sign_run(self, **changes: Any) -> None:
        """A run of that image, signed by `train`."""
        created = f"{clock() - timedelta(days=1):%Y-%m-%dT%H:%M:%SZ}"
        image = {**self.world.manifest_tree()["image"], "identity": IDENTITY}
        self.world.write_run(image=image, created_at=created, **changes)
        self.world.sign()

    def repro(self, *arguments: object) -> Result:
        def run() -> Result:
            return CliRunner().invoke(cli, [str(one) for one in arguments], standalone_mode=False)

        return run()

    def attach(self) -> dict[str, str]:
        result = self.repro("attach", self.world.run, f"oci://{self.host}/{REPOSITORY}", "--json")
        if result.exception:
            raise result.exception
        attached: dict[str, str] = json.loads(result.stdout)["attached"]
        return attached

    def verify(self, *more: object) -> dict[str, Any]:
        trust = self.world.write_policy()
        result = self.repro("verify", self.image, "--trust", trust, "--json", *more)
        if result.exception:
            raise result.exception
        answer: dict[str, Any] = json.loads(result.stdout)
        assert (answer["verdict"] == "VERIFIED") == (result.return_value == 0)
        return answer

    def index(self) -> list[dict[str, Any]]:
        answer = requests.get(
            self.fallback, headers={"Accept": "application/vnd.oci.image.index.v1+json"}, timeout=5
        )
        answer.raise_for_status()
        entries: list[dict[str, Any]] = answer.json()["manifests"]
        return entries

    def put_index(self, entries: list[dict[str, Any]]) -> None:
        kind = "application/vnd.oci.image.index.v1+json"
        data = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": entries}).encode()
        requests.put(self.fallback, data=data, headers={"Content-Type": kind}, timeout=5).raise_for_status()


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with serve_registry(tmp_path / "registry") as host:
        for data in (*LAYERS, CONFIG):
            push(host, REPOSITORY, data)
        url = f"http://{host}/v2/{REPOSITORY}/manifests/{digest_bytes(IMAGE)}"
        requests.put(url, data=IMAGE, headers={"Content-Type": MANIFEST_TYPE}, timeout=5).raise_for_status()
        made = Place(World(tmp_path / "world"), host, tmp_path / "registry", tmp_path)
        made.world.policy |= {"expires": None}
        for key in made.world.policy["keys"]:
            key |= {"notBefore": None, "notAfter": None}
        made.sign_run()
        yield made


def test_a_run_comes_back_from_the_registry_alone(place: Place) -> None:
    place.world.demand_replay()
    place.world.replay()
    attached = place.attach()
    assert set(attached) == {"run", "train.sigstore.json", "replays/auditor.sigstore.json"}
    shutil.rmtree(place.world.run)
    answer = place.verify("--image", f"oci://{place.host}/{REPOSITORY}")
    assert (answer["verdict"], answer["code"]) == ("VERIFIED", None)
    states = {check["name"]: check["state"] for check in answer["checks"]}
    assert (states["files"], states["image"], states["replays"]) == ("passed",) * 3
    assert [signature["bundle"] for signature in answer["signatures"]] == ["train.sigstore.json"]


def test_attaching_twice_changes_nothing(place: Place) -> None:
    first, index = place.attach(), place.index()
    assert (place.attach(), place.index()) == (first, index)
    assert {entry["artifactType"] for entry in index} == {RUN_ARTIFACT, BUNDLE_TYPE}


def test_a_second_signature_is_added_later(place: Place) -> None:
    place.attach()
    place.world.policy["rules"][0]["threshold"] = 2
    assert place.verify()["code"] == "E_THRESHOLD"
    place.world.sign("lab")
    place.attach()
    assert place.verify()["principals"] == ["lab", "train"]


def test_nobody_is_lost_when_many_attach_at_once(place: Place) -> None:
    def one(number: int) -> str:
        data = f"{number}".encode()
        with Referrers(parse_reference(place.image.removeprefix("oci://")), {}) as registry:
            registry.push_blob(digest_bytes(data), len(data), lambda: iter((data,)))
            layer = {"mediaType": "text/plain", "digest": digest_bytes(data), "size": len(data)}
            subject = (digest_bytes(IMAGE), len(IMAGE))
            return registry.attach(subject, "application/x-test", [layer], {})

    with ThreadPoolExecutor(6) as pool:
        made = set(pool.map(one, range(6)))
    assert made == {entry["digest"] for entry in place.index()}


@pytest.mark.parametrize("entries", [[], None], ids=["emptied", "removed"])
def test_50_what_was_taken_away_is_never_a_pass(place: Place, entries: list[Any] | None) -> None:
    place.attach()
    if entries is None:
        shutil.rmtree(place.storage)
        place.storage.mkdir()
        with pytest.raises(ReproError):
            raise place.repro("attach", place.world.run, place.image).exception or AssertionError
    else:
        place.put_index(entries)
        assert (place.verify()["verdict"], place.verify()["code"]) == ("REJECTED", "E_BUNDLE")


def test_50_each_part_that_is_taken_away(place: Place) -> None:
    place.attach()
    entries = place.index()
    codes = {}
    for left_out in entries:
        place.put_index([entry for entry in entries if entry is not left_out])
        codes[left_out["artifactType"]] = place.verify()["code"]
    assert codes == {RUN_ARTIFACT: "E_PATH", BUNDLE_TYPE: "E_BUNDLE"}


def test_50_what_others_put_there_blocks_nothing(place: Place) -> None:
    place.attach()
    good = place.index()
    junk = [{"digest": digest_bytes(IMAGE), "mediaType": MANIFEST_TYPE, "size": len(IMAGE)}]
    url = f"http://{place.host}/v2/{REPOSITORY}/manifests/other"
    for layers in ([], [{"annotations": {TITLE: "../x"}, "digest": "sha256:" + "1" * 64, "size": 1}]):
        tree = {"schemaVersion": 2, "mediaType": MANIFEST_TYPE, "artifactType": RUN_ARTIFACT}
        tree |= {"subject": {"digest": digest_bytes(IMAGE), "mediaType": MANIFEST_TYPE, "size": len(IMAGE)}}
        push(place.host, REPOSITORY, b"{}")
        tree |= {"config": described("empty.v1+json", b"{}"), "layers": layers}
        data = canonical_json(tree)
        answer = requests.put(url, data=data, headers={"Content-Type": MANIFEST_TYPE}, timeout=5)
        if answer.ok:
            junk.append({"digest": digest_bytes(data), "mediaType": MANIFEST_TYPE, "size": len(data)})
    assert len(junk) > 1
    place.put_index([*junk, *good])
    assert place.verify()["verdict"] == "VERIFIED"


def test_46_a_run_of_another_image_is_refused(place: Place) -> None:
    other = place.world.manifest_tree()["image"]
    place.world.write_run(image={**other, "identity": {**IDENTITY, "manifest_digest": "sha256:" + "2" * 64}})
    place.world.sign()
    with pytest.raises(TrustError, match="the run is of image"):
        raise place.repro("attach", place.world.run, place.image).exception or AssertionError
    with pytest.raises(TrustError, match="does not hold the signed image"):
        place.attach()
    place.world.write_run(image=None, runtime="host")
    place.world.sign()
    with pytest.raises(TrustError, match="had no image"):
        place.attach()


def test_49_bundles_and_files_copied_to_another_image(place: Place) -> None:
    """Whoever may push can say that the run is about another image; the statement does not."""
    place.attach()
    other = IMAGE + b"\n"
    headers = {"Content-Type": MANIFEST_TYPE}
    base = f"http://{place.host}/v2/{REPOSITORY}/manifests"
    requests.put(f"{base}/other", data=other, headers=headers, timeout=5).raise_for_status()
    moved = []
    for entry in place.index():
        data = requests.get(f"{base}/{entry['digest']}", headers={"Accept": MANIFEST_TYPE}, timeout=5).content
        data = data.replace(digest_bytes(IMAGE).encode(), digest_bytes(other).encode())
        digest = digest_bytes(data)
        requests.put(f"{base}/{digest}", data=data, headers=headers, timeout=5).raise_for_status()
        moved.append({**entry, "digest": digest, "size": len(data)})
    kind = "application/vnd.oci.image.index.v1+json"
    index = json.dumps({"schemaVersion": 2, "mediaType": kind, "manifests": moved})
    tag = f"{base}/sha256-{digest_bytes(other)[7:]}"
    requests.put(tag, data=index, headers={"Content-Type": kind}, timeout=5).raise_for_status()
    where = f"oci://{place.host}/{REPOSITORY}@{digest_bytes(other)}"
    result = place.repro("verify", where, "--trust", place.world.write_policy(), "--json")
    assert (result.return_value, json.loads(result.stdout)["code"]) == (3, "E_IMAGE")


@pytest.mark.parametrize("what", ["file", "bundle", "layer", "config"])
def test_48_bytes_replaced_in_the_registrys_store(place: Place, what: str) -> None:
    place.attach()
    data = {
        "file": place.world.files["repro.lock"],
        "bundle": (place.world.run / "train.sigstore.json").read_bytes(),
        "layer": LAYERS[0],
        "config": CONFIG,
    }[what]
    digest = hashlib.sha256(data).hexdigest()
    (blob,) = place.storage.rglob(f"{digest}/data")
    blob.write_bytes(data[:-2] + b"x" + data[-1:])
    command = ("--image", f"oci://{place.host}/{REPOSITORY}")
    try:
        answer = place.verify(*command)
    except NetworkError as error:
        assert error.kind == "registry-wrong-bytes"  # noqa: PT017
    else:
        assert answer["verdict"] == "REJECTED"
        assert answer["code"] in {"file": ("E_SUBJECT",), "layer": ("E_IMAGE",), "config": ("E_IMAGE",)}[what]


def test_48_a_layer_that_is_missing(place: Place) -> None:
    place.attach()
    (blob,) = place.storage.rglob(f"{digest_bytes(LAYERS[1])[7:]}/data")
    blob.unlink()
    answer = place.verify("--image", f"oci://{place.host}/{REPOSITORY}")
    assert (answer["verdict"], answer["code"]) == ("REJECTED", "E_IMAGE")


def test_a_changed_folder_is_not_handed_on(place: Place) -> None:
    (place.world.run / "repro.lock").write_bytes(b"{}")
    with pytest.raises(TrustError, match=r"repro\.lock is not the file that was signed"):
        place.attach()
    place.sign_run()
    (place.world.run / "train.sigstore.json").unlink()
    with pytest.raises(FileError, match="no signature"):
        place.attach()


def test_several_runs_of_one_image(place: Place) -> None:
    place.attach()
    place.sign_run(run_id="ff" * 16, sequence=8)
    place.attach()
    with pytest.raises(FileError, match="2 signed runs are attached"):
        place.verify()
    answer = place.verify("--expect-run", "ff" * 16)
    assert (answer["verdict"], answer["sequence"]) == ("VERIFIED", 8)


@pytest.mark.parametrize("where", ["registry/x", "oci://registry.example/x:tag"])
def test_addresses_that_name_no_image(place: Place, where: str) -> None:
    result = place.repro("attach", place.world.run, where)
    assert isinstance(result.exception, click.UsageError)


LAYER: dict[str, Any] = {"digest": "sha256:" + "1" * 64, "size": 1}


@pytest.mark.parametrize(
    ("layers", "code"),
    [
        (None, "E_SUBJECT"),
        ([7], "E_SUBJECT"),
        ([LAYER], "E_SUBJECT"),
        ([{**LAYER, "annotations": {TITLE: "a"}, "digest": "x"}], "E_SUBJECT"),
        ([{**LAYER, "annotations": {TITLE: "a"}, "size": -1}], "E_SUBJECT"),
        ([{**LAYER, "annotations": {TITLE: "a"}, "size": 17 << 30}], "E_SIZE"),
        ([{**LAYER, "annotations": {TITLE: f"a{n}"}} for n in range(1025)], "E_SIZE"),
        ([{**LAYER, "annotations": {TITLE: "../a"}}], "E_PATH"),
        ([{**LAYER, "annotations": {TITLE: "/a"}}], "E_PATH"),
        ([{**LAYER, "annotations": {TITLE: "a"}}] * 2, "E_PATH"),
        ([{**LAYER, "annotations": {TITLE: name}} for name in ("a", "A")], "E_PATH"),
        ([{**LAYER, "annotations": {TITLE: name}} for name in ("a", "a/b")], "E_PATH"),
    ],
)
def test_68_hostile_descriptions_of_files(layers: Any, code: str) -> None:
    with pytest.raises(TrustError) as caught:
        run_files({"artifactType": RUN_ARTIFACT, "layers": layers}, where="x")
    assert caught.value.kind == code


def test_names_of_bundles_are_wishes(world: World) -> None:
    run, replay = world.sign().read_bytes(), world.replay().read_bytes()
    own = f"{digest_bytes(run)[7:23]}.sigstore.json"
    assert bundle_name(run, "train.sigstore.json", ()) == "train.sigstore.json"
    assert bundle_name(replay, "lab.sigstore.json", ()) == "replays/lab.sigstore.json"
    for title, taken in ((None, ()), ("../x.sigstore.json", ()), ("a.sigstore.json", ("a.sigstore.json",))):
        assert bundle_name(run, title, taken) == own
    assert bundle_name(b"{}", "a.sigstore.json", ()) is None
    other = world.sign_tree({**world.statement(), "predicateType": "https://slsa.dev/provenance/v1"})
    assert bundle_name(other.read_bytes(), "a.sigstore.json", ()) is None


@pytest.mark.interop
@pytest.mark.parametrize("signer", ["train", "lab"])
def test_cosign_finds_and_verifies_what_we_attach(place: Place, program: Path, signer: str) -> None:
    place.world.sign(signer)
    place.world.replay()
    place.attach()
    (place.root / "cosign").mkdir()
    cosign = Cosign(program, place.root / "cosign")
    flags = ("--new-bundle-format", "--trusted-root", "root.json", "--insecure-ignore-tlog")

    def verifies(name: str, kind: str) -> subprocess.CompletedProcess[str]:
        key = cosign.folder / "key.pub"
        key.write_bytes(public_pem(place.world.signers[name]))
        image = place.image.removeprefix("oci://")
        return cosign.run("verify-attestation", "--key", key, *flags, "--type", kind, image)

    done = verifies(signer, RUN_TYPE)
    assert done.returncode == 0, done.stderr
    assert verifies("auditor", REPLAY_TYPE).returncode == 0
    assert verifies("stranger", RUN_TYPE).returncode != 0
    assert verifies(signer, REPLAY_TYPE).returncode != 0


def test_a_bundle_that_was_attached_without_a_name(place: Place) -> None:
    """Other tools name no file; in the folder it is then called by its digest."""
    place.attach()
    bundle = (place.world.run / "train.sigstore.json").read_bytes()
    with Referrers(parse_reference(place.image.removeprefix("oci://")), {}) as registry:
        plain = {"mediaType": BUNDLE_TYPE, "digest": digest_bytes(bundle), "size": len(bundle)}
        registry.attach((digest_bytes(IMAGE), len(IMAGE)), BUNDLE_TYPE, [plain], {})
    index = place.index()
    place.put_index([e for e in index if e["artifactType"] == RUN_ARTIFACT or not e.get("annotations")])
    answer = place.verify()
    assert answer["verdict"] == "VERIFIED"
    assert answer["signatures"][0]["bundle"] == f"{digest_bytes(bundle)[7:23]}.sigstore.json"
