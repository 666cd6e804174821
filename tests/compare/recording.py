"""Runs programs with the recorder and gives what they recorded as phases."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path

from repro import recorder
from repro.trace import PhaseTrace, RankFile

PROGRAMS = Path(__file__).parent / "programs"


def record(program: str, arguments: list[str], trace: Path, **settings: str) -> str:
    """Run a program of this folder, recorded into `trace`; return what it printed."""
    trace.mkdir()
    kept = {name: text for name, text in os.environ.items() if not name.startswith(("REPRO", "PY"))}
    ours = {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(recorder.folder() / "inject"),
        "REPRO_EVERY": "2",
        "REPRO_NONCE": "n",
        "REPRO_SEED": "7",
        "REPRO_TRACE": str(trace),
    }
    command = [sys.executable, str(PROGRAMS / program), *arguments]
    environment = {**kept, **ours, **settings}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def recorded_phase(path: Path, name: str = "full", first_step: int = 0) -> PhaseTrace:
    file = RankFile(rank=0, path=str(path), digest="", size=0, lines=partial(_lines, path))
    return PhaseTrace(name=name, first_step=first_step, world_size=1, ranks=(file,))
