from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.adapters.basefinder import MachineBaseFinder
from repro.adapters.reference import Reference, parse_reference
from repro.adapters.registry_login import helper_problems, login
from repro.errors import LockError, NetworkError
from tests.adapters.fake_registry import FakeRegistry

CASES = Path(__file__).parents[3] / "shared" / "cases"
DIGEST = "sha256:" + "5" * 64


@pytest.fixture
def fake() -> FakeRegistry:
    return FakeRegistry()


@pytest.fixture
def name(fake: FakeRegistry) -> Iterator[str]:
    with fake.serving() as repository:
        yield repository


@pytest.fixture
def finder(tmp_path: Path) -> MachineBaseFinder:
    return MachineBaseFinder({"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"})


def _docker_config(home: Path, config: object) -> None:
    (home / ".docker").mkdir()
    (home / ".docker" / "config.json").write_text(json.dumps(config))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("python:3.11-slim", Reference("docker.io", "library/python", "3.11-slim", None)),
        ("nvidia/cuda:12.4.1-devel", Reference("docker.io", "nvidia/cuda", "12.4.1-devel", None)),
        ("nvcr.io/nvidia/pytorch:24.05-py3", Reference("nvcr.io", "nvidia/pytorch", "24.05-py3", None)),
        (
            f"registry.example.org:5000/ml/base@{DIGEST}",
            Reference("registry.example.org:5000", "ml/base", None, DIGEST),
        ),
        (f"localhost/x:1@{DIGEST}", Reference("localhost", "x", "1", DIGEST)),
        ("docker.io/debian", Reference("docker.io", "library/debian", None, None)),
    ],
)
def test_references_are_read_as_the_engine_reads_them(text: str, expected: Reference) -> None:
    assert parse_reference(text) == expected


@pytest.mark.parametrize("text", ["", "UPPER/case", "a b", "x@sha256:12", "x:", ":x", "a//b", "https://x/y"])
def test_what_is_no_reference_is_refused(text: str) -> None:
    with pytest.raises(LockError) as refused:
        parse_reference(text)
    assert refused.value.kind == "base-reference-invalid"


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(LockError):
        assert parse_reference(text).repository == parse_reference(text).repository.lower()


def test_an_index_leads_to_the_platform_and_its_config(
    fake: FakeRegistry, name: str, finder: MachineBaseFinder
) -> None:
    amd, amd_config, diff_ids = fake.image("amd64")
    arm, *_ = fake.image("arm64")
    entries = [
        {"digest": DIGEST, "platform": {"os": "unknown", "architecture": "unknown"}},
        {"digest": arm, "platform": {"os": "linux", "architecture": "arm64", "variant": "v8"}},
        {"digest": amd, "platform": {"os": "linux", "architecture": "amd64"}},
    ]
    index = fake.hold("manifests", {"schemaVersion": 2, "manifests": entries}, "1")
    found = finder.find(f"{name}:1", architecture="amd64")
    assert found.requested == f"{name}:1"
    assert (found.source, found.index_digest, found.manifest_digest) == ("registry", index, amd)
    assert (found.config_digest, list(found.diff_ids)) == (amd_config, diff_ids)
    assert finder.find(f"{name}@{index}", architecture="arm64").manifest_digest == arm
    with pytest.raises(LockError) as absent:
        finder.find(f"{name}:1", architecture="s390x")
    assert absent.value.kind == "base-platform-absent"
    assert "amd64, arm64" in absent.value.message


def test_a_plain_manifest_has_no_index(fake: FakeRegistry, name: str, finder: MachineBaseFinder) -> None:
    manifest, *_ = fake.image("amd64", "latest")
    found = finder.find(name, architecture="amd64")
    assert (found.index_digest, found.manifest_digest) == (None, manifest)
    with pytest.raises(LockError) as absent:
        finder.find(name, architecture="arm64")
    assert absent.value.kind == "base-platform-absent"


@pytest.mark.parametrize("path", ["manifest", "config"])
def test_bytes_that_are_not_the_digest_are_refused(
    fake: FakeRegistry, name: str, finder: MachineBaseFinder, path: str
) -> None:
    manifest, config, _ = fake.image("amd64", "1")
    changed = f"manifests/{manifest}" if path == "manifest" else f"blobs/{config}"
    fake.paths[changed] += b" "
    with pytest.raises(NetworkError) as refused:
        finder.find(f"{name}@{manifest}", architecture="amd64")
    assert refused.value.kind == "registry-wrong-bytes"


@pytest.mark.parametrize(
    ("status", "kind"), [(403, "registry-refused"), (429, "registry-busy"), (500, "registry-failed")]
)
def test_refusals_have_names(
    fake: FakeRegistry, name: str, finder: MachineBaseFinder, status: int, kind: str
) -> None:
    fake.status = status
    with pytest.raises(NetworkError) as refused:
        finder.find(f"{name}:1", architecture="amd64")
    assert refused.value.kind == kind
    assert refused.value.remedy


def test_a_config_that_is_none_is_refused(fake: FakeRegistry, name: str, finder: MachineBaseFinder) -> None:
    config = fake.hold("blobs", {"architecture": "amd64", "os": "linux", "rootfs": {"diff_ids": ["x"]}})
    fake.hold("manifests", {"config": {"digest": config}}, "odd")
    fake.hold("manifests", {"schemaVersion": 1, "fsLayers": []}, "old")
    for tag in ("odd", "old"):
        with pytest.raises(NetworkError) as refused:
            finder.find(f"{name}:{tag}", architecture="amd64")
        assert refused.value.kind == "registry-failed"


def test_an_absent_tag_is_named(fake: FakeRegistry, name: str, finder: MachineBaseFinder) -> None:
    with pytest.raises(LockError) as absent:
        finder.find(f"{name}:gone", architecture="amd64")
    assert absent.value.kind == "base-not-found"
    assert "team/base gone" in absent.value.message


def test_no_registry_is_not_a_traceback(finder: MachineBaseFinder) -> None:
    with pytest.raises(LockError) as absent:
        finder.find("127.0.0.1:9/team/base:1", architecture="amd64")
    assert absent.value.kind == "base-not-found"


def test_tokens_are_fetched_with_and_without_credentials(
    fake: FakeRegistry, name: str, tmp_path: Path
) -> None:
    fake.image("amd64", "1")
    fake.token = "secret-token"
    environment = {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    assert MachineBaseFinder(environment).find(f"{name}:1", architecture="amd64").os == "linux"
    fake.user = ("alice", "secret-password")
    with pytest.raises(NetworkError) as refused:
        MachineBaseFinder(environment).find(f"{name}:1", architecture="amd64")
    assert refused.value.kind == "registry-refused"
    auth = base64.b64encode(b"alice:secret-password").decode()
    _docker_config(tmp_path, {"auths": {fake.host: {"auth": auth}}})
    assert MachineBaseFinder(environment).find(f"{name}:1", architecture="amd64").os == "linux"
    assert "secret-password" not in repr(login(fake.host, environment))
    assert login(fake.host, environment).secret == "secret-password"


def test_a_missing_helper_stops_only_what_needs_it(fake: FakeRegistry, name: str, tmp_path: Path) -> None:
    fake.image("amd64", "1")
    _docker_config(tmp_path, {"credsStore": "no-such-helper"})
    warnings: list[str] = []
    environment = {"HOME": str(tmp_path), "DOCKER_HOST": f"unix://{tmp_path}/none.sock"}
    finder = MachineBaseFinder(environment, warn=warnings.append)
    assert finder.find(f"{name}:1", architecture="amd64").architecture == "amd64"
    assert "docker-credential-no-such-helper" in warnings[1]
    fake.token, fake.user = "secret-token", ("alice", "secret-password")
    with pytest.raises(NetworkError) as refused:
        finder.find(f"{name}:1", architecture="amd64")
    assert refused.value.kind == "credential-helper-missing"
    assert "docker-credential-no-such-helper" in refused.value.message


def test_case_c07_names_every_helper_that_cannot_work(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    case = CASES / "C07"
    if not case.is_dir():
        pytest.skip("the shared cases are not here")
    for file, expected in json.loads((case / "expected.json").read_text())["results"].items():
        assert "; ".join(helper_problems(json.loads((case / file).read_text()))) == expected
