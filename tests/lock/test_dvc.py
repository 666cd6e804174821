"""Files beside `.dvc` files."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.errors import LockError
from repro.resolve.dvc import check_dvc, read_dvc
from repro.resolve.files import list_tree

Case = Callable[[str], Path]


def md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def checked(place: Path) -> tuple[dict[str, str], list[str]]:
    return check_dvc(place, list_tree(place), where=place.name)


def test_case_d09_three_ages_and_a_file_that_is_not_what_dvc_says(case: Case, tmp_path: Path) -> None:
    folder = case("D09")
    expected = json.loads((folder / "expected.json").read_text())
    results = {}
    for path in sorted((folder / "data").glob("*.dvc")):
        (out,) = read_dvc(path.read_bytes(), where=path.name)
        results[path.name] = "directory" if out.folder else "parsed"
    with pytest.raises(LockError) as caught:
        checked(folder / "data")
    error = caught.value
    results["one.csv.dvc"] = error.kind
    assert results == expected["results"]
    assert expected["expected_md5"] in str(error)
    assert expected["actual_md5"] in str(error)
    shutil.copytree(folder / "data", tmp_path / "data", ignore=shutil.ignore_patterns("one.csv.dvc"))
    hints, warnings = checked(tmp_path / "data")
    assert hints == {}
    assert [text.split(":")[0] for text in warnings] == ["dir.dvc", "old.dvc"]


def test_a_file_that_is_what_dvc_says(tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(b"a,b\r\n")
    new = f"outs:\n- md5: {md5(b'a,b' + bytes([13, 10]))}\n  size: 5\n  hash: md5\n  path: one.csv\n"
    (tmp_path / "one.csv.dvc").write_text(new)
    assert checked(tmp_path / "one.csv") == (
        {"one.csv.dvc: one.csv": f"md5:{md5(b'a,b' + bytes([13, 10]))}"},
        [],
    )
    old = f"md5: 0\nouts:\n- md5: {md5(b'a,b' + bytes([10]))}\n  cache: true\n  path: one.csv\n"
    (tmp_path / "one.csv.dvc").write_text(old)
    assert checked(tmp_path / "one.csv")[0] == {"one.csv.dvc: one.csv": f"md5:{md5(b'a,b' + bytes([10]))}"}
    (tmp_path / "one.csv.dvc").write_text(old + "  hash: md5\n")
    with pytest.raises(LockError):
        checked(tmp_path / "one.csv")


def test_a_folder_is_opened_and_its_members_are_checked(tmp_path: Path) -> None:
    labels = tmp_path / "labels"
    (labels / "b").mkdir(parents=True)
    (labels / "a.txt").write_bytes(b"one")
    (labels / "b" / "c.txt").write_bytes(b"two")
    listing = [{"md5": md5(b"one"), "relpath": "a.txt"}, {"md5": md5(b"two"), "relpath": "b/c.txt"}]
    total = md5(json.dumps(listing).encode())
    (tmp_path / "labels.dvc").write_text(
        f"outs:\n- md5: {total}.dir\n  nfiles: 2\n  hash: md5\n  path: labels\n"
    )
    assert checked(labels) == ({"labels.dvc: labels": f"md5:{total}.dir"}, [])
    assert checked(tmp_path) == ({"labels.dvc: labels": f"md5:{total}.dir"}, [])
    (labels / "a.txt").write_bytes(b"eno")
    for place in (labels, tmp_path):
        with pytest.raises(LockError) as caught:
            checked(place)
        assert caught.value.kind == "hash-mismatch"


@pytest.mark.parametrize("text", ["", "- 1\n", "outs: 3\n", "deps: []\n", "outs:\n- path: x\n", "a: &b c\n"])
def test_files_that_are_no_dvc_files(text: str) -> None:
    with pytest.raises(LockError) as caught:
        read_dvc(text.encode(), where="x.dvc")
    assert caught.value.kind == "dvc-malformed"
