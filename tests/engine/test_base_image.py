"""images/base: a base image that comes out bit for bit the same, offline, wherever it is made."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
BASE = ROOT / "images" / "base"
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "repro"
LOCK = (BASE / "packages.lock").read_text()

on_debian = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("apt-get") is None, reason="the base is made as root on Debian"
)


def build(
    *command: str | Path, cache: Path | None = None, **environment: str
) -> subprocess.CompletedProcess[str]:
    variables = os.environ | environment
    if cache:
        variables["XDG_CACHE_HOME"] = str(cache)
    return subprocess.run(command, env=variables, capture_output=True, text=True, timeout=600, check=False)


@pytest.fixture(scope="module")
def engine() -> str:
    """The DOCKER_HOST of a reachable engine."""
    done = subprocess.run([ROOT / "scripts" / "engine", "host"], capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("no Docker engine answers")
    return done.stdout.strip()


@pytest.fixture(scope="module")
def digest(engine: str) -> str:
    """The base's config digest; it is in the engine, and everything it is made from is in the cache."""
    done = build(BASE / "build", "--allow-moved", DOCKER_HOST=engine)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_the_lock_names_every_package_once_in_order_and_no_mirror() -> None:
    lines = LOCK.splitlines()
    assert re.fullmatch(r"# image sha256:[0-9a-f]{64}", lines[1])
    packages = lines[2:]
    names = [line.split()[0] for line in packages]
    assert names == sorted(set(names))
    assert {"libc6", "python3", "ca-certificates", "usr-is-merged"} <= set(names)
    assert "usrmerge" not in names
    for line in packages:
        assert re.fullmatch(r"[a-z0-9][a-z0-9.+-]+ [A-Za-z0-9.+~:-]+ (all|amd64) [0-9a-f]{64}", line)


@pytest.mark.engine
@on_debian
def test_a_second_call_takes_no_time(engine: str, digest: str) -> None:
    began = time.monotonic()
    done = build(BASE / "build", "--allow-moved", DOCKER_HOST=engine)
    assert time.monotonic() - began < 2
    assert (done.returncode, done.stdout) == (0, f"{digest}\n")


@pytest.mark.engine
@on_debian
def test_the_image_can_make_an_environment_and_tells_of_no_machine(engine: str, digest: str) -> None:
    script = (
        "set -e; python3 -m venv --without-pip /tmp/v; /tmp/v/bin/python -c 'import ctypes, sqlite3, ssl'; "
        "ls -A /etc/apt/sources.list.d /etc/apt/preferences.d; test ! -e /etc/apt/sources.list; "
        "test ! -e /var/lib/apt; test ! -e /etc/machine-id; echo fine $LANG"
    )
    argv = ["docker", "run", "--rm", "--network=none", "--init", digest, "bash", "-c", script]
    done = build(*argv, DOCKER_HOST=engine)
    assert done.stdout.splitlines()[-1:] == ["fine C.UTF-8"], done.stderr
    listing = "".join(line for line in done.stdout.splitlines() if not line.startswith(("/etc", "fine")))
    assert listing == ""


@pytest.mark.engine
@pytest.mark.network
@on_debian
def test_a_package_that_moved_is_named_and_refused(engine: str, digest: str, tmp_path: Path) -> None:
    copy = shutil.copytree(BASE, tmp_path / "base", ignore=shutil.ignore_patterns("__pycache__"))
    text, changed = re.subn(r"(?m)^bash \S+ (\S+) \S+$", rf"bash 0.1 \1 {'0' * 64}", LOCK)
    assert changed == 1
    (copy / "packages.lock").write_text(text)
    cache = tmp_path / "cache"
    (cache / "repro").mkdir(parents=True)
    (cache / "repro" / "debs").symlink_to(CACHE / "debs")

    done = build(copy / "build", cache=cache, DOCKER_HOST=engine)

    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert re.search(r"(?m)^  bash: 0\.1 -> \d", done.stderr)
    assert "--update" in done.stderr
    assert not list(cache.glob("repro/base/*.tar"))


@pytest.mark.engine
@pytest.mark.slow
@on_debian
def test_it_is_the_same_offline_on_another_host_with_other_habits(
    engine: str, digest: str, tmp_path: Path
) -> None:
    """Made anew in a strange place: other hostname, time zone, umask, folder with a space, and no network."""
    cache = tmp_path / "a cache"
    (cache / "repro" / "base").mkdir(parents=True)
    (cache / "repro" / "debs").symlink_to(CACHE / "debs")
    for moved in (CACHE / "base").glob("*.moved.lock"):
        shutil.copy(moved, cache / "repro" / "base")
    (tmp_path / "a temporary folder").mkdir()
    copy = shutil.copytree(BASE, tmp_path / "a checkout" / "base")

    done = build(
        *("unshare", "--net", "--uts", "bash", "-c", 'hostname elsewhere; umask 077; "$0" --allow-moved'),
        copy / "build",
        cache=cache,
        DOCKER_HOST=engine,
        TMPDIR=str(tmp_path / "a temporary folder"),
        TZ="Asia/Tokyo",
        LC_ALL="C",
    )

    assert (done.returncode, done.stdout) == (0, f"{digest}\n"), done.stderr
    (archive,) = (cache / "repro" / "base").glob("*.tar")
    first = CACHE / "base" / archive.name
    assert sha256_of(archive) == sha256_of(first)
    assert not list((tmp_path / "a temporary folder").iterdir())


def sha256_of(path: Path) -> str:
    with path.open("rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
