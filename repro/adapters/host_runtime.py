"""`Runtime` on this machine itself, for where there is no engine: the locked packages, a private folder.

What holds: the packages are the locked ones; the environment is the job's own; the whole process
tree ends with the job; the network is taken away where the kernel lets us, and the result says
whether it was. What does not: the machine's files stay visible, the memory limit is not enforced,
and the operating system is not the image's.

Mounts become a private tree: files of up to 16 MiB are copied, read-only; larger ones and folders
are linked. In the command and in the environment, paths of that tree stand in for those of an image.
"""

from __future__ import annotations

import json
import os
import re
import selectors
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from pathlib import Path
from typing import Literal

from repro.adapters import supervise
from repro.adapters.interrupts import sigterm_interrupts
from repro.adapters.lines import TAIL_LINES, Lines
from repro.adapters.venv import ensure_venv
from repro.image import BuildPlan
from repro.job import Job, JobResult, Mount
from repro.ports import Cache, OnLine, Progress

__all__ = ["HostRuntime"]

TMP = "/tmp"  # noqa: S108 - the job's, below its private tree

_COPY_BYTES = 16 << 20
_GRACE_SECONDS = 3.0
_READ_BYTES = 1 << 16
_SYSTEM_PATH = "/usr/local/bin:/usr/bin:/bin"


class _Tree:
    """A private folder that stands in for the image's root."""

    def __init__(self, root: Path, job: Job) -> None:
        self.root = root
        for mount in sorted(job.mounts, key=lambda mount: mount.target):
            self._place(mount)
        for folder in (job.workdir, TMP):
            self.path(folder).mkdir(parents=True, exist_ok=True)
        targets = sorted({job.workdir, TMP, *(mount.target for mount in job.mounts)}, key=len, reverse=True)
        self._targets = re.compile(rf"(^|[=:,])({'|'.join(map(re.escape, targets))})(?=$|[/:,])")

    def path(self, inside: str) -> Path:
        """Where a path of the image lies."""
        return self.root / inside.lstrip("/")

    def _place(self, mount: Mount) -> None:
        source, place = Path(mount.source), self.path(mount.target)
        place.parent.mkdir(parents=True, exist_ok=True)
        if mount.writable or source.is_dir() or source.stat().st_size > _COPY_BYTES:
            place.symlink_to(source)
        else:
            shutil.copyfile(source, place)
            place.chmod(0o555 if source.stat().st_mode & 0o100 else 0o444)

    def translate(self, text: str) -> str:
        """Put paths of the tree in place of paths of the image: whole text, or after `=`, `:` or a comma."""
        return self._targets.sub(lambda found: f"{found[1]}{self.path(found[2])}", text)


class HostRuntime:
    """Runs jobs in a virtual environment of the plan's wheels."""

    kind = "host"

    def __init__(self, plan: BuildPlan, *, cache: Cache, progress: Progress) -> None:
        self._plan = plan
        self._cache = cache
        self._progress = progress

    def run(self, job: Job, *, on_line: OnLine) -> JobResult:
        """Run to the end. The whole process tree is gone when this returns or raises.

        Raises:
            HostError: `interpreter-absent`.
            BuildError: `wheel-absent` or `venv-failed`.
        """
        environment = ensure_venv(self._plan, cache=self._cache, progress=self._progress)
        scratch = self._cache.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=scratch, prefix="host-") as name, sigterm_interrupts():
            tree = _Tree(Path(name), job)
            variables = {
                "PATH": f"{environment}/bin:{_SYSTEM_PATH}",
                **{key: tree.translate(value) for key, value in job.environment.items()},
                "TMPDIR": str(tree.path(TMP)),
            }
            order = {
                "argv": [tree.translate(word) for word in job.argv],
                "cwd": str(tree.path(job.workdir)),
                "environment": variables,
                "open_files": job.limits.open_files,
                "grace_s": _GRACE_SECONDS,
            }
            return _Running(order).follow(job.timeout_s, on_line)


class _Running:
    """One supervised command from its start to its end."""

    def __init__(self, order: dict[str, object]) -> None:
        report, self._report = os.pipe()
        self._reading = os.fdopen(report, encoding="ascii")
        self._process = subprocess.Popen(
            [sys.executable, "-I", supervise.__file__, json.dumps(order), str(self._report)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            pass_fds=[self._report],
            start_new_session=True,
            env={},
        )
        os.close(self._report)
        self._tail: deque[str] = deque(maxlen=TAIL_LINES)

    def follow(self, timeout_s: float, on_line: OnLine) -> JobResult:
        """Relay output until the command ends or the time is up."""
        started = time.monotonic()
        with self._process, self._reading:
            try:
                timed_out = not self._relay(started + timeout_s, on_line)
                if timed_out:
                    self._process.terminate()
                    self._relay(time.monotonic() + 4 * _GRACE_SECONDS, on_line)
                code = self._process.wait()
                network = self._network()
            finally:
                self._stop()
        return JobResult(
            exit_code=code,
            ended="timeout" if timed_out else "exited",
            seconds=time.monotonic() - started,
            network=network,
            tail=tuple(self._tail),
        )

    def _network(self) -> Literal["none", "host"]:
        said = self._reading.readline()
        return "none" if said and json.loads(said)["network"] == "none" else "host"

    def _relay(self, deadline: float, on_line: OnLine) -> bool:
        """Relay output to its end (true) or until the deadline (false)."""
        with selectors.DefaultSelector() as selector:
            for stream in (self._process.stdout, self._process.stderr):
                assert stream is not None
                if not stream.closed:
                    selector.register(stream, selectors.EVENT_READ, Lines())
            while selector.get_map():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                for key, _ in selector.select(left):
                    self._read(selector, key, on_line)
        return True

    def _read(self, selector: selectors.BaseSelector, key: selectors.SelectorKey, on_line: OnLine) -> None:
        data = os.read(key.fd, _READ_BYTES)
        if not data:
            selector.unregister(key.fileobj)
        for line in key.data.feed(data) if data else key.data.close():
            self._tail.append(line)
            on_line(line)

    def _stop(self) -> None:
        """End what still runs, whatever brought us here."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(4 * _GRACE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
