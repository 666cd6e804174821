"""Folders by content."""

from __future__ import annotations

import hashlib
import os
import socket
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.errors import LockError
from repro.resolve.files import IGNORED, hash_tree, list_tree


def refused(root: Path) -> LockError:
    with pytest.raises(LockError) as caught:
        list_tree(root)
    assert caught.value.remedy
    return caught.value


def test_a_tree_is_its_files_sorted_with_their_digests(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "x.bin").write_bytes(b"x" * 3_000_000)
    (tmp_path / "a.txt").write_bytes(b"")
    (tmp_path / "empty").mkdir()

    files = hash_tree(tmp_path)

    assert [(file.path, file.size) for file in files] == [("a.txt", 0), ("b/x.bin", 3_000_000)]
    assert files[1].digest == f"sha256:{hashlib.sha256(b'x' * 3_000_000).hexdigest()}"


def test_a_lone_file_goes_by_its_own_name(tmp_path: Path) -> None:
    (tmp_path / "corpus.txt").write_text("In the beginning")
    (file,) = hash_tree(tmp_path / "corpus.txt")
    assert file.path == "corpus.txt"


@pytest.mark.parametrize("pattern", IGNORED)
def test_what_tools_leave_behind_does_not_count(tmp_path: Path, pattern: str) -> None:
    name = pattern.replace("*", "module")
    (tmp_path / "kept.txt").write_text("kept")
    inner = tmp_path / "inner"
    (inner / name).mkdir(parents=True)
    (inner / name / "file").write_text("left behind")
    (inner / name / "broken").symlink_to("nowhere")
    (tmp_path / name).write_text("left behind")
    assert [path for path, _ in list_tree(tmp_path)] == ["kept.txt"]


def test_case_f01_a_link_in_an_ignored_folder_is_not_looked_at(tmp_path: Path) -> None:
    (tmp_path / ".venv" / "bin").mkdir(parents=True)
    (tmp_path / ".venv" / "bin" / "python").symlink_to("/usr/bin/python3")
    (tmp_path / "train.py").write_text("pass")
    assert [path for path, _ in list_tree(tmp_path)] == ["train.py"]


def test_a_link_inside_the_tree_counts_as_the_file_it_leads_to(tmp_path: Path) -> None:
    (tmp_path / "blobs").mkdir()
    (tmp_path / "blobs" / "1").write_text("weights")
    (tmp_path / "model.bin").symlink_to("blobs/1")
    listed = hash_tree(tmp_path)
    assert listed[0].digest == listed[1].digest
    assert [file.path for file in listed] == ["blobs/1", "model.bin"]


def test_links_that_nobody_else_could_follow_are_refused(tmp_path: Path) -> None:
    root = tmp_path / "root"
    root.mkdir()
    link = root / "link"
    (tmp_path / "secret").write_text("outside")
    for target, kind in (("nowhere", "link-broken"), ("../secret", "link-outside"), (".", "link-outside")):
        link.symlink_to(target)
        error = refused(root)
        assert (error.kind, error.where) == (kind, str(link))
        link.unlink()


def test_names_that_machines_write_differently_are_refused(tmp_path: Path) -> None:
    for name in (b"caf\xe9.txt", "cafe\u0301.txt".encode(), b"new\nline"):
        path = os.fsencode(tmp_path) + b"/" + name
        Path(os.fsdecode(path)).write_text("text")
        assert refused(tmp_path).kind == "name-unusable"
        Path(os.fsdecode(path)).unlink()


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert refused(tmp_path).kind == "file-special"
    (tmp_path / "pipe").unlink()
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "s"))
        assert refused(tmp_path).kind == "file-special"


def test_an_absent_folder_is_named(tmp_path: Path) -> None:
    error = refused(tmp_path / "data")
    assert error.kind == "input-missing"
    assert error.where == str(tmp_path / "data")


@settings(max_examples=25)
@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,4}(/[a-z]{1,4}){0,2}\.t", fullmatch=True), st.binary(max_size=99))
)
def test_a_tree_does_not_depend_on_the_order_it_was_written_in(
    tmp_path_factory: pytest.TempPathFactory, tree: dict[str, bytes]
) -> None:
    listings = []
    for order in (list(tree), list(reversed(tree))):
        root = tmp_path_factory.mktemp("tree")
        for path in order:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_bytes(tree[path])
        listings.append(hash_tree(root))
    assert listings[0] == listings[1]
    assert {file.path: file.size for file in listings[0]} == {path: len(data) for path, data in tree.items()}
