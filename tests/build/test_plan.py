from __future__ import annotations

import hashlib
import io
import os
import re
import tarfile
from pathlib import Path

import pytest

from repro.build.context import check_inputs, context_chunks, installed_size
from repro.build.oci import Layer, docker_archive, image_config, image_manifest
from repro.build.plan import EPOCH, make_plan, requirements_text
from repro.digest import canonical_json, digest_bytes
from repro.errors import BuildError
from repro.image import BuildPlan
from tests.build.small_project import ROOT, Small, any_base
from tests.parts import Parts


@pytest.fixture
def small(parts: Parts, tmp_path: Path) -> Small:
    return Small(parts, tmp_path / "project")


@pytest.fixture
def plan(small: Small) -> BuildPlan:
    return make_plan(small.lock(any_base()), "cpu")


def context(plan: BuildPlan, small: Small) -> bytes:
    return b"".join(context_chunks(plan, root=small.root, cache=small.parts))


def test_the_plan_is_what_decides_the_bytes(small: Small, plan: BuildPlan) -> None:
    lock = small.lock(any_base())
    same = lock.model_copy(update={"seed": 2, "spec_digest": "sha256:" + "1" * 64})
    assert make_plan(same, "cpu").digest == plan.digest
    accelerator = lock.accelerators["cpu"]
    for change in (
        {"base": accelerator.base.model_copy(update={"config_digest": "sha256:" + "2" * 64})},
        {"dockerfile": accelerator.dockerfile.model_copy(update={"digest": "sha256:" + "3" * 64})},
        {"packages": accelerator.packages.model_copy(update={"files": accelerator.packages.files[:1]})},
    ):
        other = lock.model_copy(update={"accelerators": {"cpu": accelerator.model_copy(update=change)}})
        assert make_plan(other, "cpu").digest != plan.digest
    source = lock.source.model_copy(update={"files": lock.source.files[:1]})
    assert make_plan(lock.model_copy(update={"source": source}), "cpu").digest != plan.digest


def test_requirements_have_one_hash_a_line(plan: BuildPlan) -> None:
    text = requirements_text(plan.wheels).decode()
    lines = text.splitlines()
    assert [line.partition(" ")[0] for line in lines] == ["other-pkg==0.1+cpu", "tinypkg==1.5"]
    assert all(re.fullmatch(r"\S+ --hash=sha256:[0-9a-f]{64}", line) for line in lines)
    assert plan.arguments["PACKAGES_DIGEST"] == digest_bytes(text.encode())


def test_the_context_is_the_same_from_anywhere(plan: BuildPlan, small: Small, tmp_path: Path) -> None:
    data = context(plan, small)
    elsewhere = Small(Parts(tmp_path), tmp_path / "elsewhere")
    os.utime(elsewhere.root / "train.py", (1, 1))
    (elsewhere.root / "train.py").chmod(0o700)
    (elsewhere.root / "not-locked.txt").write_text("not to be copied")
    assert context(make_plan(elsewhere.lock(any_base()), "cpu"), elsewhere) == data
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {info.name: info for info in archive}
    assert sorted(found) == list(found)
    assert [name for name in found if found[name].isfile() and not name.startswith("pip/")] == [
        "Dockerfile",
        "requirements.txt",
        "source/configs/run.sh",
        "source/train.py",
        "wheels/other_pkg-0.1+cpu-py3-none-any.whl",
        "wheels/tinypkg-1.5-py3-none-any.whl",
    ]
    assert {info.mtime for info in found.values()} == {EPOCH}
    assert {(info.uid, info.gid, info.uname) for info in found.values()} == {(0, 0, "")}
    assert {name for name, info in found.items() if info.isfile() and info.mode == 0o755} == {
        "source/configs/run.sh"
    }


def test_what_moved_since_the_lock_is_named(plan: BuildPlan, small: Small) -> None:
    check_inputs(plan, root=small.root, cache=small.parts)
    (small.root / "train.py").write_text("changed\n")
    with pytest.raises(BuildError) as changed:
        check_inputs(plan, root=small.root, cache=small.parts)
    assert (changed.value.kind, changed.value.where) == ("source-changed", "train.py")
    (small.root / "train.py").unlink()
    with pytest.raises(BuildError) as missing:
        check_inputs(plan, root=small.root, cache=small.parts)
    assert missing.value.kind == "source-missing"
    small.parts.held.clear()
    with pytest.raises(BuildError) as absent:
        check_inputs(plan, root=small.root, cache=small.parts)
    assert absent.value.kind == "wheel-absent"


def test_the_size_of_what_is_installed_is_known_before(plan: BuildPlan, small: Small) -> None:
    assert 200 < installed_size(plan, small.parts) < 5000


BUILT = {
    "architecture": "amd64",
    "os": "linux",
    "created": "2030-01-01T00:00:00.123Z",
    "author": "someone",
    "container": "abc",
    "docker_version": "20.10",
    "config": {
        "Hostname": "abc",
        "Image": "sha256:abc",
        "Env": ["Z=1", "PATH=/bin", "A=2", "Z=3"],
        "Labels": {"io.buildah.version": "1.28", "b": "2", "a": "1"},
        "Cmd": ["python"],
        "Entrypoint": [],
        "User": "1000:1000",
    },
    "history": [{"created": "2030", "created_by": "RUN date"}],
    "rootfs": {"type": "layers", "diff_ids": ["sha256:" + "9" * 64]},
}


def test_the_config_says_what_the_image_is_and_no_more() -> None:
    diff_ids = ["sha256:" + "1" * 64, "sha256:" + "2" * 64]
    assert image_config(BUILT, diff_ids, base_layers=1, epoch=EPOCH) == {
        "architecture": "amd64",
        "config": {
            "Cmd": ["python"],
            "Env": ["A=2", "PATH=/bin", "Z=3"],
            "Labels": {"a": "1", "b": "2"},
            "User": "1000:1000",
        },
        "created": "2026-01-01T00:00:00Z",
        "history": [
            {"created": "2026-01-01T00:00:00Z", "created_by": "base"},
            {"created": "2026-01-01T00:00:00Z", "created_by": "repro"},
        ],
        "os": "linux",
        "rootfs": {"diff_ids": diff_ids, "type": "layers"},
    }


def test_manifest_and_archive_are_fixed_bytes() -> None:
    config = canonical_json(image_config(BUILT, ["sha256:" + "1" * 64], base_layers=1, epoch=EPOCH))
    content = b"layer" * 300
    layers = [
        Layer("sha256:" + "1" * 64, 5, None),
        Layer(digest_bytes(content), len(content), lambda: iter([content[:7], content[7:]])),
    ]
    manifest = image_manifest(config, layers)
    assert digest_bytes(manifest) == "sha256:b789fab50e81f7ad3c1bb72374748ed8cb88c1468ed9304ec93c57bde004f519"
    archive = b"".join(docker_archive(config, layers, tag="repro/x:1"))
    assert (
        hashlib.sha256(archive).hexdigest()
        == "baf82a8fd7fae08d2ca52223e2e35c5d6c874ed98b476edc63978c2077adaeee"
    )
    with tarfile.open(fileobj=io.BytesIO(archive)) as opened:
        assert opened.getnames() == [
            f"{digest_bytes(content)[7:]}.tar",
            f"{digest_bytes(config)[7:]}.json",
            "manifest.json",
        ]


@pytest.mark.parametrize("accelerator", ["cpu", "cuda", "rocm"])
def test_dockerfiles_need_no_network_and_no_newer_builder(accelerator: str) -> None:
    text = (ROOT / f"Dockerfile.{accelerator}").read_text()
    code = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    assert "# syntax" not in text
    assert not re.search(r"--mount|<<|COPY --link|apt-get|https?://", code)
    assert re.findall(r"^FROM (\S+)", code, re.MULTILINE) == ["${BASE}"] * 3
    assert re.findall(r"^USER (\S+)", code, re.MULTILINE) == ["0:0", "0:0", "1000:1000"]
    assert f'repro-manifest.accelerator="{accelerator}"' in code
    assert "docker build --network none" in text
    declared = set(re.findall(r"^ARG (\w+)", code, re.MULTILINE))
    assert declared == {
        "BASE",
        "BASE_CONFIG",
        "BASE_DIGEST",
        "BASE_NAME",
        "EPOCH",
        "PACKAGES_DIGEST",
        "TITLE",
    }
    assert re.findall(r"^ARG EPOCH=(\d+)", code, re.MULTILINE) == [str(EPOCH)] * 2


def test_dockerfiles_are_one_recipe() -> None:
    def body(accelerator: str) -> list[str]:
        text = (ROOT / f"Dockerfile.{accelerator}").read_text().replace(accelerator, "ACC")
        return [line for line in text.splitlines() if not line.startswith("#")]

    own = [line for line in body("cuda") if "NVIDIA" in line]
    assert own == ["ENV NVIDIA_VISIBLE_DEVICES=all \\", "    NVIDIA_DRIVER_CAPABILITIES=compute,utility"]
    assert [line for line in body("cuda") if line not in own] == body("cpu") == body("rocm")
