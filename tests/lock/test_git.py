"""Working trees."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from repro.adapters.git import GitCommand


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A repository with one commit."""

    def git(*arguments: str) -> None:
        identity = ["-c", "user.name=a", "-c", "user.email=a@b.example"]
        subprocess.run(["git", "-C", str(tmp_path), *identity, *arguments], check=True, capture_output=True)

    git("init", "-q")
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text("pass\n")
    git("add", ".")
    git("commit", "-q", "-m", "first")
    return tmp_path


def test_commit_and_dirtiness(tree: Path) -> None:
    head = subprocess.run(
        ["git", "-C", str(tree), "rev-parse", "HEAD"], capture_output=True, text=True, check=True
    )
    clean = GitCommand().state(tree / "project")
    assert clean is not None
    assert (clean.commit, clean.dirty) == (head.stdout.strip(), False)
    (tree / "project" / "train.py").write_text("raise SystemExit\n")
    dirty = GitCommand().state(tree / "project")
    assert dirty is not None
    assert dirty.dirty


def test_the_lock_itself_does_not_make_a_tree_dirty(tree: Path) -> None:
    (tree / "project" / "locks").mkdir()
    (tree / "project" / "locks" / "requirements.cpu.txt").write_text("")
    (tree / "project" / "repro.lock").write_text("{}")
    state = GitCommand().state(tree / "project")
    assert state is not None
    assert not state.dirty
    (tree / "project" / "new.py").write_text("")
    state = GitCommand().state(tree / "project")
    assert state is not None
    assert state.dirty


def test_nothing_is_known_where_there_is_no_tree_or_no_git(
    tmp_path: Path, tree: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory
) -> None:
    assert GitCommand().state(tmp_path_factory.mktemp("bare")) is None
    monkeypatch.setenv("PATH", "/nowhere")
    assert GitCommand().state(tree) is None
