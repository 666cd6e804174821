"""Runs programs bare and recorded, and reads what was recorded."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import recorder
from repro.trace import read_events

PROGRAMS = Path(__file__).parent / "programs"
INJECT = recorder.folder() / "inject"


def bare_environment() -> dict[str, str]:
    """This environment without anything that records, and with one thread."""
    kept = {key: value for key, value in os.environ.items() if not key.startswith(("REPRO_", "PYTHON"))}
    return {**kept, "OMP_NUM_THREADS": "1", "PYTHONHASHSEED": "0", "PYTHONDONTWRITEBYTECODE": "1"}


def recorded_environment(trace: Path, **settings: str) -> dict[str, str]:
    """An environment in which Python processes record themselves into `trace`."""
    trace.mkdir(parents=True, exist_ok=True)
    ours = {"PYTHONPATH": str(INJECT), "REPRO_TRACE": str(trace), "REPRO_NONCE": "nonce", "REPRO_EVERY": "4"}
    return {**bare_environment(), **ours, **settings}


def run(
    arguments: Sequence[str | Path],
    environment: Mapping[str, str],
    *,
    options: Sequence[str] = (),
    cwd: Path | None = None,
    code: int = 0,
) -> subprocess.CompletedProcess[str]:
    """Run this Python with `arguments` and expect it to end with `code`."""
    done = subprocess.run(
        [sys.executable, *options, *map(str, arguments)],
        env=dict(environment),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-4000:]
    return done


def events(path: Path) -> list[dict[str, Any]]:
    """Read every event of one file, strictly."""
    with path.open("rb") as stream:
        return list(read_events(stream, path.name))


def of_kind(found: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    return [event for event in found if event["ev"] == kind]


def all_files(trace: Path) -> Iterator[Path]:
    return iter(sorted(trace.glob("proc-*.jsonl")))


def only_trace(trace: Path) -> list[dict[str, Any]]:
    """Events of the one process that recorded."""
    (path,) = all_files(trace)
    return events(path)


@dataclass(frozen=True)
class Pair:
    """The same cases, bare and recorded."""

    bare: Path
    recorded: Path
    trace: Path

    def result(self, case: str, rank: int = 0, *, recorded: bool) -> dict[str, Any]:
        folder = self.recorded if recorded else self.bare
        return json.loads((folder / f"{case}-{rank}.json").read_text())  # type: ignore[no-any-return]

    def same(self, case: str, rank: int = 0) -> bool:
        bare, recorded = (self.result(case, rank, recorded=which) for which in (False, True))
        return (bare["weights"], bare["rng"]) == (recorded["weights"], recorded["rng"])

    def events(self, case: str, rank: int = 0) -> list[dict[str, Any]]:
        pid = self.result(case, rank, recorded=True)["pid"]
        (path,) = self.trace.glob(f"proc-*-{pid}.jsonl")
        return events(path)


def run_pair(folder: Path, cases: Sequence[str], *, launcher: Sequence[str] = ()) -> Pair:
    """Run cases bare and recorded, each case in a child of its own."""
    pair = Pair(folder / "bare", folder / "recorded", folder / "trace")
    for place, environment in (
        (pair.bare, bare_environment()),
        (pair.recorded, recorded_environment(pair.trace)),
    ):
        place.mkdir()
        run([*launcher, PROGRAMS / "cases.py", place, *cases], environment, options=["-W", "ignore"])
    return pair
