"""Requirement files as people write them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import LockError
from repro.resolution import Inputs
from repro.resolve.requirements import read_inputs
from repro.spec import IndexSpec
from tests.lock.lock_world import LINUX

Case = Callable[[str], Path]


def read(
    root: Path,
    files: dict[str, str | bytes],
    constraints: tuple[str, ...] = (),
    indexes: tuple[IndexSpec, ...] = (),
) -> tuple[Inputs, list[str], tuple[str, ...]]:
    """Write files, read the first; return inputs, names in order, warnings."""
    for path, content in files.items():
        place = root / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content if isinstance(content, bytes) else content.encode())
    inputs, asked, warnings = read_inputs(root, [next(iter(files))], constraints, indexes, LINUX)
    return inputs, [one.name for one in asked], warnings


def refused(root: Path, text: str, **more: str) -> LockError:
    with pytest.raises(LockError) as caught:
        read(root, {"requirements.in": text, **more})
    assert caught.value.remedy
    assert caught.value.where is not None
    return caught.value


def test_case_b17_marks_line_ends_continuations_and_nesting(tmp_path: Path, case: Case) -> None:
    folder = case("B17")
    expected = json.loads((folder / "expected.json").read_text())
    inputs, asked, warnings = read_inputs(folder, ["requirements.in"], [], [], LINUX)

    own = [one.name for one in asked if one.file == "requirements.in"]
    assert own == [name.replace("_", "-") for name in expected["requirements"]]
    assert [path for path in inputs.documents if path != "requirements.in"] == expected["nested"]
    (warning,) = warnings
    assert expected["package"] in warning
    assert "local version" in warning


def test_case_b01_version_control_has_no_hash(case: Case) -> None:
    folder = case("B01")
    expected = json.loads((folder / "expected.json").read_text())
    with pytest.raises(LockError, match="pilot-lib") as caught:
        read_inputs(folder, ["requirements.in"], [], [], LINUX)
    assert caught.value.kind == expected["error"]
    assert caught.value.where == "requirements.in:2"


def test_case_b09_a_constraint_with_extras(case: Case) -> None:
    folder = case("B09")
    expected = json.loads((folder / "expected.json").read_text())
    with pytest.raises(LockError) as caught:
        read_inputs(folder, ["requirements.in"], [], [], LINUX)
    assert caught.value.kind == expected["error"]
    assert caught.value.where == f"{expected['file']}:{expected['line']}"


@pytest.mark.parametrize(
    ("line", "kind"),
    [
        ("git+https://host/lab/lib@main", "unhashable-vcs"),
        ("lib@git+ssh://git@host/lab/lib", "unhashable-vcs"),
        ("hg+https://host/lib", "unhashable-vcs"),
        ("-e .", "editable-requirement"),
        ("--editable=./lib", "editable-requirement"),
        ("-e git+https://host/lib#egg=lib", "editable-requirement"),
        ("./lib", "nameless-requirement"),
        ("lib/dist/lib-1.0-py3-none-any.whl", "nameless-requirement"),
        ("https://host/lib-1.0-py3-none-any.whl", "nameless-requirement"),
        ("lib @ https://host/lib-1.0.tar.gz", "unhashable-requirement"),
        ("lib @ file:///opt/lib-1.0-py3-none-any.whl", "unhashable-requirement"),
        ("lib @ https://user:secret@host/lib-1.0-py3-none-any.whl", "credential-in-requirement"),
        ("lib >= banana", "requirement-malformed"),
        ("lib ==", "requirement-malformed"),
        ("--trusted-host host", "requirement-option"),
        ("--no-binary :all:", "requirement-option"),
        ("-r ../elsewhere.txt", "input-outside-project"),
        ("-r /etc/requirements.txt", "input-outside-project"),
        ("-r absent.txt", "input-missing"),
        ('-r "absent', "input-missing"),
        ("--", "requirement-option"),
    ],
)
def test_what_no_lock_can_hold_is_refused_by_name_and_place(tmp_path: Path, line: str, kind: str) -> None:
    error = refused(tmp_path, f"# first\nnumpy\n{line}\n")
    assert error.kind == kind
    assert str(error.where).startswith("requirements.in:3")
    assert "secret" not in str(error)


def test_files_that_are_no_text(tmp_path: Path) -> None:
    (tmp_path / "requirements.in").write_bytes(b"caf\xe9\n")
    with pytest.raises(LockError) as caught:
        read_inputs(tmp_path, ["requirements.in"], [], [], LINUX)
    assert caught.value.kind == "requirement-malformed"
    (tmp_path / "requirements.in").write_bytes("numpy\r\n".encode("utf-16"))
    assert read_inputs(tmp_path, ["requirements.in"], [], [], LINUX)[1][0].name == "numpy"


def test_indexes_are_read_out_of_the_file_and_named(tmp_path: Path) -> None:
    text = (
        "--index-url=https://one.example/simple\n"
        "--extra-index-url https://user:secret@two.example/whl/cu130/ # fast\n"
        "-f wheels\n"
        "torch\n"
    )
    inputs, names, _ = read(tmp_path, {"requirements.in": text})

    assert [index.name for index in inputs.indexes] == [
        "one.example",
        "two.example-whl-cu130",
        "folder-wheels",
    ]
    assert inputs.indexes[2].url == str(tmp_path / "wheels")
    assert inputs.indexes[2].flat
    assert inputs.replaces_default
    assert names == ["torch"]
    assert inputs.documents["requirements.in"] == "\n\n\ntorch\n"


def test_hashes_are_read_out_of_the_lines(tmp_path: Path) -> None:
    one, two = f"sha256:{'1' * 64}", f"sha256:{'2' * 64}"
    text = f"Torch==2.0 \\\n    --hash={two} \\\n    --hash={one}\n"
    inputs, _, _ = read(tmp_path, {"requirements.in": text})
    assert inputs.allowed == {"torch": (one, two)}
    assert inputs.documents["requirements.in"].strip() == "Torch==2.0"


def test_files_may_name_each_other_in_a_circle(tmp_path: Path) -> None:
    files: dict[str, str | bytes] = {"deps/a.in": "-r b.in\nalpha\n", "deps/b.in": "-r ../deps/a.in\nbeta\n"}
    inputs, names, _ = read(tmp_path, files)
    assert names == ["beta", "alpha"]
    assert sorted(inputs.documents) == ["deps/a.in", "deps/b.in"]


def test_local_versions_are_asked_for_where_several_builds_fit(tmp_path: Path) -> None:
    bound = IndexSpec(name="cuda", url="https://one.example/whl", packages=("torch",))
    assert read(tmp_path, {"requirements.in": "torch==2.0\n"})[2]
    assert not read(tmp_path, {"requirements.in": "torch==2.0+cpu\n"})[2]
    assert not read(tmp_path, {"requirements.in": "torch==2.0\n"}, indexes=(bound,))[2]
    assert not read(tmp_path, {"requirements.in": "torch>=2.0\nnumpy==1.0\n"})[2]


def test_an_index_name_that_means_something_else_is_refused(tmp_path: Path) -> None:
    for name in ("default", "direct"):
        with pytest.raises(LockError, match=name) as caught:
            read(
                tmp_path,
                {"requirements.in": "torch\n"},
                indexes=(IndexSpec(name=name, url="https://one.example/simple"),),
            )
        assert caught.value.kind == "index-name-taken"


def test_a_package_bound_to_two_indexes_is_refused(tmp_path: Path) -> None:
    two = [
        IndexSpec(name=name, url=f"https://{name}.example", packages=("Torch",)) for name in ("one", "two")
    ]
    with pytest.raises(LockError, match="torch") as caught:
        read(tmp_path, {"requirements.in": "torch\n"}, indexes=tuple(two))
    assert caught.value.kind == "index-ambiguity"


@given(st.text(max_size=60))
def test_any_text_is_read_or_refused_by_name(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    root = tmp_path_factory.getbasetemp() / "any"
    root.mkdir(exist_ok=True)
    data = text.encode("utf-8", "surrogatepass")
    with contextlib.suppress(LockError):
        assert read(root, {"requirements.in": data})[0].requirements == ("requirements.in",)
