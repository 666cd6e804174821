"""Fixtures for several areas: a container engine, the small base image, wheels and a cache."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repro.adapters.docker_engine import DockerEngine
from repro.errors import EngineError
from repro.image import HeldImage
from tests.parts import Parts

BASE = "repro-base:bookworm"
ROOT = Path(__file__).parent.parent


def pytest_configure() -> None:
    """Let Ctrl-C reach what the tests start: a shell starts its background jobs with it ignored."""
    if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def engine() -> Iterator[DockerEngine]:
    """The engine that a person on this machine would get."""
    try:
        found = DockerEngine.connect()
    except EngineError as error:
        pytest.skip(f"{error.kind}: {error}")
    with found:
        yield found


@pytest.fixture(scope="session")
def base_image(engine: DockerEngine) -> HeldImage:
    """The base that `scripts/prepare` makes: Debian with Python and nothing else."""
    held = engine.inspect(BASE)
    if held is None:
        pytest.skip(f"the engine does not hold {BASE}; `scripts/prepare` makes it")
    return held


@contextmanager
def _own_engine(data: Path) -> Iterator[dict[str, str]]:
    """Run an engine of the tests' own; yield the environment that reaches it."""
    if os.getuid() != 0 or shutil.which("dockerd") is None:
        pytest.skip("an engine of its own needs root and dockerd")
    folder = Path(f"/run/repro-test-{os.getpid()}-{data.name}")
    environment = {**os.environ, "REPRO_ENGINE_RUN": str(folder), "REPRO_ENGINE_ROOT": str(data)}
    script = str(ROOT / "scripts" / "engine")
    started = subprocess.run([script, "start"], env=environment, capture_output=True, text=True, check=False)
    try:
        if started.returncode != 0:
            pytest.skip(f"no engine of its own here: {started.stderr.strip()[-200:]}")
        yield {**environment, "DOCKER_HOST": started.stdout.strip()}
    finally:
        subprocess.run([script, "stop"], env=environment, capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
        shutil.rmtree(data, ignore_errors=True)


@pytest.fixture
def private_engine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An engine to be ill-treated: the environment that reaches it."""
    with _own_engine(tmp_path_factory.mktemp("engine")) as environment:
        yield environment


@pytest.fixture(scope="session")
def quiet_engine(
    tmp_path_factory: pytest.TempPathFactory, engine: DockerEngine, base_image: HeldImage
) -> Iterator[DockerEngine]:
    """An engine that nobody else uses, so that whatever appears in it is the test's; it holds the base."""
    with (
        _own_engine(tmp_path_factory.mktemp("quiet")) as environment,
        DockerEngine.connect(environment) as own,
    ):
        own.load(engine.save(BASE))
        yield own


@pytest.fixture
def parts(tmp_path: Path) -> Parts:
    """A maker of small parts, in a folder of its own."""
    folder = tmp_path / "parts"
    folder.mkdir()
    return Parts(folder)
