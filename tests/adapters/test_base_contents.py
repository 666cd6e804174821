"""What lies in a base image is read in its layers, whoever serves them."""

from __future__ import annotations

import gzip
import hashlib
import json
import random
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.adapters.baseclaims import mismatches
from repro.adapters.basefinder import MachineBaseFinder
from repro.adapters.baselayers import Contents, as_stream, contents, read_layer
from repro.adapters.basesaved import read_saved
from repro.errors import LockError
from repro.image import HeldImage
from tests.adapters.debian_registry import push, push_manifest, serve_registry
from tests.adapters.fake_registry import FakeRegistry, layer
from tests.conftest import BASE

CASES = Path(__file__).parents[3] / "shared" / "cases"

GLIBC = b"...\x00GNU C Library (Debian GLIBC 2.36-9+deb12u10) stable release version 2.36.\nCopyright..."
DEBIAN: Mapping[str, bytes | str] = {
    "./bin": "usr/bin",
    "./lib": "usr/lib",
    "./usr/lib/x86_64-linux-gnu/libc.so.6": GLIBC,
    "./usr/bin/python3": "python3.11",
    "./usr/bin/python3.11": b"\x7fELF\x00no version 3.9.1 here\x003.11.2\x00",
}
TORCH = (
    b"from typing import Optional\n__version__ = '1.13.0'\ndebug = False\n"
    b"cuda: Optional[str] = '11.6'\ngit_version = 'x'\nhip: Optional[str] = None\n"
)


def _contents(*layers: Mapping[str, bytes | str], environment: tuple[str, ...] = ()) -> Contents:
    read = [read_layer(as_stream(iter([layer(files)]))) for files in layers]
    assert all(read)
    return contents([found for found in read if found], environment)


def test_debian_with_its_own_python() -> None:
    assert _contents(DEBIAN) == Contents(libc="glibc 2.36", python="3.11.2")


def test_the_path_decides_which_python_counts() -> None:
    conda: Mapping[str, bytes | str] = {
        "opt/conda/bin/python3": "python3.10",
        "opt/conda/bin/python3.10": b"\x7fELF",
        "opt/conda/lib/libpython3.10.so.1.0": b"\x003.10.14\x00",
        "opt/conda/lib/python3.10/site-packages/torch/version.py": TORCH,
        "opt/conda/lib/python3.10/site-packages/torch-1.13.0+cu116.dist-info/METADATA": b"Metadata-Version: 2"
        b".1\nName: torch\nVersion: 1.13.0+cu116\n",
    }
    found = _contents(DEBIAN, conda, environment=("PATH=/opt/conda/bin:/usr/bin",))
    assert found == Contents(libc="glibc 2.36", python="3.10.14", torch="1.13.0+cu116", cuda="11.6")
    assert _contents(DEBIAN, conda).python == "3.11.2"


def test_musl_cuda_and_rocm() -> None:
    alpine = {"lib/apk/db/installed": b"P:busybox\nV:1.36.1-r29\n\nP:musl\nV:1.2.5-r0\nA:x86_64\n"}
    assert _contents(alpine).libc == "musl 1.2"
    toolkit = {"usr/local/cuda-12.4/version.json": b'{"cuda" : {"name" : "CUDA SDK", "version" : "12.4.1"}}'}
    assert _contents(toolkit).cuda == "12.4.1"
    assert _contents({"usr/local/cuda/version.txt": b"CUDA Version 10.2.89\n"}).cuda == "10.2.89"
    assert _contents({"opt/rocm-6.1.0/.info/version": b"6.1.0-82\n"}).rocm == "6.1.0"


def test_upper_layers_take_away_and_put_in_place() -> None:
    torch = "usr/lib/python3.11/site-packages/torch/version.py"
    below = {torch: TORCH}
    assert _contents(DEBIAN, below).torch == "1.13.0"
    gone = {"usr/lib/python3.11/site-packages/.wh.torch": b""}
    assert _contents(DEBIAN, below, gone).torch is None
    emptied = {"usr/lib/python3.11/.wh..wh..opq": b"", torch: TORCH.replace(b"1.13.0", b"2.0.0")}
    assert _contents(DEBIAN, below, emptied).torch == "2.0.0"
    assert _contents(DEBIAN, below, gone, below).torch == "1.13.0"


@given(st.binary(max_size=2000))
def test_any_bytes_are_read_or_are_no_layer(data: bytes) -> None:
    for bytes_ in (data, gzip.compress(data), gzip.compress(layer(DEBIAN))[: len(data)] + data):
        read_layer(as_stream(iter([bytes_])))


def test_case_c03_an_image_that_is_not_what_its_tag_says() -> None:
    case = CASES / "C03"
    if not case.is_dir():
        pytest.skip("the shared cases are not here")
    inspected = json.loads((case / "inspect.json").read_text())
    version = (case / "inside.txt").read_text().split()[1]
    inside = _contents(
        {"usr/lib/python3/dist-packages/torch/version.py": f"__version__ = '{version}'\n".encode()}
    )
    expected = json.loads((case / "expected.json").read_text())
    assert inside.torch == expected["inside_version"]
    told = list(mismatches(inspected["RepoTags"][0], inspected["Config"]["Env"], inside))
    assert len(told) == 2
    assert all(line.startswith(expected["warning"]) for line in told)
    assert f"the tag says torch {expected['tag_version']}" in told[0]
    assert f"PYTORCH_VERSION says torch {expected['env_version']}, the image holds 1.13.0" in told[1]


@pytest.mark.parametrize(
    ("reference", "environment", "inside", "wrong"),
    [
        ("pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", (), Contents(torch="2.1.0+cu121", cuda="12.1"), 0),
        ("pytorch/pytorch:2.1.0-cuda12.1-cudnn8-runtime", (), Contents(torch="2.1.0", cuda="11.8"), 1),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", ("CUDA_VERSION=12.4.1",), Contents(cuda="12.4.1"), 0),
        ("nvidia/cuda:12.4.1-devel-ubuntu22.04", ("CUDA_VERSION=12.6.0",), Contents(cuda="12.4.1"), 1),
        (
            "nvcr.io/nvidia/pytorch:24.05-py3",
            ("PYTORCH_VERSION=2.4.0a0+07cecf4",),
            Contents(torch="2.4.0a0"),
            0,
        ),
        (
            "rocm/pytorch:rocm6.1_ubuntu22.04_py3.10_pytorch_2.1.2",
            (),
            Contents(rocm="6.1.0", python="3.10.14"),
            0,
        ),
        (
            "rocm/pytorch:rocm6.1_ubuntu22.04_py3.10_pytorch_2.1.2",
            (),
            Contents(rocm="6.0.2", python="3.9.1"),
            2,
        ),
        ("python:3.11-slim", ("PYTHON_VERSION=3.11.9",), Contents(python="3.11.9"), 0),
        ("python:3.11-slim", ("PYTHON_VERSION=3.11.9",), Contents(python="3.12.1"), 2),
        ("debian:12.5", (), Contents(python="3.11.2", libc="glibc 2.36"), 0),
    ],
)
def test_claims(reference: str, environment: tuple[str, ...], inside: Contents, wrong: int) -> None:
    assert len(list(mismatches(reference, environment, inside))) == wrong


def _archive(members: Mapping[str, bytes | str]) -> Iterator[bytes]:
    data = layer(members)
    return iter([data[start : start + 700] for start in range(0, len(data), 700)])


def _saved(*, zipped: bool = False) -> dict[str, bytes | str]:
    data = layer(DEBIAN)
    diff_id = "sha256:" + hashlib.sha256(data).hexdigest()
    config = {"os": "linux", "config": {"Env": ["PATH=/bin"]}, "rootfs": {"diff_ids": [diff_id, diff_id]}}
    described = [{"Config": "c.json", "Layers": ["a/layer.tar", "b/layer.tar"], "RepoTags": None}]
    return {
        "b/layer.tar": "../a/layer.tar",
        "a/layer.tar": gzip.compress(data) if zipped else data,
        "c.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(described).encode(),
    }


@pytest.mark.parametrize("zipped", [False, True])
def test_a_saved_image_is_read_in_any_order_and_form(zipped: bool) -> None:
    members = list(_saved(zipped=zipped).items())
    for seed in range(3):
        random.Random(seed).shuffle(members)
        saved = read_saved(_archive(dict(members)), "base:1")
        assert contents(saved.layers, saved.environment).python == "3.11.2"


def test_a_saved_image_that_is_not_what_its_config_says_is_refused() -> None:
    other = {**_saved(), "a/layer.tar": layer({"x": b""})}
    for members, kind in ((other, "base-layer-differs"), ({"manifest.json": b"[]"}, "base-unreadable")):
        with pytest.raises(LockError) as refused:
            read_saved(_archive(members), "base:1")
        assert refused.value.kind == kind


def _finder(home: Path, said: list[str]) -> MachineBaseFinder:
    environment = {"HOME": str(home), "DOCKER_HOST": f"unix://{home}/none.sock"}
    return MachineBaseFinder(environment, warn=said.append)


def test_what_a_registry_serves_is_read_and_held_to_its_config(tmp_path: Path) -> None:
    fake = FakeRegistry()
    fake.image("amd64", "3.12-slim", layers=[layer(DEBIAN)], environment=["PYTHON_VERSION=3.11.2"])
    with fake.serving() as name:
        found = _finder(tmp_path, []).find(f"{name}:3.12-slim", architecture="amd64")
        assert (found.libc, found.python, found.warnings) == ("glibc 2.36", "3.11.2", ())
        blob = next(path for path, data in fake.paths.items() if data[:2] == b"\x1f\x8b")
        fake.paths[blob] = gzip.compress(layer({"other": b""}))
        with pytest.raises(LockError) as refused:
            _finder(tmp_path, []).find(f"{name}:3.12-slim", architecture="amd64")
        assert refused.value.kind == "base-layer-differs"
        fake.paths[blob] = b"\x28\xb5\x2f\xfd zstd"
        unread = _finder(tmp_path, []).find(f"{name}:3.12-slim", architecture="amd64")
    assert (unread.libc, unread.python) == (None, None)
    assert "contents unknown" in unread.warnings[0]


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Debian's `docker-registry`."""
    with serve_registry(tmp_path_factory.mktemp("registry")) as host:
        yield host


_OCI = "application/vnd.oci.image"


def test_debians_registry_serves_an_index_with_an_attestation(registry: str, tmp_path: Path) -> None:
    data = layer(DEBIAN)
    blob = push(registry, "team/base", zipped := gzip.compress(data, mtime=0))
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {},
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(data).hexdigest()]},
    }
    config_digest = push(registry, "team/base", json.dumps(config).encode())
    manifest = {
        "mediaType": f"{_OCI}.manifest.v1+json",
        "config": {
            "mediaType": f"{_OCI}.config.v1+json",
            "digest": config_digest,
            "size": len(json.dumps(config)),
        },
        "layers": [{"mediaType": f"{_OCI}.layer.v1.tar+gzip", "digest": blob, "size": len(zipped)}],
    }
    digest = push_manifest(registry, "team/base", "amd64", manifest)
    entry = {
        "mediaType": f"{_OCI}.manifest.v1+json",
        "digest": digest,
        "size": len(json.dumps({"schemaVersion": 2, **manifest})),
    }
    attestation = {
        **entry,
        "platform": {"os": "unknown", "architecture": "unknown"},
        "annotations": {"vnd.docker.reference.type": "attestation-manifest"},
    }
    entries = [attestation, {**entry, "platform": {"os": "linux", "architecture": "amd64"}}]
    index = push_manifest(
        registry, "team/base", "1", {"mediaType": f"{_OCI}.index.v1+json", "manifests": entries}
    )
    helper = tmp_path / ".docker"
    helper.mkdir()
    (helper / "config.json").write_text('{"credsStore": "no-such-helper"}')
    said: list[str] = []
    found = _finder(tmp_path, said).find(f"{registry}/team/base:1", architecture="amd64")
    assert (found.index_digest, found.manifest_digest, found.config_digest) == (index, digest, config_digest)
    assert (found.libc, found.python) == ("glibc 2.36", "3.11.2")
    assert any("docker-credential-no-such-helper" in line for line in said)
    with pytest.raises(LockError) as gone:
        _finder(tmp_path, []).find(f"{registry}/team/base:2", architecture="amd64")
    assert gone.value.kind == "base-not-found"


def test_the_engines_base_is_read(base_image: HeldImage) -> None:
    found = MachineBaseFinder().find(BASE, architecture=base_image.architecture)
    assert (found.source, found.config_digest) == ("engine", base_image.config_digest)
    assert found.diff_ids == base_image.diff_ids
    assert found.libc is not None
    assert found.libc.startswith("glibc 2.")
    assert found.python is not None
    assert found.python.startswith("3.")
    assert found.torch is None
