"""Follow a classic build, by Docker or by Podman, and remove what it made beside the image."""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Iterable, Mapping
from typing import Any, Self

from docker.errors import DockerException, ImageNotFound

from repro.adapters.docker_errors import known
from repro.errors import BuildError, ReproError
from repro.ports import OnLine

__all__ = ["Following", "Leftovers", "with_prefix"]

_TAIL_LINES = 20
_STEP = re.compile(r"^(\[\d+/\d+\] )?step (\d.*)$", re.IGNORECASE)
_MADE = re.compile(r"^ ?---?> ([0-9a-f]{11,64})$")
_APT_GONE = re.compile(r"E: Version '([^']+)' for '([^']+)' was not found")
_SETTLE_SECONDS = 15.0
_PAUSE_SECONDS = 0.2
_QUIET_POLLS = 5


def with_prefix(image: str) -> str:
    """Return an image id in its long form: Podman and old streams leave the algorithm out."""
    return image if image.startswith("sha256:") else f"sha256:{image}"


class Following:
    """Reads a build's stream: which images it made, what the current step says, how it ended."""

    def __init__(self, on_line: OnLine) -> None:
        self.made: list[str] = []
        self.failed = False
        self._on_line = on_line
        self._step = "sending the build context"
        self._tail: deque[str] = deque(maxlen=_TAIL_LINES)
        self._image: str | None = None

    def take(self, item: Mapping[str, Any]) -> None:
        """Read one item of the stream.

        Raises:
            ReproError: the build failed.
        """
        if said := item.get("error"):
            self.failed = True
            raise self._failure(str(said))
        if image := (item.get("aux") or {}).get("ID"):
            self._image = with_prefix(image)
        for line in str(item.get("stream") or "").splitlines():
            self._take_line(line)

    def _take_line(self, line: str) -> None:
        if step := _STEP.match(line):
            line = self._step = f"Step {step[1] or ''}{step[2]}"
            self._tail.clear()
        elif found := _MADE.match(line):
            self.made.append(found[1])
        elif line.strip():
            self._tail.append(line)
        self._on_line(line)

    def _failure(self, said: str) -> ReproError:
        tail = "".join(f"\n  {line}" for line in self._tail)
        if (error := known(said, self._step)) is not None:
            return error
        if gone := _APT_GONE.findall("\n".join(self._tail)):
            return BuildError(
                "apt-version-gone",
                f"the archive no longer has {', '.join(f'{name}={version}' for version, name in gone)}",
                where=self._step,
                remedy="name a snapshot of the archive as of the day of the lock, or put the packages into "
                "the base image, which is locked by digest",
            )
        return BuildError(
            "build-failed",
            f"{said.strip()}{'; its last lines were:' + tail if tail else ''}",
            where=self._step,
            remedy="mend that step of the Dockerfile; a build has no network, everything comes from the lock",
        )

    def image(self) -> str:
        """The engine's id of what was built."""
        if self._image is None:
            raise BuildError("build-failed", "the engine built nothing and said no reason", where=self._step)
        return self._image


class Leftovers:
    """Removes, at its end, every image a build made but `wanted`, and those that `wanted` stands on.

    The builder keeps the image of every step. When we leave early it ends its current step, so that
    one image may appear that its stream never told of: a child of the last one it did, or of a base.
    """

    def __init__(self, client: Any, following: Following, bases: Iterable[str]) -> None:
        self._api = client.api
        self._following = following
        self._bases = tuple(bases)
        self.wanted: str | None = None

    def __enter__(self) -> Self:
        self._before = self._images()
        return self

    def __exit__(self, *_: object) -> None:
        try:
            if self.wanted is None and not self._following.failed:
                self._settle()
            self._discard()
        except (DockerException, OSError):
            return  # the engine is gone, and the reason why is on its way up

    def _images(self) -> set[str]:
        return set(self._api.images(quiet=True, all=True))

    def _working(self) -> bool:
        """Whether a container stands on an image of this build."""
        made = tuple(with_prefix(short) for short in self._following.made)
        return any(container["ImageID"].startswith(made) for container in self._api.containers(all=True))

    def _settle(self) -> None:
        """Wait until the builder has ended its current step: no container of its own for a while."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        quiet = 0
        while quiet < _QUIET_POLLS and time.monotonic() < deadline:
            quiet = 0 if self._working() else quiet + 1
            time.sleep(_PAUSE_SECONDS)

    def _ours(self) -> set[str]:
        new = self._images() - self._before
        made = tuple(with_prefix(short) for short in self._following.made)
        told = {image for image in new if image.startswith(made)}
        parents = made + self._bases
        untold = {image for image in new - told if self._parent(image).startswith(parents)}
        return told | untold

    def _parent(self, image: str) -> str:
        try:
            parent = self._api.inspect_image(image).get("Parent")
            return with_prefix(parent) if parent else ""
        except ImageNotFound:
            return ""

    def _discard(self) -> None:
        """Remove children before parents: again and again, as long as one goes."""
        left = self._ours() - {self.wanted}
        while removed := {image for image in left if self._remove(image)}:
            left -= removed

    def _remove(self, image: str) -> bool:
        try:
            self._api.remove_image(image, noprune=True)
        except ImageNotFound:
            return True
        except (DockerException, OSError):
            return False
        return True
