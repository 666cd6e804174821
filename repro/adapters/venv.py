"""A virtual environment made of the locked wheels: offline, by hash, made once and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from repro.build.plan import requirements_text
from repro.digest import digest_json, hex_of
from repro.errors import BuildError, HostError
from repro.image import BuildPlan
from repro.ports import Cache, Progress

__all__ = ["ensure_venv"]

_DONE = "repro-complete"
_TAIL_LINES = 20


def _interpreter(version: str) -> Path:
    """Find an interpreter of the version that the wheels were chosen for.

    Raises:
        HostError: `interpreter-absent`.
    """
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        return Path(sys.executable)
    if (found := shutil.which(f"python{version}")) is not None:
        return Path(found)
    raise HostError(
        "interpreter-absent",
        f"there is no Python {version} here, for which the wheels were locked",
        remedy=f"install python{version}, run in an image, or set `python` in repro.yaml and lock again",
    )


def _base(interpreter: Path) -> list[str]:
    """What an environment made by this interpreter stands on: full version and place."""
    script = "import sys; print(sys.version); print(sys.base_prefix)"
    said = subprocess.run([str(interpreter), "-I", "-c", script], check=True, capture_output=True, text=True)
    return said.stdout.splitlines()


@contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Let one process at a time make what lies at `folder`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _run(argv: list[str], environment: dict[str, str]) -> None:
    done = subprocess.run(
        argv, env=environment, capture_output=True, text=True, errors="replace", check=False
    )
    if done.returncode:
        tail = "\n  ".join((done.stdout + done.stderr).strip().splitlines()[-_TAIL_LINES:])
        raise BuildError(
            "venv-failed",
            f"the locked wheels could not be installed on this machine; the last lines were:\n  {tail}",
            where=argv[0],
            remedy="run in an image, or lock for this machine's Python and platform",
        )


def _install(plan: BuildPlan, cache: Cache, interpreter: Path, folder: Path) -> None:
    """Make the environment in its final place: scripts hold its path."""
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="wheels-") as name:
        wheels = Path(name)
        for wheel in (plan.pip, *plan.wheels):
            held = cache.path(wheel.digest)
            if held is None:
                raise BuildError(
                    "wheel-absent",
                    f"the cache does not hold {wheel.path}",
                    where=wheel.digest,
                    remedy="fetch the locked wheels again with `repro lock`",
                )
            (wheels / wheel.path).symlink_to(held)
        (wheels / "requirements.txt").write_bytes(requirements_text(plan.wheels))
        environment = {"PATH": os.defpath, "HOME": name, "LANG": "C.UTF-8", "PIP_CONFIG_FILE": os.devnull}
        _run([str(interpreter), "-I", "-m", "venv", "--without-pip", str(folder)], environment)
        _run(
            [
                *(
                    str(interpreter),
                    str(wheels / plan.pip.path / "pip"),
                    "--python",
                    str(folder / "bin" / "python"),
                ),
                *("install", "--disable-pip-version-check", "--no-input", "--no-cache-dir", "--no-index"),
                *("--root-user-action=ignore", "--find-links", name, "--require-hashes", "--no-deps"),
                *("-r", str(wheels / "requirements.txt")),
            ],
            environment,
        )


def ensure_venv(plan: BuildPlan, *, cache: Cache, progress: Progress) -> Path:
    """Return the environment of a plan's wheels, made now if this machine has none.

    Raises:
        HostError: `interpreter-absent`.
        BuildError: `wheel-absent` or `venv-failed`.
    """
    interpreter = _interpreter(plan.python)
    key = [*_base(interpreter), plan.pip.digest, *(wheel.digest for wheel in plan.wheels)]
    folder = cache.folder / "venvs" / hex_of(digest_json(key))[:24]
    with _alone(folder):
        if (folder / _DONE).exists():
            return folder
        shutil.rmtree(folder, ignore_errors=True)
        progress.start("installing the locked packages on this machine")
        try:
            _install(plan, cache, interpreter, folder)
        except BaseException:
            shutil.rmtree(folder, ignore_errors=True)
            raise
        (folder / _DONE).touch()
    return folder
