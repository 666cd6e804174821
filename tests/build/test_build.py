from __future__ import annotations

import gc
import os
import shutil
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.build import build_image, check_image, held_record, make_plan
from repro.errors import BuildError, EngineError, ReproError
from repro.image import Builder, BuildPlan, EngineInfo, HeldImage, ImageRecord, LayerCheck
from repro.job import Job
from repro.lock import BaseLock
from repro.ports import OnLine
from tests.build.small_project import Small, any_base
from tests.parts import Parts


class Listening:
    """Keeps what it is told; `on` may act on it."""

    def __init__(self, on: Callable[[str], None] = lambda _: None) -> None:
        self.said: list[str] = []
        self.on = on

    def start(self, what: str, total: int | None = None) -> None:
        self.said.append(what)
        self.on(what)

    def advance(self, amount: int = 1, note: str = "") -> None:
        if note:
            self.on(note)

    def line(self, text: str) -> None:
        self.said.append(text)


def base_lock(held: HeldImage) -> BaseLock:
    assert held.config_digest is not None
    assert held.diff_ids is not None
    return BaseLock(
        requested="repro-base:bookworm",
        source="engine",
        config_digest=held.config_digest,
        diff_ids=held.diff_ids,
        os=held.os,
        architecture=held.architecture,
    )


class World:
    """A small project on the real base, and how to build it."""

    def __init__(self, engine: DockerEngine, small: Small, base: BaseLock) -> None:
        self.engine, self.small = engine, small
        self.plan = make_plan(small.lock(base), "cpu")

    def build(self, *, fresh: bool = False, on: Callable[[str], None] = lambda _: None) -> ImageRecord:
        return build_image(
            self.plan,
            engine=self.engine,
            cache=self.small.parts,
            root=self.small.root,
            progress=Listening(on),
            fresh=fresh,
        )

    def traces(self) -> tuple[set[str], set[str], list[Path]]:
        """Everything a build could leave behind."""
        api = self.engine.client.api
        scratch = self.small.parts.folder / "scratch"
        return (
            set(api.images(quiet=True, all=True)),
            {container["Id"] for container in api.containers(all=True)},
            list(scratch.iterdir()) if scratch.exists() else [],
        )


MakeWorld = Callable[..., World]
SHORT = """ARG BASE
FROM ${BASE} AS one
COPY source /x
RUN touch /y
FROM ${BASE}
COPY --from=one /x /workspace
"""


@pytest.fixture
def make_world(quiet_engine: DockerEngine, base_image: HeldImage, tmp_path: Path) -> Iterator[MakeWorld]:
    def make(dockerfile: str | None = SHORT) -> World:
        folder = tmp_path / "parts"
        folder.mkdir()
        small = Small(Parts(folder), tmp_path / "project", dockerfile=dockerfile)
        return World(quiet_engine, small, base_lock(base_image))

    yield make
    for image in quiet_engine.client.images.list():
        if any(tag.startswith("repro/small-cpu:") for tag in image.tags):
            quiet_engine.client.images.remove(image.id, force=True)


@pytest.mark.engine
def test_two_builds_from_nothing_are_one_image(make_world: MakeWorld, base_image: HeldImage) -> None:
    world = make_world(dockerfile=None)
    before = world.traces()
    first = world.build()
    held = world.engine.find(first.identity.config_digest)
    assert held is not None
    assert held.diff_ids == first.identity.diff_ids
    assert held.tags == (f"repro/small-cpu:{first.identity.config_digest[7:19]}",)
    assert held.diff_ids[: first.base_layers] == base_image.diff_ids
    assert first.base_layers + 2 == len(held.diff_ids)
    images, containers, scratch = world.traces()
    assert (images - before[0], containers, scratch) == ({held.id}, before[1], [])
    second = world.build(fresh=True)
    assert second.identity == first.identity
    assert second.builder.raw_id != first.builder.raw_id
    assert world.traces() == (images, containers, scratch)

    runtime = DockerRuntime(world.engine)
    lines: list[str] = []
    job = Job(
        argv=(
            "sh",
            "-c",
            "python train.py; configs/run.sh; ls -ln /workspace; ls / /opt; tiny",
        ),
        environment={},
        workdir="/workspace",
        image=first.identity.config_digest,
        timeout_s=60.0,
    )
    assert runtime.run(job, on_line=lines.append).exit_code == 6
    assert lines[:3] == ["42", "run", "total 8"]
    assert [line.split(" 0 0 ")[0] for line in lines[3:5]] == ["drwxr-xr-x 2", "-rw-r--r-- 1"]
    assert not {"wheels", "pip", "requirements.txt", "out"} & set(lines[5:])
    assert "Jan  1  2026" in lines[3]


@pytest.mark.engine
def test_what_the_engine_holds_is_not_built_again(make_world: MakeWorld) -> None:
    world = make_world()
    said: list[str] = []
    record = world.build()
    assert world.build(on=said.append) == record
    assert said == []
    assert held_record(world.plan, engine=world.engine, cache=world.small.parts) == record
    world.engine.remove(f"repro/small-cpu:{record.identity.config_digest[7:19]}")
    assert held_record(world.plan, engine=world.engine, cache=world.small.parts) is None
    assert world.build(on=said.append).identity == record.identity
    assert "normalising" in said


@pytest.mark.engine
def test_one_byte_of_source_makes_another_image(make_world: MakeWorld, base_image: HeldImage) -> None:
    world = make_world()
    first = world.build()
    (world.small.root / "train.py").write_text("print(43)\n")
    with pytest.raises(BuildError) as stale:
        world.build(fresh=True)
    assert stale.value.kind == "source-changed"
    world.plan = make_plan(world.small.lock(base_lock(base_image)), "cpu")
    second = world.build()
    assert second.identity.config_digest != first.identity.config_digest
    assert second.identity.diff_ids[:-1] == first.identity.diff_ids[:-1], "only the last layer differs"


@pytest.mark.engine
def test_a_step_that_fails_is_named_with_its_last_lines(make_world: MakeWorld) -> None:
    world = make_world("ARG BASE\nFROM ${BASE}\nRUN echo fine\nRUN echo what went wrong && exit 3\n")
    before = world.traces()
    with pytest.raises(BuildError) as failed:
        world.build()
    assert failed.value.kind == "build-failed"
    assert failed.value.where == "Step 4/4 : RUN echo what went wrong && exit 3"
    assert "what went wrong" in failed.value.message
    assert "returned a non-zero code: 3" in failed.value.message
    assert world.traces() == before


@pytest.mark.engine
def test_a_build_has_no_network(make_world: MakeWorld) -> None:
    script = "import socket; socket.create_connection(('192.0.2.1', 80), 5)"
    world = make_world(f'ARG BASE\nFROM ${{BASE}}\nRUN ["python3", "-c", "{script}"]\n')
    with pytest.raises(BuildError) as failed:
        world.build()
    assert "Network is unreachable" in failed.value.message


@pytest.mark.engine
def test_another_base_than_the_locked_one_is_refused(make_world: MakeWorld) -> None:
    world = make_world("FROM scratch\nCOPY source /x\n")
    before = world.traces()
    with pytest.raises(BuildError) as differs:
        world.build()
    assert differs.value.kind == "base-differs"
    assert world.traces() == before


@pytest.mark.engine
def test_an_image_that_is_not_there_is_named(make_world: MakeWorld) -> None:
    world = make_world("FROM registry.invalid/team/base:gone\n")
    with pytest.raises(ReproError) as unreachable:
        world.build()
    assert unreachable.value.kind == "registry-unreachable"
    world.plan = make_plan(world.small.lock(any_base().model_copy(update={"manifest_digest": None})), "cpu")
    with pytest.raises(BuildError) as absent:
        world.build()
    assert absent.value.kind == "base-absent"
    assert "registry.example.org/base:1" in absent.value.message


@pytest.mark.engine
@pytest.mark.parametrize("moment", ["Step 2/", "Step 4/", "Step 6/", "saving", "normalising", "loading"])
def test_an_interrupt_at_any_moment_leaves_nothing(make_world: MakeWorld, moment: str) -> None:
    world = make_world()
    before = world.traces()

    def interrupt(said: str) -> None:
        if said.startswith(moment):
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        world.build(on=interrupt)
    assert world.traces() == before
    assert held_record(world.plan, engine=world.engine, cache=world.small.parts) is None


@pytest.mark.engine
def test_a_disk_that_is_too_small_is_said_before(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = make_world()
    usage = shutil.disk_usage("/")
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=1000))
    with pytest.raises(BuildError) as full:
        world.build()
    assert full.value.kind == "disk-full"
    assert "0.0 GB are free" in full.value.message


@pytest.mark.engine
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # docker-py drops refused sockets
def test_an_engine_that_dies_in_the_middle_is_named(
    make_world: MakeWorld, base_image: HeldImage, private_engine: dict[str, str]
) -> None:
    world = make_world()
    pid = int(Path(private_engine["REPRO_ENGINE_RUN"], "pid").read_text())

    def kill(said: str) -> None:
        if said.startswith("Step 4/"):
            os.kill(pid, signal.SIGKILL)

    with DockerEngine.connect(private_engine) as victim:
        victim.load(world.engine.save(base_image.id))
        world.engine = victim
        with pytest.raises(EngineError) as gone:
            world.build(on=kill)
    assert gone.value.kind == "engine-gone"
    del gone
    gc.collect()
    assert list((world.small.parts.folder / "scratch").iterdir()) == []


class Lying(NamedTuple):
    """An engine that holds something else after `load` than it was given."""

    real: DockerEngine

    @property
    def builder(self) -> Builder:
        return self.real.builder

    def info(self) -> EngineInfo:
        return self.real.info()

    def inspect(self, reference: str) -> HeldImage | None:
        return self.real.inspect(reference)

    def find(self, config_digest: str, *, diff_ids: Sequence[str] | None = None) -> HeldImage | None:
        return self.real.find(config_digest, diff_ids=diff_ids)

    def pull(self, reference: str, *, on_line: OnLine) -> None:
        self.real.pull(reference, on_line=on_line)

    def build(self, context: Iterator[bytes], *, arguments: Mapping[str, str], on_line: OnLine) -> str:
        return self.real.build(context, arguments=arguments, on_line=on_line)

    def save(self, image: str) -> Iterator[bytes]:
        return self.real.save(image)

    def load(self, archive: Iterator[bytes]) -> str:
        for _ in archive:
            pass
        return "sha256:" + "0" * 64

    def remove(self, image: str) -> None:
        self.real.remove(image)


@pytest.mark.engine
def test_the_image_that_is_held_is_the_image_that_is_named(make_world: MakeWorld) -> None:
    world = make_world()
    lying: Any = Lying(world.engine)
    world.engine = lying
    with pytest.raises(BuildError) as differs:
        world.build()
    assert differs.value.kind == "load-differs"
    assert held_record(world.plan, engine=world.engine, cache=world.small.parts) is None


def test_a_record_that_cannot_be_read_means_build_again(tmp_path: Path, parts: Parts) -> None:
    plan: BuildPlan = make_plan(Small(parts, tmp_path / "project").lock(any_base()), "cpu")
    place = parts.folder / "images" / f"{plan.digest[7:]}.json"
    place.parent.mkdir()
    place.write_text('{"identity": 1}')
    nobody: Any = None
    assert held_record(plan, engine=nobody, cache=parts) is None


@pytest.mark.engine
def test_an_image_is_what_its_wheels_make(make_world: MakeWorld) -> None:
    world = make_world(dockerfile=None)
    record = world.build()

    def check(record: ImageRecord) -> LayerCheck:
        return check_image(
            world.plan, record, engine=world.engine, cache=world.small.parts, progress=Listening()
        )

    found = check(record)
    assert found.explained
    assert found.files == found.identical + len({difference.path for difference in found.differences})
    assert {difference.reason for difference in found.differences} == {"environment", "installer", "script"}
    assert found.layer == record.identity.diff_ids[record.base_layers]
    other = record.identity.model_copy(update={"diff_ids": record.identity.diff_ids[::-1]})
    with pytest.raises(BuildError) as differs:
        check(record.model_copy(update={"identity": other}))
    assert differs.value.kind == "image-differs"
    assert world.traces()[2] == []


@pytest.mark.engine
def test_another_source_is_grafted_on_and_gives_the_image_of_a_build_from_nothing(
    make_world: MakeWorld, base_image: HeldImage
) -> None:
    world = make_world(dockerfile=None)
    first = world.build()
    (world.small.root / "train.py").write_text("#!/usr/bin/env python\nprint('another')\n")
    world.plan = make_plan(world.small.lock(base_lock(base_image)), "cpu")
    said: list[str] = []
    grafted = world.build(on=said.append)
    assert said == ["loading"], "nothing was built"
    assert grafted.identity.diff_ids[:-1] == first.identity.diff_ids[:-1]
    assert grafted.identity != first.identity
    assert world.build(fresh=True).identity == grafted.identity


@pytest.mark.engine
def test_nothing_is_grafted_where_a_dockerfile_puts_more_into_the_last_layer(
    make_world: MakeWorld, base_image: HeldImage
) -> None:
    world = make_world(dockerfile=SHORT)
    world.build()
    (world.small.root / "train.py").write_text("print('another')\n")
    world.plan = make_plan(world.small.lock(base_lock(base_image)), "cpu")
    said: list[str] = []
    world.build(on=said.append)
    assert said[0] == "building"
