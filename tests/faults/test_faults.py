"""A sample of every fault; `python -m tests.faults` provokes them all and prints the table."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.e2e_world import ROOT
from tests.faults import disk, kills, malformed
from tests.faults.faults_world import reference_run


@pytest.mark.parametrize("number", range(9))
def test_a_spoiled_file_is_refused_by_name(tmp_path: Path, number: int) -> None:
    target = malformed.targets(tmp_path)[number]
    tally = target.spoil(25, seed=7)
    assert tally.faults == []
    assert tally.tried == 25
    assert tally.passed < 10


def test_a_signature_is_never_lost_when_signing_is_killed(tmp_path: Path) -> None:
    tiny = reference_run(tmp_path)
    case = kills.cases(tiny)["sign"]
    tally = kills.kill_at_every_change(case, tmp_path)
    assert tally.faults == []
    assert tally.kills >= 3
    assert kills.kill_often(case, 4, seed=3, complete_every=4).faults == []


@pytest.mark.parametrize("name", ["keys new", "keys trust", "sign"])
def test_a_full_disk_is_named_and_nothing_is_left(tmp_path: Path, name: str) -> None:
    if os.getuid() != 0:
        pytest.skip("a small file system needs root to be mounted")
    with disk.small_disk(tmp_path / "disk", "32m") as small:
        tiny = reference_run(small)
        if name == "keys trust":
            disk.fill_up("keys new", disk.commands(tiny)["keys new"], small)
        tally = disk.fill_up(name, disk.commands(tiny)[name], small)
    assert tally.faults == []
    assert tally.refused >= 1


@pytest.mark.slow
@pytest.mark.network
@pytest.mark.timeout(7200)
@pytest.mark.parametrize("group", ["kills", "disk", "malformed", "odd"])
def test_every_fault(group: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "tests.faults", group], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stdout[-4000:] + ended.stderr[-2000:]
