"""`Runtime` in containers: no network, nothing writable but what is mounted so, nothing left behind."""

from __future__ import annotations

import os
import queue
import re
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from docker.errors import APIError, DockerException, NotFound

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_errors import speaking_to
from repro.adapters.docker_options import OWNER, USER, container_options, owner
from repro.adapters.interrupts import sigterm_interrupts
from repro.adapters.lines import TAIL_LINES, Lines
from repro.errors import EngineError, ReproError
from repro.job import Job, JobResult, Mount
from repro.ports import OnLine

__all__ = ["DockerRuntime"]

_GRACE_SECONDS = 3
_DRAIN_SECONDS = 10.0
_STOPPING_SECONDS = 2.0
_KILLED = (137, 143)
_INIT_FAILURE = re.compile(r"^\[FATAL tini \(\d+\)\] exec (.*) failed: (.*)$")
"""What the engine's init says where the command cannot be started; it then exits with 126 or 127."""

_NOT_FOUND, _NOT_PERMITTED = 127, 126


def _orphaned(name: str) -> bool:
    """Whether the owner of this name lived where we live, and is dead."""
    ours = owner()
    place, _, pid = name.rpartition("/")
    if ours is None or place != ours.rpartition("/")[0] or not pid.isdigit():
        return False
    return not Path(f"/proc/{pid}").exists()


def _open_to_user(mounts: tuple[Mount, ...]) -> None:
    """As root, give writable folders to the user the job runs as."""
    if os.getuid() != 0:
        return
    for mount in mounts:
        if mount.writable:
            top = Path(mount.source)
            for path in (top, *top.rglob("*")):
                os.chown(path, USER, USER, follow_symlinks=False)


class DockerRuntime:
    """Runs jobs in containers of one engine."""

    kind = "image"

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._client = engine.client

    def run(self, job: Job, *, on_line: OnLine) -> JobResult:
        """Run to the end. The container is gone when this returns or raises.

        Raises:
            EngineError: `image-absent`, `engine-gone`, `disk-full`, `gpu-toolkit-absent`, `gpu-unsupported`,
                `group-absent`, `init-absent` or `limit-refused`.
            HostError: `device-absent` or `gpu-driver-absent`.
            RunError: `mount-absent`.
        """
        info = self._engine.info()
        self._sweep()
        held = self._engine.find(job.image) if job.image is not None else None
        if held is None:
            raise EngineError(
                "image-absent",
                "the engine does not hold the image of this job",
                where=job.image,
                remedy="build it with `repro build`",
            )
        options = container_options(job, info)
        if not info.rootless:
            _open_to_user(job.mounts)
        with sigterm_interrupts():
            return self._run(held.id, options, job, on_line)

    def _sweep(self) -> None:
        """Remove containers of processes of ours that were killed before they could."""
        with speaking_to(self._client, "looking for left-over containers"):
            for container in self._client.api.containers(all=True, filters={"label": OWNER}):
                if _orphaned(container["Labels"][OWNER]):
                    self._remove(container["Id"])

    def _run(self, image: str, options: dict[str, Any], job: Job, on_line: OnLine) -> JobResult:
        try:
            with speaking_to(self._client, "creating the container"):
                self._client.containers.create(image, **options)
            running = _Running(self._client, options["name"])
            try:
                return running.follow(job, on_line)
            finally:
                running.close()
        finally:
            self._remove(options["name"])

    def _remove(self, container: str) -> None:
        with suppress(NotFound, ReproError), speaking_to(self._client, "removing the container"):
            self._client.api.remove_container(container, force=True, v=True)


class _Running:
    """One container from its start to its end. Two threads listen; the caller's own thread decides."""

    def __init__(self, client: Any, name: str) -> None:
        self._client = client
        self._name = name
        self._events: queue.SimpleQueue[tuple[str, Any]] = queue.SimpleQueue()
        self._lines = (Lines(), Lines())
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)
        self._output: Any = None
        self._threads: list[threading.Thread] = []

    def close(self) -> None:
        """Stop listening."""
        if self._output is None:
            return
        with suppress(DockerException, OSError):
            self._output.close()  # shuts the socket down, so that its reader ends
        self._threads[0].join(_DRAIN_SECONDS)
        self._output._response.close()  # and only this lets the socket go

    def _listen(self, event: str, work: Callable[[], Any]) -> None:
        def body() -> None:
            try:
                self._events.put((event, work()))
            except Exception as error:  # noqa: BLE001 - handed to the thread that waits
                self._events.put(("broken", error))

        thread = threading.Thread(target=body, daemon=True)
        thread.start()
        self._threads.append(thread)

    def _read_output(self) -> None:
        assert self._output is not None
        for chunk in self._output:
            self._events.put(("output", chunk))

    def follow(self, job: Job, on_line: OnLine) -> JobResult:
        """Start, relay output, and stop at the time limit."""
        with speaking_to(self._client, "listening to the container"):
            self._output = self._client.api.attach(self._name, stream=True, logs=True, demux=True)
        self._listen("silent", self._read_output)
        started = time.monotonic()
        if (refused := self._start(job)) is not None:
            on_line(refused.tail[-1])
            return refused
        self._listen("ended", lambda: self._client.api.wait(self._name, timeout=None))
        timed_out = not self._relay(started + job.timeout_s, on_line)
        if timed_out:
            with speaking_to(self._client, "stopping the container"):
                self._client.api.stop(self._name, timeout=_GRACE_SECONDS)
        seconds = time.monotonic() - started
        self._drain(on_line)
        return self._result(timed_out, seconds)

    def _start(self, job: Job) -> JobResult | None:
        """Start; return a result at once where the command itself cannot be started."""
        with speaking_to(self._client, "starting the container"):
            try:
                self._client.api.start(self._name)
            except APIError as error:
                said = str(error.explanation or error).lower()
                if "executable file not found" in said or (
                    f'exec: "{job.argv[0].lower()}"' in said and "no such file" in said
                ):
                    return _not_started(_NOT_FOUND, f"{job.argv[0]}: command not found in the image")
                if "permission denied" in said and "exec" in said:
                    return _not_started(_NOT_PERMITTED, f"{job.argv[0]}: not an executable file")
                raise
        return None

    def _relay(self, deadline: float, on_line: OnLine) -> bool:
        """Relay output until the container ended (true) or the deadline passed (false)."""
        while (left := deadline - time.monotonic()) > 0:
            try:
                event, value = self._events.get(timeout=left)
            except queue.Empty:
                return False
            if event == "broken":
                with speaking_to(self._client, "waiting for the container"):
                    raise value
            if event == "ended":
                return True
            self._take(event, value, on_line)
        return False

    def _take(self, event: str, value: Any, on_line: OnLine) -> None:
        """Relay a piece of output: a pair of bytes or None, from stdout and from stderr."""
        if event == "output":
            for lines, data in zip(self._lines, value, strict=True):
                for line in lines.feed(data or b""):
                    self._say(line, on_line)

    def _say(self, line: str, on_line: OnLine) -> None:
        line = _INIT_FAILURE.sub(r"\1: \2", line)
        self._tail.append(line)
        on_line(line)

    def _drain(self, on_line: OnLine) -> None:
        """Relay what was said before the end."""
        self._threads[0].join(_DRAIN_SECONDS)
        with suppress(queue.Empty):
            while True:
                self._take(*self._events.get_nowait(), on_line)
        for lines in self._lines:
            for line in lines.close():
                self._say(line, on_line)

    def _result(self, timed_out: bool, seconds: float) -> JobResult:
        with speaking_to(self._client, "asking how the container ended"):
            state = self._client.api.inspect_container(self._name)["State"]
            if state["ExitCode"] in _KILLED and not timed_out and not state.get("OOMKilled"):
                self._outlive_engine()
        ended: Literal["exited", "timeout", "oom"] = "oom" if state.get("OOMKilled") else "exited"
        return JobResult(
            exit_code=state["ExitCode"],
            ended="timeout" if timed_out else ended,
            seconds=seconds,
            tail=tuple(self._tail),
        )

    def _outlive_engine(self) -> None:
        """Make sure that the engine stays: one that stops kills its containers first."""
        deadline = time.monotonic() + _STOPPING_SECONDS
        while time.monotonic() < deadline:
            self._client.ping()
            time.sleep(_STOPPING_SECONDS / 10)


def _not_started(code: int, reason: str) -> JobResult:
    return JobResult(exit_code=code, ended="exited", seconds=0.0, tail=(reason,))
