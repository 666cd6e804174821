"""Models and data sets in the lock: brought once, kept by content, read again before every run."""

from __future__ import annotations

import zipfile
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from repro.adapters.cache import FileCache
from repro.adapters.pip import PipResolver
from repro.digest import digest_bytes
from repro.errors import LockError
from repro.lock import AcceleratorLock, FileLock, Lock, PackageFile, PackageLock, SourceLock
from repro.ports import ArtifactSource, Progress
from repro.resolution import Found, Reference
from repro.resolve import hold
from repro.resolve.artifacts import Artifacts
from repro.resolve.places import place_of
from repro.spec import ArtifactSpec
from tests.lock.lock_world import LINUX, OneBase, Quiet

ANY = digest_bytes(b"")


@dataclass
class Shop:
    """A source whose files the test sets."""

    files: dict[str, bytes]
    asked: list[Reference] = field(default_factory=list)

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        self.asked.append(reference)
        for path, data in self.files.items():
            (into / path).parent.mkdir(parents=True, exist_ok=True)
            (into / path).write_bytes(data)
        return Found(requested=reference.text, resolved="org/new", commit="c" * 40, licence="mit")


def accelerator(*files: PackageFile) -> AcceleratorLock:
    return AcceleratorLock(
        spec_digest=ANY,
        asked={},
        dockerfile=FileLock(path="Dockerfile", size=0, digest=ANY),
        base=OneBase().find("base", architecture="amd64"),
        packages=PackageLock(
            platform=LINUX,
            requirements=ANY,
            pylock=ANY,
            compiled=ANY,
            inputs=(),
            resolver={},
            pip=package("pip", ANY),
            files=files,
        ),
    )


def package(name: str, digest: str) -> PackageFile:
    return PackageFile(
        name=name,
        version="1",
        filename=f"{name}-1-py3-none-any.whl",
        size=0,
        digest=digest,
        index="default",
        hash_source="published",
    )


class Place:
    """A project, a cache and one source, `hub`."""

    def __init__(self, folder: Path) -> None:
        self.root = folder / "project"
        self.root.mkdir()
        self.cache = FileCache(folder / "cache")
        self.shop = Shop({"config.json": b"{}", "sub/weights.safetensors": b"w" * 1000})
        self.sources: dict[str, ArtifactSource] = {"hub": self.shop}
        self.accelerators: dict[str, AcceleratorLock] = {}
        self.artifacts = Artifacts(root=self.root, cache=self.cache, sources=self.sources, progress=Quiet())

    def lock(self, **spec: object) -> Lock:
        artifact = self.artifacts.lock(
            ArtifactSpec.parse({"name": "base", **spec}), "model", self.accelerators
        )
        return Lock(
            name="pilot",
            spec_digest=ANY,
            asked={},
            ignored=(),
            seed=0,
            determinism="off",
            source=SourceLock(files=()),
            models=(artifact,),
            accelerators=self.accelerators,
        )

    def hold(self, lock: Lock) -> Path:
        held = hold(
            lock,
            [],
            root=self.root,
            cache=self.cache,
            resolver=PipResolver(self.cache),
            sources=self.sources,
            progress=Quiet(),
        )
        return held["base"]


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty project."""
    return Place(tmp_path)


def test_what_was_asked_stands_beside_what_it_became(place: Place) -> None:
    (model,) = place.lock(hub="org/old", revision="main").models
    assert (model.requested, model.requested_revision) == ("org/old", "main")
    assert (model.resolved, model.commit, model.licence) == ("org/new", "c" * 40, "mit")
    assert (model.target, model.total_bytes) == ("inputs/base", 1002)
    assert [file.path for file in model.files] == ["config.json", "sub/weights.safetensors"]


def test_files_are_kept_by_content_and_brought_again_by_commit(place: Place) -> None:
    lock = place.lock(hub="org/old", revision="main")
    held = place.hold(lock)
    assert held == place_of(lock.models[0], place.root, place.cache)
    assert (held / "sub" / "weights.safetensors").read_bytes() == b"w" * 1000
    assert len(place.shop.asked) == 1

    (held / "config.json").write_bytes(b"{spoilt}")
    assert (place.hold(lock) / "config.json").read_bytes() == b"{}"
    assert place.shop.asked[-1] == Reference(text="org/new", revision="c" * 40, role="model")
    (held / "config.json").unlink()
    assert (place.hold(lock) / "config.json").read_bytes() == b"{}"
    assert not list((place.cache.folder / "incoming").iterdir())


def test_other_bytes_under_the_same_commit_are_refused(place: Place) -> None:
    lock = place.lock(hub="org/old")
    held = place.hold(lock)
    (held / "config.json").write_bytes(b"{spoilt}")
    place.shop.files["config.json"] = b"{moved}"
    with pytest.raises(LockError) as caught:
        place.hold(lock)
    assert caught.value.kind == "artifact-differs"


def test_a_model_inside_a_locked_wheel(place: Place, tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "wheel", "w") as archive:
        archive.writestr("tiny/model/config.json", "{}")
        archive.writestr("tiny/model/sub/w.bin", "w")
        archive.writestr("tiny/code.py", "pass")
    digest = place.cache.add(tmp_path / "wheel")
    place.accelerators = {name: accelerator(package("tiny-model", digest)) for name in ("cpu", "cuda")}

    lock = place.lock(wheel="Tiny_Model:tiny/model")

    assert [file.path for file in lock.models[0].files] == ["config.json", "sub/w.bin"]
    assert (place.hold(lock) / "sub" / "w.bin").read_text() == "w"


def test_a_model_in_no_wheel_or_in_several(place: Place) -> None:
    with pytest.raises(LockError) as caught:
        place.lock(wheel="tiny")
    assert caught.value.kind == "wheel-not-locked"
    place.accelerators = {
        name: accelerator(package("tiny", digest_bytes(name.encode()))) for name in ("cpu", "cuda")
    }
    with pytest.raises(LockError) as caught:
        place.lock(wheel="tiny")
    assert caught.value.kind == "wheel-ambiguous"


def test_a_source_that_brings_nothing(place: Place) -> None:
    place.shop.files = {".git/config": b"ignored"}
    with pytest.raises(LockError) as caught:
        place.lock(hub="org/empty")
    assert caught.value.kind == "artifact-empty"
