"""A published folder is whole or is not there."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from repro.adapters.publish import publish
from repro.errors import FileError


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def test_a_folder_replaces_the_one_before(tmp_path: Path) -> None:
    source = tmp_path / "big"
    source.write_bytes(b"trace")
    target = tmp_path / "runs" / "pilot.cpu"
    publish(target, {"manifest.json": b"1", "locks/a.txt": b"x"}, {"trace/full/rank-0.jsonl": source})
    assert tree(target) == {"manifest.json": b"1", "locks/a.txt": b"x", "trace/full/rank-0.jsonl": b"trace"}
    publish(target, {"manifest.json": b"2"}, {})
    assert tree(target) == {"manifest.json": b"2"}
    assert [path.name for path in target.parent.iterdir() if ".new-" in path.name] == []


def test_a_failure_leaves_the_old_folder(tmp_path: Path) -> None:
    target = tmp_path / "pilot.cpu"
    publish(target, {"manifest.json": b"1"}, {})
    with pytest.raises(FileNotFoundError):
        publish(target, {"manifest.json": b"2"}, {"trace": tmp_path / "absent"})
    assert tree(target) == {"manifest.json": b"1"}
    assert len([path for path in tmp_path.iterdir() if ".new-" in path.name]) == 0


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "pilot.cpu").write_text("mine")
    with pytest.raises(FileError) as caught:
        publish(tmp_path / "pilot.cpu", {}, {})
    assert caught.value.kind == "folder-expected"


LOOP = """
import sys
from pathlib import Path
from repro.adapters.publish import publish
target, n = Path(sys.argv[1]), 0
while True:
    n += 1
    publish(target, {f"{k}": str(n).encode() for k in range(20)}, {})
"""


def test_killed_at_any_moment_the_folder_is_whole(tmp_path: Path) -> None:
    target = tmp_path / "pilot.cpu"
    publish(target, {f"{k}": b"0" for k in range(20)}, {})
    for round_ in range(12):
        with subprocess.Popen([sys.executable, "-c", LOOP, str(target)]) as process:
            time.sleep(0.25 + 0.013 * round_)
            os.kill(process.pid, signal.SIGKILL)
        content = tree(target)
        assert len(content) == 20
        assert len(set(content.values())) == 1, "a mixture of two folders"
    publish(target, {"last": b""}, {})
    assert tree(target) == {"last": b""}
    assert [path.name for path in tmp_path.iterdir() if ".new-" in path.name] == []
