"""The private tool environment: one pinned pip and pip-tools, whatever the machine has."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from packaging.utils import parse_wheel_filename

from repro.adapters.cache import FileCache
from repro.adapters.pip.failure import DISK_FULL, disk_full, redact
from repro.digest import digest_bytes, hex_of
from repro.errors import LockError
from repro.lock import PackageFile
from repro.ports import Progress

__all__ = ["Tools"]

OnEvent = Callable[[Mapping[str, Any]], None]

_HERE = Path(__file__).parent
_PINS = (_HERE / "tools.txt").read_text(encoding="utf-8")
_SHIM = _HERE / "shim.py"


def _version(name: str) -> str:
    match = re.search(rf"^{name}==(\S+)", _PINS, re.MULTILINE)
    assert match is not None, name
    return match[1]


class Tools:
    """Makes the tool environment once per cache and Python, and runs requests in it.

    Args:
        cache: holds the environment and pip's own wheel.
    """

    versions: Mapping[str, str] = {"pip": _version("pip"), "pip-tools": _version("pip-tools")}

    def __init__(self, cache: FileCache) -> None:
        self.cache = cache
        python = f"{sys.implementation.cache_tag}"
        self.folder = cache.folder / "tools" / f"{python}-{hex_of(digest_bytes(_PINS.encode()))[:16]}"

    def prepare(self, progress: Progress) -> None:
        """Make the environment where it is not there yet.

        Raises:
            LockError: kind `tools-unavailable`.
            FileError: kind `disk-full`.
        """
        if self.folder.is_dir():
            return
        progress.start(f"fetch pip {self.versions['pip']} and pip-tools {self.versions['pip-tools']}")
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        made = Path(tempfile.mkdtemp(dir=self.folder.parent, prefix=".making-"))
        try:
            (made / "tools.txt").write_text(_PINS, encoding="utf-8")
            request = {
                "cache": str(self.cache.folder),
                "lib": str(made / "lib"),
                "requirements": str(made / "tools.txt"),
                "wheels": str(made / "wheels"),
            }
            code, said = self._call("-", "prepare", request, made, lambda _: None)
            if code and DISK_FULL in said:
                raise disk_full(str(self.cache.folder))
            if code:
                raise LockError(
                    "tools-unavailable",
                    f"pip {self.versions['pip']} and pip-tools {self.versions['pip-tools']}, which resolve "
                    f"packages, could not be fetched: {_tail(said)}",
                    remedy="let pip's default index be reached once, or point pip at a mirror of it",
                )
            try:
                made.rename(self.folder)
            except OSError:
                if not self.folder.is_dir():
                    raise
        finally:
            shutil.rmtree(made, ignore_errors=True)

    def pip_wheel(self) -> PackageFile:
        """Return pip's own wheel, held in the cache."""
        (wheel,) = (self.folder / "wheels").glob("pip-*.whl")
        name, version, _, _ = parse_wheel_filename(wheel.name)
        return PackageFile(
            name=name,
            version=str(version),
            filename=wheel.name,
            size=wheel.stat().st_size,
            digest=self.cache.add(wheel),
            index="default",
            hash_source="published",
        )

    def run(
        self, command: str, request: Mapping[str, Any], folder: Path, on_event: OnEvent
    ) -> tuple[int, str]:
        """Carry out a request in `folder`; return the exit status and what was said, without secrets."""
        return self._call(str(self.folder / "lib"), command, request, folder, on_event)

    def _call(
        self, lib: str, command: str, request: Mapping[str, Any], folder: Path, on_event: OnEvent
    ) -> tuple[int, str]:
        request_file = folder / f".{command}.json"
        request_file.touch(0o600)
        request_file.write_text(json.dumps(request), encoding="utf-8")
        isolation = ["-I"] if lib == "-" else ["-I", "-S"]
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYTHON")}
        environment |= {"LC_ALL": "C.UTF-8", "NO_COLOR": "1"}
        process = subprocess.Popen(
            [sys.executable, *isolation, str(_SHIM), lib, command, str(request_file)],
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        assert process.stdout is not None
        said: list[str] = []
        try:
            with process.stdout as lines:
                for raw in lines:
                    line = raw.decode("utf-8", "replace").rstrip("\n")
                    if line.startswith("@{"):
                        on_event(json.loads(line[1:]))
                    else:
                        said.append(redact(line))
            return process.wait(), "\n".join(said)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()


def _tail(said: str) -> str:
    lines = [line for line in said.splitlines() if line.strip()]
    return lines[-1] if lines else "no reason was given"
