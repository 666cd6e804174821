"""The cache, and files that are written whole or not at all."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from repro.adapters.cache import FileCache, cache_folder
from repro.adapters.files import write_atomic, write_together
from repro.digest import digest_bytes


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", "/home/somebody")
    assert cache_folder({}) == Path("/home/somebody/.cache/repro")
    assert cache_folder({"XDG_CACHE_HOME": "/var/x"}) == Path("/var/x/repro")
    assert cache_folder({"XDG_CACHE_HOME": "relative"}) == Path("/home/somebody/.cache/repro")
    assert cache_folder({"XDG_CACHE_HOME": "/var/x", "REPRO_CACHE": str(tmp_path)}) == tmp_path


def test_files_are_held_by_the_digest_of_their_bytes(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache")
    (tmp_path / "wheel").write_bytes(b"bytes")

    digest = cache.add(tmp_path / "wheel")

    assert digest == digest_bytes(b"bytes")
    held = cache.path(digest)
    assert held is not None
    assert held.read_bytes() == b"bytes"
    assert (tmp_path / "wheel").exists()
    assert cache.path(digest_bytes(b"other")) is None
    assert cache.path("sha256:../../../etc/passwd") is None
    assert cache.add(tmp_path / "wheel", move=True) == digest
    assert not (tmp_path / "wheel").exists()
    assert not list((tmp_path / "cache" / "incoming").iterdir())


def test_many_may_add_the_same_file_at_once(tmp_path: Path) -> None:
    cache = FileCache(tmp_path / "cache")
    (tmp_path / "file").write_bytes(b"x" * 500_000)
    digests: list[str] = []
    threads = [
        threading.Thread(target=lambda: digests.append(cache.add(tmp_path / "file"))) for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(digests) == {digest_bytes(b"x" * 500_000)}
    assert len(digests) == 8


def test_a_file_is_replaced_and_keeps_its_mode(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "repro.lock"
    write_atomic(path, b"one")
    path.chmod(0o640)
    write_atomic(path, b"two")
    assert path.read_bytes() == b"two"
    assert path.stat().st_mode & 0o777 == 0o640
    assert os.listdir(path.parent) == ["repro.lock"]  # noqa: PTH208 - hidden files count too


def test_files_written_together_appear_in_order_and_vanish(tmp_path: Path) -> None:
    (tmp_path / "locks").mkdir()
    (tmp_path / "locks" / "old.txt").write_text("old")
    write_together(
        tmp_path,
        {"repro.lock": b"lock", "locks/new.txt": b"new", "locks/old.txt": None, "locks/never.txt": None},
        last="repro.lock",
    )
    assert sorted(path.name for path in tmp_path.rglob("*") if path.is_file()) == ["new.txt", "repro.lock"]


def test_one_unwritable_file_leaves_all_as_they_were(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("old")
    (tmp_path / "blocked").write_text("a file where a folder should be")
    with pytest.raises(OSError, match="blocked"):
        write_together(tmp_path, {"a.txt": b"new", "blocked/b.txt": b"new"}, last="a.txt")
    assert (tmp_path / "a.txt").read_text() == "old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.txt", "blocked"]


INTERRUPTED = """
import os, signal, sys
from pathlib import Path
from repro.adapters import files

root = Path(sys.argv[1])
replace = Path.replace

def interrupt_then_replace(self, target):
    os.kill(os.getpid(), signal.SIGINT)
    return replace(self, target)

Path.replace = interrupt_then_replace
try:
    both = {"locks/a.txt": b"2", "locks/b.txt": b"2"}
    files.write_together(root, {"repro.lock": b"2", **both}, last="repro.lock")
except KeyboardInterrupt:
    sys.exit(130)
"""


def test_an_interrupt_between_two_files_waits_for_the_last(tmp_path: Path) -> None:
    write_together(
        tmp_path, {"repro.lock": b"1", "locks/a.txt": b"1", "locks/b.txt": b"1"}, last="repro.lock"
    )
    ended = subprocess.run([sys.executable, "-c", INTERRUPTED, str(tmp_path)], check=False)
    assert ended.returncode == 130
    assert {path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == {b"2"}
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_what_a_killed_process_left_is_removed_and_what_is_being_written_is_not(tmp_path: Path) -> None:
    left, busy = tmp_path / ".a.json.12345678.part", tmp_path / ".a.json.abcdefgh.part"
    others = tmp_path / ".a.json.original"
    for path in (left, busy, others):
        path.write_bytes(b"half")
    with busy.open("rb") as stream:
        fcntl.flock(stream, fcntl.LOCK_EX)
        write_atomic(tmp_path / "a.json", b"whole")
    assert sorted(tmp_path.iterdir()) == sorted([busy, others, tmp_path / "a.json"])
    assert (tmp_path / "a.json").read_bytes() == b"whole"
