"""Pinned requirement files: read, judged, written again."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import LockError
from repro.resolve.compiled import Entry, judge, parse_compiled, render, with_hashes

Case = Callable[[str], Path]

ONE, TWO = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"


def judged(folder: Path) -> LockError:
    with pytest.raises(LockError) as caught:
        judge((folder / "lock.txt").read_text(), where="lock.txt")
    return caught.value


def test_case_b01_pip_compile_exits_with_0_and_the_lock_is_no_lock(case: Case) -> None:
    folder = case("B01")
    expected = json.loads((folder / "expected.json").read_text())
    error = judged(folder)
    assert error.kind == expected["error"]
    assert all(name in str(error) for name in expected["packages"])
    assert expected["commit"] in str(error)
    entries = parse_compiled((folder / "lock.txt").read_text(), where="lock.txt")
    assert [entry.name for entry in entries if entry.hashes] == expected["hashed"]


def test_case_b03_packages_left_out_as_unsafe(case: Case) -> None:
    folder = case("B03")
    expected = json.loads((folder / "expected.json").read_text())
    error = judged(folder)
    assert error.kind == expected["error"]
    assert all(name in str(error) for name in expected["packages"])


def test_case_b05_places_of_the_machine_that_locked(case: Case) -> None:
    folder = case("B05")
    expected = json.loads((folder / "expected.json").read_text())
    error = judged(folder)
    assert error.kind == expected["error"]
    assert all(value in str(error) for value in expected["values"])


def test_case_b11_a_complete_lock(case: Case) -> None:
    folder = case("B11")
    expected = json.loads((folder / "expected.json").read_text())
    entries = judge((folder / "lock.txt").read_text(), where="lock.txt")
    assert len(entries) == expected["packages"]
    assert sum(len(entry.hashes) for entry in entries) == expected["hash_lines"]
    torch = next(entry for entry in entries if entry.name == "torch")
    assert len(torch.hashes) == expected["torch_hashes"]
    assert sum(entry.marker is not None for entry in entries) == expected["markers"]
    assert set(expected["platform_only"]) <= {entry.name for entry in entries}


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("numpy==2.0\n", "unhashed-packages"),
        (f"numpy>=2.0 --hash={ONE}\n", "requirement-unpinned"),
        (f"numpy==2.* --hash={ONE}\n", "requirement-unpinned"),
        (f"num py==2.0 --hash={ONE}\n", "pin-malformed"),
        (f"numpy==2.0 --hash=md5:{'1' * 32}\n", "unhashed-packages"),
        (f"--find-links ./wheels\nnumpy==2.0 --hash={ONE}\n", "host-paths-in-lock"),
    ],
)
def test_locks_that_do_not_hold(text: str, kind: str) -> None:
    with pytest.raises(LockError) as caught:
        judge(text, where="lock.txt")
    assert caught.value.kind == kind
    assert caught.value.remedy


def test_an_index_with_a_name_in_the_network_is_no_host_path() -> None:
    text = f"--extra-index-url https://one.example/whl\nnumpy==2.0 --hash={ONE}\n"
    assert [entry.name for entry in judge(text, where="lock.txt")] == ["numpy"]


def test_the_computed_hash_joins_the_published_ones() -> None:
    text = f"numpy==2.0 \\\n    --hash={TWO}\n    # via\n    #   -r requirements.in\n    #   torch\n"
    assert with_hashes(text, {"numpy": ONE}) == text.replace(
        f"--hash={TWO}", f"--hash={ONE} \\\n    --hash={TWO}"
    )


names = st.from_regex(r"[a-z][a-z0-9]{0,8}(-[a-z0-9]{1,4})?", fullmatch=True)
entries = st.builds(
    Entry,
    name=names,
    version=st.from_regex(r"[0-9]{1,3}(\.[0-9]{1,3}){0,2}(\+[a-z]{1,4}[0-9]{1,3})?", fullmatch=True),
    url=st.none(),
    marker=st.sampled_from([None, 'python_version >= "3.10"', 'sys_platform == "linux"']),
    hashes=st.lists(st.sampled_from([ONE, TWO]), unique=True).map(lambda found: tuple(sorted(found))),
    via=st.lists(names, unique=True, max_size=3).map(lambda found: tuple(sorted(found))),
)


@given(st.lists(entries, max_size=6))
def test_what_is_written_is_read_back(written: list[Entry]) -> None:
    assert list(parse_compiled("".join(map(render, written)), where="lock.txt")) == written
