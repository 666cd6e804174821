"""Places and times that nobody planned for: odd paths, read-only folders, two at once, a wrong clock."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.e2e.e2e_world import ENTRY, repro, succeed
from tests.faults.disk import small_disk
from tests.faults.faults_world import Tiny, captured_tiny, tiny_in

ODD_NAMES = [
    "with spaces",
    "mit Umlauten äöü",
    "日本語",
    "a\nnew line",
    "-dash",
    'quote\'s "both"',
    "$HOME;#%41",
]


def _sequence(tiny: Tiny) -> int:
    return int(json.loads((tiny.run / "manifest.json").read_bytes())["sequence"])


def _start(*arguments: str | Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", ENTRY, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def two_captures_at_once(folder: Path) -> str:
    """Both end well, one after the other in number, and what stays is whole."""
    tiny = captured_tiny(folder)
    before = _sequence(tiny)
    capture = ("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host")
    for process in [_start(*capture), _start(*capture)]:
        _, said = process.communicate(timeout=600)
        assert process.returncode == 0, said
    assert _sequence(tiny) == before + 2
    succeed("verify", tiny.run, "--trust", tiny.trust)
    return f"sequence {before}, then {_sequence(tiny)}"


def odd_paths(folder: Path) -> str:
    """A project lives, is captured, verified and replayed below every odd name."""
    parent = folder / ODD_NAMES[0]
    parent.mkdir()
    tiny = captured_tiny(parent)
    for name in ODD_NAMES[1:]:
        moved = folder / name
        shutil.move(tiny.project.parent, moved)
        tiny = tiny_in(moved)
        succeed("lock", "--check", "-C", tiny.project)
        succeed("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host")
        succeed("verify", tiny.run, "--trust", tiny.trust)
        succeed("replay", tiny.run, "--trust", tiny.trust, "-C", tiny.project, "--runtime", "host")
    return f"{len(ODD_NAMES)} names"


def read_only_project(folder: Path) -> str:
    """What only reads goes on; what writes says where it may not."""
    with small_disk(folder / "disk", "64m") as disk:
        (disk / "here").mkdir()
        tiny = captured_tiny(disk / "here")
        subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
        succeed("lock", "--check", "-C", tiny.project)
        succeed("verify", tiny.run, "--trust", tiny.trust)
        succeed("replay", tiny.run, "--trust", tiny.trust, "-C", tiny.project, "--runtime", "host")
        refused = []
        for command in (
            ("lock", "--upgrade", "-C", tiny.project),
            ("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host"),
            ("sign", tiny.run, "--key", tiny.second_key),
        ):
            result = repro(*command)
            assert result.returncode == 1, command
            assert "error[permission-denied]" in result.stderr, result.stderr
            assert "Traceback" not in result.stderr
            refused.append(str(command[0]))
    return f"{', '.join(refused)} refused by name"


def clock_set_back(folder: Path) -> str:
    """A run signed by a clock that is years behind still counts on from the run before it."""
    tiny = captured_tiny(folder)
    before = _sequence(tiny)
    back = {"LD_PRELOAD": str(faketime_library()), "FAKETIME": "@2020-01-01 00:00:00"}
    capture = ("capture", "-C", tiny.project, "--key", tiny.key, "--runtime", "host")
    result = repro(*capture, **back)
    assert result.returncode == 0, result.stderr
    assert _sequence(tiny) == before + 1
    verified = repro("verify", tiny.run, "--trust", tiny.trust, "--json")
    assert verified.returncode in (0, 3), verified.stderr
    return f"sequence {_sequence(tiny)}; verify answers {verified.returncode}"


def faketime_library() -> Path | None:
    """The library that shows a process another time, where it is installed."""
    found = sorted(Path("/usr/lib").glob("*/faketime/libfaketime.so.1"))
    return found[0] if found else None


def oddities() -> dict[str, Callable[[Path], str]]:
    """Those that this machine can provoke."""
    found: dict[str, Callable[[Path], str]] = {
        "two captures at once": two_captures_at_once,
        "odd paths": odd_paths,
    }
    if os.getuid() == 0:
        found["read-only project"] = read_only_project
    if faketime_library() is not None:
        found["clock set back"] = clock_set_back
    return found
