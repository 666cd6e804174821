"""Engines of other Debian releases and kinds, each in a root of its own, for tests that compare them."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import pytest

__all__ = ["ENGINES", "EngineKind", "engine_of", "make_root"]

SCRIPT = Path(__file__).parents[2] / "scripts" / "engine-in"

PACKAGES = {
    "bookworm": ("docker.io", "podman", "runc"),
    "trixie": ("docker.io", "docker-cli", "docker-buildx", "podman", "runc"),
}


class EngineKind(NamedTuple):
    """One engine to build with, and how."""

    suite: str
    kind: str
    version: str
    driver: str = ""
    buildkit: bool = False

    def __str__(self) -> str:
        words = (self.kind, self.version, self.driver, "buildkit" if self.buildkit else "")
        return "-".join(filter(None, words))


ENGINES = (
    EngineKind("bookworm", "docker", "20.10"),
    EngineKind("bookworm", "docker", "20.10", driver="vfs"),
    EngineKind("bookworm", "docker", "20.10", buildkit=True),
    EngineKind("trixie", "docker", "26.1"),
    EngineKind("trixie", "docker", "26.1", buildkit=True),
    EngineKind("trixie", "containerd", "26.1"),
    EngineKind("trixie", "containerd", "26.1", buildkit=True),
    EngineKind("bookworm", "podman", "4.3"),
    EngineKind("trixie", "podman", "5.4"),
)


def _run(*words: str | Path, seconds: int = 600) -> str:
    done = subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
    if done.returncode:
        pytest.skip(f"not to be had here: {' '.join(map(str, words[2:]))}: {done.stderr.strip()[-300:]}")
    return done.stdout.strip()


def make_root(suite: str, folder: Path) -> Path:
    """Unpack a Debian release with its engines; skips where that cannot be had."""
    if os.getuid() != 0 or shutil.which("mmdebstrap") is None:
        pytest.skip("another release's engine needs root and mmdebstrap")
    root = folder / suite
    _run(SCRIPT, root, "new", suite, *PACKAGES[suite])
    return root


@contextmanager
def engine_of(root: Path, kind: EngineKind) -> Iterator[dict[str, str]]:
    """Run an engine; yield the environment that reaches it, with the root's plugin buildx."""
    folder = Path(tempfile.mkdtemp(prefix="re-"))  # short: sockets have short paths
    config = folder / "config"
    data = folder / "engine"
    try:
        (config / "cli-plugins").mkdir(parents=True)
        plugin = root / "usr/libexec/docker/cli-plugins/docker-buildx"
        if plugin.exists():
            (config / "cli-plugins" / plugin.name).symlink_to(plugin)
        host = _run(SCRIPT, root, "start", data, kind.kind, *filter(None, [kind.driver]))
        yield {**os.environ, "DOCKER_HOST": host, "DOCKER_CONFIG": str(config)}
    finally:
        subprocess.run([SCRIPT, root, "stop", data], capture_output=True, check=False)
        shutil.rmtree(folder, ignore_errors=True)
