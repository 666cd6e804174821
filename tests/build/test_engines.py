"""One plan, one image: whichever engine builds it, of whichever version, storage and builder."""

from __future__ import annotations

import io
import json
import shutil
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.adapters.docker_contents import saved_config_digest
from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.digest import digest_bytes
from repro.errors import BuildError, EngineError
from repro.image import HeldImage, ImageRecord
from repro.job import Job, Limits
from tests.build.other_engines import ENGINES, EngineKind, engine_of, make_root
from tests.build.small_project import Small
from tests.build.test_build import World, base_lock
from tests.parts import Parts


@pytest.fixture(scope="module")
def roots(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Path]]:
    folder = tmp_path_factory.mktemp("roots")
    made: dict[str, Path] = {}

    def root(suite: str) -> Path:
        if suite not in made:
            made[suite] = make_root(suite, folder)
        return made[suite]

    yield root
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def small(tmp_path: Path) -> Small:
    (tmp_path / "parts").mkdir()
    return Small(Parts(tmp_path / "parts"), tmp_path / "project")


@pytest.fixture(scope="module")
def known(
    quiet_engine: DockerEngine, base_image: HeldImage, tmp_path_factory: pytest.TempPathFactory
) -> ImageRecord:
    """The image by this machine's own engine."""
    folder = tmp_path_factory.mktemp("known")
    (folder / "parts").mkdir()
    world = World(quiet_engine, Small(Parts(folder / "parts"), folder / "project"), base_lock(base_image))
    return world.build(fresh=True)


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.parametrize("kind", ENGINES, ids=str)
def test_every_engine_makes_the_same_image_and_leaves_nothing_else(
    kind: EngineKind,
    roots: Callable[[str], Path],
    small: Small,
    known: ImageRecord,
    engine: DockerEngine,
    base_image: HeldImage,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with engine_of(roots(kind.suite), kind) as environment:
        monkeypatch.setenv("DOCKER_CONFIG", environment["DOCKER_CONFIG"])
        if kind.buildkit and kind.suite == "bookworm":
            monkeypatch.setenv("PATH", "/usr/bin:/bin")  # Debian's own docker command speaks BuildKit itself
        with DockerEngine.connect(environment, buildkit=kind.buildkit) as other:
            other.load(engine.save("repro-base:bookworm"))
            world = World(other, small, base_lock(base_image))
            images, containers, scratch = world.traces()
            record = world.build(fresh=True)
            assert record.identity == known.identity
            assert record.builder.version.startswith(kind.version)
            assert record.builder.builder == other.builder
            held = other.find(record.identity.config_digest)
            assert held is not None
            after = world.traces()
            assert (after[0] - images, after[1], after[2]) == ({held.id}, containers, scratch)
            assert not other.client.api.df().get("BuildCache")
            _run_it(other, record)
            _fail(world)


def _run_it(other: DockerEngine, record: ImageRecord) -> None:
    """The pilot runs there, by its config digest, within its limits."""
    lines: list[str] = []
    job = Job(
        argv=("python", "train.py"),
        environment={},
        workdir="/workspace",
        image=record.identity.config_digest,
        timeout_s=60.0,
        limits=Limits(memory_bytes=300 << 20),
    )
    assert DockerRuntime(other).run(job, on_line=lines.append).exit_code == 0
    assert lines == ["42"]


def _fail(world: World) -> None:
    """A step that fails is named, and leaves nothing."""
    text = "ARG BASE\nFROM ${BASE}\nRUN echo fine\nRUN echo what went wrong && exit 3\n"
    (world.small.root / "Dockerfile.cpu").write_text(text)
    world.plan = world.plan.model_copy(
        update={"dockerfile": world.small.parts.lock(world.small.root / "Dockerfile.cpu")}
    )
    before = world.traces()
    with pytest.raises(BuildError) as failed:
        world.build(fresh=True)
    assert failed.value.kind == "build-failed"
    assert "RUN echo what went wrong" in str(failed.value.where)
    assert "\n  what went wrong" in failed.value.message
    assert world.traces() == before


@pytest.mark.engine
def test_without_a_way_to_buildkit_it_is_said(
    quiet_engine: DockerEngine,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    small: Small,
    base_image: HeldImage,
) -> None:
    command = tmp_path / "bin" / "docker"
    command.parent.mkdir()
    command.write_text('#!/bin/sh\n[ "$1" = version ] && echo 28.2.2\n')
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}:/usr/bin:/bin")
    monkeypatch.setattr(quiet_engine, "_buildkit", True)
    world = World(quiet_engine, small, base_lock(base_image))
    before = world.traces()
    with pytest.raises(EngineError) as absent:
        world.build(fresh=True)
    assert absent.value.kind == "buildkit-absent"
    assert "28.2.2 has no plugin buildx" in absent.value.message
    assert world.traces() == before


def _archive(blobs: list[bytes]) -> Iterator[bytes]:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for blob in blobs:
            member = tarfile.TarInfo(f"blobs/sha256/{digest_bytes(blob)[7:]}")
            member.size = len(blob)
            tar.addfile(member, io.BytesIO(blob))
    data = file.getvalue()
    for start in range(0, len(data), 700):
        yield data[start : start + 700]


CONFIG = json.dumps({"rootfs": {"diff_ids": []}}).encode()
MANIFEST = json.dumps({"config": {"digest": digest_bytes(CONFIG)}, "layers": []}).encode()
INDEX = json.dumps({"manifests": [{"digest": digest_bytes(MANIFEST)}]}).encode()
LAYER = b"x" * 5000


@given(st.permutations([CONFIG, MANIFEST, INDEX, LAYER]), st.sampled_from([MANIFEST, INDEX]))
def test_a_config_is_found_whatever_comes_first(blobs: list[bytes], named: bytes) -> None:
    assert saved_config_digest(_archive(blobs), digest_bytes(named)) == digest_bytes(CONFIG)


@pytest.mark.parametrize("archive", [[CONFIG, LAYER], [INDEX, CONFIG], [b"{no json", LAYER]])
def test_what_an_archive_does_not_tell_is_unknown(archive: list[bytes]) -> None:
    assert saved_config_digest(_archive(archive), digest_bytes(INDEX)) is None
    assert saved_config_digest(iter([b"not a tar"]), digest_bytes(INDEX)) is None
