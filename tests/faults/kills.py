"""`kill -9` at a random moment of a command, again and again, on one project that is never cleaned up.

After every kill nothing may be torn: what lies there is what lay there before or what the command makes.
Every few kills the command runs to its end over whatever its dead predecessors left behind.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tests.e2e.e2e_world import ENTRY, ROOT, repro, succeed
from tests.faults.faults_world import Tiny

ORPHANS_END_WITHIN_S = 20.0


@dataclass(slots=True)
class Tally:
    """What came of the kills of one command."""

    command: str
    kills: int = 0
    finished_first: int = 0
    """Runs that had ended before their moment came."""
    completions: int = 0
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Case:
    """A command, and what has to hold whenever it was killed."""

    name: str
    arguments: tuple[str | Path, ...]
    whole: Callable[[], str | None]
    """What is torn or lost, in words; None where all is well."""


def _below(pid: int) -> list[int]:
    """Every process that came of this one, by the kernel's table."""
    found: list[int] = []
    for tasks in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            children = [int(child) for child in tasks.read_text().split()]
        except OSError:
            continue
        for child in children:
            found += [child, *_below(child)]
    return found


def _end_of_orphans(pids: Sequence[int]) -> list[int]:
    """Wait for processes whose parent was killed; return those that stay."""
    deadline = time.monotonic() + ORPHANS_END_WITHIN_S
    while left := [pid for pid in pids if Path(f"/proc/{pid}").exists() and not _zombie(pid)]:
        if time.monotonic() > deadline:
            return left
        time.sleep(0.05)
    return []


def _zombie(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0] == "Z"
    except (OSError, IndexError):
        return True


def _kill(case: Case, after_s: float, tally: Tally) -> None:
    command = [sys.executable, "-c", ENTRY, *map(str, case.arguments)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **quiet) as process:  # type: ignore[call-overload]
        try:
            process.wait(after_s)
        except subprocess.TimeoutExpired:
            below = _below(process.pid)
            os.kill(process.pid, signal.SIGKILL)
            process.wait()
            tally.kills += 1
            if left := _end_of_orphans(below):
                tally.faults.append(f"killed after {after_s:.2f} s: processes {left} live on")
        else:
            tally.finished_first += 1
    if (fault := case.whole()) is not None:
        tally.faults.append(f"killed after {after_s:.2f} s: {fault}")


def _goes_on(case: Case, tally: Tally) -> None:
    """Run the command to its end over what dead predecessors left behind."""
    result = repro(*case.arguments)
    tally.completions += 1
    if result.returncode != 0:
        tally.faults.append(f"the next run did not go on: {result.stdout[-300:]}{result.stderr[-300:]}")
    elif (fault := case.whole()) is not None:
        tally.faults.append(f"the next run went on, but {fault}")


def kill_at_every_change(case: Case, folder: Path) -> Tally:
    """Kill a command before its first change below a folder, before its second, and so on to the last."""
    tally = Tally(f"{case.name}, at every change of a file")
    entry = [sys.executable, "-m", "tests.faults.killed_at", str(folder)]
    succeed(*case.arguments)
    counted = subprocess.run(
        [*entry, "0", *map(str, case.arguments)], capture_output=True, text=True, cwd=ROOT, check=True
    )
    for number in range(1, int(counted.stderr.splitlines()[-1]) + 1):
        command = [*entry, str(number), *map(str, case.arguments)]
        ended = subprocess.run(command, capture_output=True, cwd=ROOT, check=False)
        killed = ended.returncode == -signal.SIGKILL
        tally.kills += killed
        tally.finished_first += not killed
        if (fault := case.whole()) is not None:
            tally.faults.append(f"killed before change {number}: {fault}")
    _goes_on(case, tally)
    return tally


def kill_often(case: Case, kills: int, *, seed: int, complete_every: int) -> Tally:
    """Kill a command at `kills` moments spread over the time that it takes."""
    tally, chance = Tally(case.name), random.Random(seed)
    started = time.monotonic()
    succeed(*case.arguments)
    takes_s = time.monotonic() - started
    while tally.kills + tally.finished_first < kills:
        _kill(case, chance.uniform(0.0, takes_s), tally)
        if (tally.kills + tally.finished_first) % complete_every == 0:
            _goes_on(case, tally)
    return tally


def _lock_is_whole(tiny: Tiny) -> str | None:
    result = repro("lock", "--check", "-C", tiny.project)
    return None if result.returncode in (0, 3) and "Traceback" not in result.stderr else result.stderr[-300:]


def _run_is_whole(tiny: Tiny) -> str | None:
    """The run that was captured first is there and verifies, and nothing lies beside it."""
    result = repro("verify", tiny.run, "--trust", tiny.trust)
    if result.returncode != 0:
        return f"the run no longer verifies: {result.stdout[-300:]}{result.stderr[-300:]}"
    beside = [path.name for path in tiny.run.parent.iterdir() if not path.name.startswith(".")]
    return None if beside == [tiny.run.name] else f"beside the run lies {beside}"


def _signatures_are_whole(tiny: Tiny) -> str | None:
    first = tiny.run / f"{tiny.key.stem}.sigstore.json"
    return _run_is_whole(tiny) if first.exists() else "the first signature is gone"


def cases(tiny: Tiny) -> dict[str, Case]:
    """The commands that write. The run must have been captured once."""
    project, host = ("-C", tiny.project), ("--runtime", "host")
    keys = [("--key", key) for key in (tiny.key, tiny.second_key)]
    trusted = ("--trust", tiny.trust)
    made = [
        Case("lock", ("lock", "--upgrade", *project), lambda: _lock_is_whole(tiny)),
        Case("build", ("build", *project), lambda: None),
        Case("capture", ("capture", *project, *host, *keys[0]), lambda: _run_is_whole(tiny)),
        Case("sign", ("sign", tiny.run, *keys[1]), lambda: _signatures_are_whole(tiny)),
        Case(
            "replay",
            ("replay", tiny.run, *trusted, *project, *host, "--sign", *keys[1]),
            lambda: _signatures_are_whole(tiny),
        ),
    ]
    return {case.name: case for case in made}
