"""Build by BuildKit, through the docker command: quicker than the classic builder, with the same result.

The command gets an environment and a configuration of its own, so that no proxy, credential or builder of
the person's reaches the build. What BuildKit caches on the way is removed afterwards.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from docker.errors import DockerException

from repro.adapters.docker_errors import known
from repro.adapters.interrupts import sigterm_interrupts
from repro.errors import BuildError, EngineError
from repro.ports import OnLine

__all__ = ["build_by_buildkit", "cache_removed", "command_line"]

_TAIL_LINES = 20
_STEP = re.compile(r"^#(\d+) (\[.+)$")
_SAID = re.compile(r"^#(\d+) \d+\.\d+ (.*)$")
_FAILED = re.compile(r"^#(\d+) ERROR: (.*)$")
_LAST_OWN_BUILDKIT = 22
"""Up to this version the docker command speaks BuildKit itself; later ones leave it to the plugin buildx."""

_GRACE_SECONDS = 15


def _environment(host: str, folder: Path) -> dict[str, str]:
    """What the docker command gets: where the engine is, and of the person's own only their plugins."""
    theirs = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "cli-plugins"
    if theirs.is_dir():
        (folder / "cli-plugins").symlink_to(theirs)
    names = ("PATH", "HOME", "DOCKER_CERT_PATH", "DOCKER_TLS_VERIFY")
    kept = {name: os.environ[name] for name in names if name in os.environ}
    return {
        **kept,
        "BUILDX_NO_DEFAULT_ATTESTATIONS": "1",
        "DOCKER_BUILDKIT": "1",
        "DOCKER_CONFIG": str(folder),
        "DOCKER_HOST": host,
        "LC_ALL": "C.UTF-8",
    }


def _answer(words: Sequence[str], environment: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            words, env=dict(environment), capture_output=True, text=True, timeout=60, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def command_line(environment: Mapping[str, str]) -> list[str]:
    """Return the words that start a build by BuildKit here.

    Raises:
        EngineError: `buildkit-absent`.
    """
    if shutil.which("docker", path=environment.get("PATH")) is None:
        raise _absent("there is no docker command")
    if _answer(["docker", "buildx", "version"], environment) is not None:
        return ["docker", "buildx", "build", "--builder", "default", "--load"]
    version = _answer(["docker", "version", "--format", "{{.Client.Version}}"], environment) or ""
    if (major := version.partition(".")[0]).isdigit() and int(major) <= _LAST_OWN_BUILDKIT:
        return ["docker", "build"]
    raise _absent(f"the docker command {version or 'here'} has no plugin buildx")


def _absent(why: str) -> EngineError:
    return EngineError(
        "buildkit-absent",
        f"BuildKit cannot be used: {why}",
        remedy="install docker's plugin buildx, or build without `--builder buildkit`: the image is the same",
    )


@contextmanager
def cache_removed(client: Any) -> Iterator[None]:
    """Remove from BuildKit's cache, at the end, what was not there at the start."""
    before = _cached(client)
    try:
        yield
    finally:
        left = _cached(client) - before
        while left:  # an entry goes once nothing is built on it
            for entry in sorted(left):
                with suppress(DockerException, OSError):
                    client.api.prune_builds(filters={"id": [entry]}, all=True)
            stay = left & _cached(client)
            left = stay if stay != left else set()


def _cached(client: Any) -> set[str]:
    try:
        return {entry["ID"] for entry in client.api.df().get("BuildCache") or ()}
    except (DockerException, OSError):
        return set()


class _Following:
    """Reads BuildKit's plain progress: the steps by number, what each says, which one failed."""

    def __init__(self, on_line: OnLine) -> None:
        self._on_line = on_line
        self._steps: dict[str, str] = {}
        self._tails: dict[str, deque[str]] = {}
        self._failed: tuple[str, str] | None = None
        self._last = ""

    def take(self, line: str) -> None:
        """Read one line."""
        if found := _FAILED.match(line):
            self._failed = (found[1], found[2])
        elif found := _STEP.match(line):
            if found[1] not in self._steps:
                line = f"Step {found[2]}"
            self._steps.setdefault(found[1], found[2])
        elif found := _SAID.match(line):
            self._tails.setdefault(found[1], deque(maxlen=_TAIL_LINES)).append(found[2])
        self._last = line.strip() or self._last
        self._on_line(line)

    def failure(self) -> Exception:
        """Say which step failed, with its last lines."""
        number, said = self._failed or ("", self._last)
        step = self._steps.get(number, "the build")
        if (error := known(said, step)) is not None:
            return error
        tail = "".join(f"\n  {line}" for line in self._tails.get(number, ()))
        return BuildError(
            "build-failed",
            f"{said.strip()}{'; its last lines were:' + tail if tail else ''}",
            where=step,
            remedy="mend that step of the Dockerfile; a build has no network, everything comes from the lock",
        )


def _feed(process: subprocess.Popen[bytes], context: Iterator[bytes], broken: list[BaseException]) -> None:
    assert process.stdin is not None
    try:
        with process.stdin as stream:
            for chunk in context:
                stream.write(chunk)
    except BrokenPipeError:
        return  # the command ended first, and says why
    except BaseException as error:  # noqa: BLE001 - raised again where the build is waited for
        broken.append(error)
        process.terminate()


def build_by_buildkit(
    host: str, context: Iterator[bytes], *, arguments: Mapping[str, str], on_line: OnLine, tag: str
) -> None:
    """Build an image from a tar, with no network and no cache.

    Args:
        host: address of the engine.
        arguments: of the build; its base is named by a tag, since BuildKit knows no ids.
        tag: what the engine is to name the image by.

    Raises:
        BuildError: `build-failed`, with the step and its last lines.
        EngineError: `buildkit-absent`.
    """
    with tempfile.TemporaryDirectory(prefix="repro-buildkit-") as name, sigterm_interrupts():
        environment = _environment(host, Path(name))
        words = [*command_line(environment), "--network", "none", "--no-cache", "--progress", "plain"]
        words += ["--tag", tag]
        for key, value in arguments.items():
            words += ["--build-arg", f"{key}={value}"]
        following = _Following(on_line)
        if _run([*words, "-"], environment, context, following) != 0:
            raise following.failure()


def _run(
    words: list[str], environment: Mapping[str, str], context: Iterator[bytes], following: _Following
) -> int:
    broken: list[BaseException] = []
    with subprocess.Popen(
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=dict(environment),
        start_new_session=True,  # Ctrl-C is ours: we pass it on and wait
    ) as process:
        feeder = threading.Thread(target=_feed, args=(process, context, broken), daemon=True)
        feeder.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                following.take(line.decode(errors="replace").rstrip())
            code = process.wait()
        except BaseException:
            process.send_signal(signal.SIGINT)
            try:
                process.wait(_GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
            raise
        finally:
            feeder.join()
    if broken:
        raise broken[0]
    return code
