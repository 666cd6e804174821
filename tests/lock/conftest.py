"""Fixtures for lock tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from repro.adapters.cache import FileCache, cache_folder
from repro.adapters.pip import PipResolver
from repro.adapters.pip.tools import Tools
from repro.errors import LockError
from tests.lock.lock_world import CASES, Quiet, World, serve


@pytest.fixture
def case() -> Callable[[str], Path]:
    """The folder of a shared case."""

    def find(name: str) -> Path:
        folder = CASES / name
        if not folder.is_dir():
            pytest.skip(f"case {name} is not there")
        return folder

    return find


@pytest.fixture(scope="session")
def tools_folder() -> Path:
    """The tool environment of this machine's own cache, made where it is not there yet."""
    cache = FileCache(cache_folder(os.environ))
    tools = Tools(cache)
    try:
        tools.prepare(Quiet())
    except LockError as error:
        pytest.skip(f"{error.kind}: {error}")
    return tools.folder.parent


@pytest.fixture
def world() -> Iterator[World]:
    """A server of package indexes."""
    with serve() as made:
        yield made


@pytest.fixture
def cache(tmp_path: Path) -> FileCache:
    """An empty cache."""
    return FileCache(tmp_path / "cache")


@pytest.fixture
def resolver(
    cache: FileCache, tools_folder: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> PipResolver:
    """A resolver whose machine knows one index, `default` of the world."""
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", world.index("default").url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    cache.folder.mkdir(parents=True)
    (cache.folder / "tools").symlink_to(tools_folder)
    return PipResolver(cache)
