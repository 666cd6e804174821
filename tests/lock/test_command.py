"""`repro lock` itself, against an index and a registry on loopback: what it asks for, and what it refuses."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro.cli import main
from repro.digest import digest_bytes
from tests.adapters.fake_registry import FakeRegistry, layer
from tests.adapters.test_base_contents import DEBIAN
from tests.lock.lock_world import World, wheel

ALONE = """
import sys

ASKS = ("socket.connect", "socket.send", "socket.get", "subprocess.", "os.exec", "os.posix_spawn", "os.fork")

def refuse(event, arguments):
    if event.startswith(ASKS):
        raise SystemExit(f"REFUSED {event} {arguments}")

import repro.cli
sys.addaudithook(refuse)
sys.argv[0] = "repro"
repro.cli.main()
"""
"""Runs the command line, and ends it where it asks a network or starts a program."""


class Place:
    """A project, its cache, and everything it may ask."""

    def __init__(self, root: Path, world: World, registry: FakeRegistry, base: str) -> None:
        self.root = root
        self.registry = registry
        self.world = world
        self.base = base
        self.accelerator: dict[str, object] = {}
        self.more: dict[str, object] = {}
        self.write("train.py", "pass\n")
        self.write("Dockerfile", "ARG BASE\nFROM ${BASE}\n")
        self.write("data/one.txt", "one\n")
        self.write("requirements.in", "pilot-lib\n")

    def write(self, path: str, text: str) -> None:
        place = self.root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)

    def spec(self) -> None:
        tree = {
            "version": 1,
            "name": "pilot",
            "pilot": {"command": ["python", "train.py"], "source": ["train.py"], "steps": 5},
            "seed": 7,
            "datasets": [{"name": "corpus", "path": "data"}],
            "accelerators": {
                "cpu": {
                    "dockerfile": "Dockerfile",
                    "base": self.base,
                    "requirements": ["requirements.in"],
                    **self.accelerator,
                }
            },
            **self.more,
        }
        self.write("repro.yaml", json.dumps(tree))

    def files(self) -> dict[str, bytes]:
        """Every file of the project, by path."""
        found = sorted(path for path in self.root.rglob("*") if path.is_file())
        return {path.relative_to(self.root).as_posix(): path.read_bytes() for path in found}


@pytest.fixture
def place(resolver: object, world: World, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    world.index("default").add("pilot-lib", "1.0", requires=["numpy"])
    world.index("default").add("numpy", "2.0")
    monkeypatch.setenv("REPRO_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/none.sock")
    fake = FakeRegistry()
    fake.image("amd64", "1", layers=[layer(DEBIAN)])
    fake.image("arm64", "arm")
    fake.hold("manifests", {"schemaVersion": 1}, "odd")
    with fake.serving() as name:
        yield Place(tmp_path / "project", world, fake, f"{name}:1")


Run = Callable[..., tuple[int, str]]


@pytest.fixture
def run(place: Place, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    """Run the command line in this process; return its exit code and all that it said."""

    def call(*arguments: str) -> tuple[int, str]:
        place.spec()
        monkeypatch.setattr(sys, "argv", ["repro", *arguments, "-C", str(place.root)])
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return int(ended.value.code or 0), said.out + said.err

    return call


def test_a_second_lock_asks_no_network_and_starts_no_program(place: Place, run: Run) -> None:
    code, said = run("lock")
    assert code == 0, said
    before = place.files()
    locked = json.loads(before["repro.lock"])["accelerators"]["cpu"]
    assert (locked["base"]["libc"], locked["base"]["python"]) == ("glibc 2.36", "3.11.2")
    assert locked["packages"]["platform"]["python_full"] == "3.11.2"
    command = [sys.executable, "-c", ALONE, "lock", "-C", str(place.root)]
    again = subprocess.run(command, capture_output=True, text=True, check=False)
    assert again.returncode == 0, again.stderr
    assert "unchanged" in again.stdout
    assert place.files() == before
    place.write("requirements.in", "pilot-lib\nsix\n")
    changed = subprocess.run(command, capture_output=True, text=True, check=False)
    assert "REFUSED" in changed.stderr


REFUSED = [
    ("git+https://example.org/pilot-lib@" + "a" * 40, "unhashable-vcs"),
    ("pilot-lib @ git+ssh://git@example.org/pilot-lib", "unhashable-vcs"),
    ("pilot-lib @ hg+https://example.org/pilot-lib", "unhashable-vcs"),
    ("-e .", "editable-requirement"),
    ("-e git+https://example.org/pilot-lib#egg=pilot-lib", "editable-requirement"),
    ("--editable=./libs/pilot-lib", "editable-requirement"),
    ("./libs/pilot-lib", "nameless-requirement"),
    ("../elsewhere/pilot_lib-1.0-py3-none-any.whl", "nameless-requirement"),
    ("wheels/pilot_lib-1.0-py3-none-any.whl", "nameless-requirement"),
    ("pilot-lib-1.0.tar.gz", "nameless-requirement"),
    ("https://example.org/pilot_lib-1.0-py3-none-any.whl", "nameless-requirement"),
    ("pilot-lib @ file:///srv/pilot_lib-1.0-py3-none-any.whl", "unhashable-requirement"),
    ("pilot-lib @ https://example.org/pilot-lib-1.0.tar.gz", "unhashable-requirement"),
    ("pilot-lib @ https://reader:secret@example.org/p-1.0-py3-none-any.whl", "credential-in-requirement"),
    ("pilot-lib --global-option=x", "requirement-malformed"),
    ("--no-binary :all:", "requirement-option"),
    ("--trusted-host example.org", "requirement-option"),
    ("-r ../outside.in", "input-outside-project"),
    ("-r absent.in", "input-missing"),
    ("-c constraints.in", "input-missing"),
    ("pilot-lib==", "requirement-malformed"),
    ("pilot-lib>=1,<1", "no-matching-wheel"),
    ("pilot-lib==9", "no-matching-wheel"),
    ("absent-package", "no-matching-wheel"),
    ("only-source", "source-distribution-only"),
    ("numpy==1.0", "requirements-conflict"),
]


@pytest.mark.parametrize(("line", "kind"), REFUSED)
def test_what_cannot_be_locked_is_refused_by_name(place: Place, run: Run, line: str, kind: str) -> None:
    source = place.world.index("default").add("only-source", "1.0")
    source.filename = "only-source-1.0.tar.gz"
    place.write("requirements.in", f"numpy\n\n{line}\n")
    place.spec()
    before = place.files()
    code, said = run("lock")
    assert code == 1, said
    assert f"error[{kind}]" in said
    assert "Traceback" not in said
    assert "secret" not in said
    if kind == "source-distribution-only":
        assert "only-source-1.0.tar.gz" in said
    elif kind not in ("no-matching-wheel", "requirements-conflict"):
        assert "requirements.in:3" in said
    assert place.files() == before


def test_a_wheel_built_once_and_kept_in_the_project_is_locked(place: Place, run: Run) -> None:
    """What the refusals of source distributions, folders and version control tell a person to do."""
    source = place.world.index("default").add("only-source", "1.0")
    source.filename = "only-source-1.0.tar.gz"
    filename, data = wheel("only-source", "1.0+built")
    place.write("wheels/.keep", "")
    (place.root / "wheels" / filename).write_bytes(data)
    place.write("requirements.in", "--find-links wheels\nonly-source\nnumpy\n")
    code, said = run("lock")
    assert code == 0, said
    packages = json.loads(place.files()["repro.lock"])["accelerators"]["cpu"]["packages"]
    file = next(file for file in packages["files"] if file["name"] == "only-source")
    assert (file["version"], file["digest"], file["hash_source"]) == (
        "1.0+built",
        digest_bytes(data),
        "computed",
    )
    assert packages["indexes"] == [{"flat": True, "name": file["index"], "url": "wheels"}]
    assert run("lock", "--check")[0] == 0


def test_one_package_is_renewed_and_a_mistyped_name_is_refused(place: Place, run: Run) -> None:
    assert run("lock")[0] == 0
    before = place.files()
    for name, version in (("numpy", "2.1"), ("pilot-lib", "1.1")):
        place.world.index("default").add(name, version)
    for name in ("nunpy", "not a name"):
        code, said = run("lock", "-P", name)
        assert code == 1
        assert "error[upgrade-unknown]" in said
        assert place.files() == before
    assert run("lock", "-P", "NumPy")[0] == 0
    files = json.loads(place.files()["repro.lock"])["accelerators"]["cpu"]["packages"]["files"]
    assert {file["name"]: file["version"] for file in files} == {"numpy": "2.1", "pilot-lib": "1.0"}


def test_a_tag_that_is_gone_leaves_the_locked_base(place: Place, run: Run) -> None:
    assert run("lock")[0] == 0
    before = place.files()
    del place.registry.paths["manifests/1"]
    code, said = run("lock", "--upgrade")
    assert code == 1
    assert "error[base-not-found]" in said
    assert json.loads(before["repro.lock"])["accelerators"]["cpu"]["base"]["manifest_digest"] in said
    assert place.files() == before
    place.write("requirements.in", "numpy\n")
    assert run("lock")[0] == 0


def test_a_base_with_another_python_is_refused(place: Place, run: Run) -> None:
    place.accelerator["python"] = "3.12"
    code, said = run("lock")
    assert code == 1
    assert "error[base-python-differs]" in said
    assert 'python: "3.11"' in said


DOCKERFILES = [
    ("FROM debian:12\n", "base-unused"),
    ("", "base-unused"),
    ("FROM scratch\n", "base-unused"),
    ("\x00\x01binary\xff", "base-unused"),
    ("ARG BASE\nFROM ${BASE}\nFROM debian:12\n", "image-unpinned"),
    ("ARG BASE\nFROM ${BASE}\nCOPY --from=busybox /bin/sh /sh\n", "image-unpinned"),
    ("ARG BASE\nFROM ${BASE}\nRUN --mount=type=bind,from=tools:1,target=/t true\n", "image-unpinned"),
    ("# syntax=docker/dockerfile:1\nARG BASE\nFROM ${BASE}\n", "image-unpinned"),
    ("ARG BASE\nFROM ${BASE}\nFROM ${OTHER}\n", "dockerfile-argument-missing"),
    ("ARG BASE\nARG TAG=latest\nFROM ${BASE} AS one\nFROM busybox:${TAG}\n", "image-unpinned"),
    ("ARG BASE\nFROM ${BASE} AS one\nFROM --platform=linux/arm64 busybox\n", "image-unpinned"),
]


@pytest.mark.parametrize(("text", "kind"), DOCKERFILES)
def test_dockerfiles_that_do_not_stand_on_the_base_alone(
    place: Place, run: Run, text: str, kind: str
) -> None:
    place.write("Dockerfile", text)
    place.spec()
    before = place.files()
    code, said = run("lock")
    assert code == 1, said
    assert f"error[{kind}]" in said
    assert "Traceback" not in said
    assert place.files() == before


@pytest.mark.parametrize(
    ("reference", "kind"),
    [
        ("{name}:gone", "base-not-found"),
        ("{name}@sha256:" + "0" * 64, "base-not-found"),
        ("{host}/other/base:1", "base-not-found"),
        ("{name}:arm", "base-platform-absent"),
        ("{name}:odd", "registry-failed"),
        ("127.0.0.1:9/team/base:1", "base-not-found"),
        ("Team/Base:1", "base-reference-invalid"),
        ("team/base:", "base-reference-invalid"),
        ("https://registry.example/base:1", "base-reference-invalid"),
        ("base image:1", "base-reference-invalid"),
    ],
)
def test_bases_that_cannot_be_found(place: Place, run: Run, reference: str, kind: str) -> None:
    name = place.base.removesuffix(":1")
    place.base = reference.format(name=name, host=name.partition("/")[0])
    code, said = run("lock")
    assert code == 1, said
    assert f"error[{kind}]" in said
    assert "Traceback" not in said
    assert not (place.root / "repro.lock").exists()


POINTER = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'a' * 64}\nsize 5\n"
INDEX = '{"metadata": {}, "weight_map": {"a": "model-1.safetensors", "b": "model-2.safetensors"}}'


MODELS: list[tuple[dict[str, str], dict[str, str], str]] = [
    ({"path": "absent"}, {}, "input-missing"),
    ({"path": "model"}, {"model/.cache/x": "x"}, "artifact-empty"),
    ({"path": "model"}, {"model/w.safetensors": POINTER}, "lfs-pointer"),
    ({"path": "model/w.bin"}, {"model/w.bin": POINTER}, "lfs-pointer"),
    ({"path": "model"}, {"model/model.safetensors.index.json": INDEX}, "shard-missing"),
    ({"path": "model"}, {"model/model.safetensors.index.json": "{"}, "shard-index-malformed"),
    ({"path": "model"}, {"model/cafe\u0301.txt": "x"}, "name-unusable"),
    ({"path": "model"}, {"model/a -> ../train.py": ""}, "link-outside"),
    ({"path": "model"}, {"model/a -> nowhere": ""}, "link-broken"),
    ({"path": "model"}, {"model/a |": ""}, "file-special"),
    ({"wheel": "absent:folder"}, {}, "wheel-not-locked"),
    ({"wheel": "numpy:no/such/folder"}, {}, "artifact-empty"),
    ({"url": "{index}/no/where"}, {}, "download-refused"),
    ({"url": "ftp://example.org/x"}, {}, "url-malformed"),
    ({"git": "{index}/no/repo.git"}, {}, "git-unreachable"),
    ({"git": "ext::sh -c touch%20/tmp/owned"}, {}, "git-malformed"),
    ({"git": "--upload-pack=touch"}, {}, "git-malformed"),
    ({"oci": "127.0.0.1:9/team/model:1"}, {}, "registry-unreachable"),
    ({"oci": "Not A Reference"}, {}, "base-reference-invalid"),
    ({"hub": "a/b/c"}, {}, "hub-malformed"),
    ({"hub": "org/model"}, {}, "hub-unavailable"),
]
"""A model, files of the project, and what it is refused as. `a -> b` is a link, `a |` a pipe."""


def test_models_that_cannot_be_locked(place: Place, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    assert run("lock")[0] == 0
    locked = place.files()["repro.lock"]
    for model, files, kind in MODELS:
        shutil.rmtree(place.root / "model", ignore_errors=True)
        for path, text in files.items():
            _make(place, path, text)
        reference = {key: value.format(index=place.world.base) for key, value in model.items()}
        place.more = {"models": [{"name": "base", **reference}]}
        code, said = run("lock")
        assert (code, f"error[{kind}]" in said, "Traceback" in said) == (1, True, False), said
        assert place.files()["repro.lock"] == locked
        assert not list((place.root.parent / "cache").glob("incoming/*"))


def _make(place: Place, path: str, text: str) -> None:
    name, link, target = path.removesuffix(" |").partition(" -> ")
    place.write(name, text)
    if link or path.endswith(" |"):
        (place.root / name).unlink()
    if link:
        (place.root / name).symlink_to(target)
    elif path.endswith(" |"):
        os.mkfifo(place.root / name)


def test_a_full_disk_leaves_nothing_behind(
    place: Place, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.getuid() != 0:
        pytest.skip("a small file system needs root to be mounted")
    place.world.index("default").add("big", "1.0", text=f"'{'x' * (6 << 20)}'")
    place.write("requirements.in", "big\n")
    tight = tmp_path / "tight"
    tight.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", str(tight)], check=True)
    try:
        (tight / "tools").symlink_to(tmp_path / "cache" / "tools")
        monkeypatch.setenv("REPRO_CACHE", str(tight))
        code, said = run("lock")
        assert code == 1
        assert "error[disk-full]" in said
        assert "Traceback" not in said
        assert not (place.root / "repro.lock").exists()
        assert not (place.root / "locks").exists()
        assert not list(tight.glob("work/*"))
        assert not list(tight.glob("sha256/*/*"))
    finally:
        subprocess.run(["umount", str(tight)], check=True)
