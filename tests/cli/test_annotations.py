"""Annotations of the commands themselves: each beside the line it is about, only where wanted."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.e2e_world import ENTRY, ROOT, Result, replace_once
from tests.report.test_annotations import read

KEPT = ROOT / "manifests" / "pilot.cpu"


def repro(folder: Path, *arguments: str | Path, **variables: str) -> Result:
    """Run in a folder, as a job of a CI system that checked the repository out there."""
    command = [sys.executable, "-c", ENTRY, *map(str, arguments)]
    environment = {"PATH": "/usr/bin:/bin", "HOME": str(folder), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def said(result: Result) -> list[tuple[dict[str, str], str]]:
    lines = [line for line in result.stderr.splitlines() if line.startswith("::")]
    assert "::" not in result.stdout
    return [read(line)[1:] for line in lines]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """The pilot's project below the top of a repository, with its lock."""
    shutil.copytree(ROOT / "examples" / "pilot", tmp_path / "sub" / "pilot")
    return tmp_path / "sub" / "pilot"


def line_of(path: Path, start: str) -> str:
    lines = path.read_text().splitlines()
    return str(next(number for number, line in enumerate(lines, 1) if line.strip().startswith(start)))


def test_a_stale_lock_points_at_the_lines_that_changed(project: Path, tmp_path: Path) -> None:
    spec = project / "repro.yaml"
    replace_once(spec, "steps: 20", "steps: 30")
    replace_once(spec, "timeout: ", "timeout: 1")
    (project / "train.py").write_text("pass\n")
    result = repro(tmp_path, "lock", "--check", "-C", project, "--annotations", "github")
    assert result.returncode == 3, result.stderr
    found = said(result)
    assert {properties["title"] for properties, _ in found} == {"repro lock: stale"}
    assert [(one["file"], one.get("line")) for one, _ in found] == [
        ("sub/pilot/repro.yaml", line_of(spec, "steps:")),
        ("sub/pilot/repro.yaml", line_of(spec, "timeout:")),
        ("sub/pilot/train.py", None),
    ]
    assert found[0][1].startswith("repro.yaml: pilot.steps has changed since the lock was made\n")


def test_data_and_accelerators_stand_where_they_are_named(project: Path, tmp_path: Path) -> None:
    spec = project / "repro.yaml"
    (project / "data" / "corpus.txt").write_text("other\n")
    cpu = next(line for line in spec.read_text().splitlines() if line.startswith("  cpu:"))
    replace_once(spec, cpu, f"{cpu}\n{cpu.replace('cpu', 'rocm')}")
    found = said(repro(tmp_path, "lock", "--check", "-C", project, GITHUB_ACTIONS="true"))
    assert [(one["file"], one.get("line")) for one, _ in found] == [
        ("sub/pilot/repro.yaml", line_of(spec, "- {name: corpus")),
        ("sub/pilot/repro.yaml", line_of(spec, "rocm:")),
    ]


def test_what_is_gone_is_said_at_the_lock(project: Path, tmp_path: Path) -> None:
    (project / "locks" / "requirements.cpu.txt").unlink()
    found = said(repro(tmp_path, "lock", "--check", "-C", project, GITHUB_ACTIONS="true"))
    assert [one["file"] for one, _ in found] == ["sub/pilot/repro.lock"]


def test_a_fresh_lock_says_nothing(project: Path, tmp_path: Path) -> None:
    result = repro(tmp_path, "lock", "--check", "-C", project, GITHUB_ACTIONS="true")
    assert result.returncode == 0, result.stderr
    assert said(result) == []


@pytest.mark.parametrize(
    ("options", "variables", "wanted"),
    [
        ([], {}, False),
        ([], {"GITHUB_ACTIONS": "true"}, True),
        (["--annotations", "none"], {"GITHUB_ACTIONS": "true"}, False),
        (["--annotations", "github"], {}, True),
    ],
)
def test_only_where_they_are_wanted(
    tmp_path: Path, options: list[str], variables: dict[str, str], wanted: bool
) -> None:
    (tmp_path / "repro.yaml").write_text("version: 1\nnaem: x\n")
    result = repro(tmp_path, "lock", "--check", *options, **variables)
    assert result.returncode == 1
    assert bool(said(result)) == wanted


def test_a_flaw_stands_at_its_line_and_column(tmp_path: Path) -> None:
    (tmp_path / "repro.yaml").write_text("version: 1\nseed: 1\nnaem: x\n")
    result = repro(tmp_path, "build", "--check", "--annotations", "github")
    places = {(one["file"], one.get("line"), one.get("col")) for one, text in said(result) if "naem" in text}
    assert places == {("repro.yaml", "3", "1")}


def test_a_flaw_of_a_requirement_file_stands_in_that_file(project: Path, tmp_path: Path) -> None:
    (project / "requirements.in").write_text("numpy\n-e ./here\n")
    found = said(repro(tmp_path, "lock", "--check", "-C", project, "--annotations", "github"))
    assert [(one["file"], one["line"]) for one, _ in found] == [("sub/pilot/requirements.in", "2")]


def test_a_build_of_a_stale_lock_points_at_the_line_too(project: Path, tmp_path: Path) -> None:
    replace_once(project / "repro.yaml", "steps: 20", "steps: 30")
    result = repro(tmp_path, "build", "--check", "-C", project, "-a", "cpu", "--annotations", "github")
    assert result.returncode == 1
    assert [one["line"] for one, _ in said(result)] == [line_of(project / "repro.yaml", "steps:")]


@pytest.mark.parametrize("command", ["verify", "replay"])
def test_a_rejected_run_is_said_at_its_manifest(tmp_path: Path, command: str) -> None:
    run = tmp_path / "run"
    shutil.copytree(KEPT, run)
    (run / "repro.lock").write_bytes(b"{}")
    result = repro(
        tmp_path, command, run, "--trust", KEPT.parent / "trust.yaml", "--json", GITHUB_ACTIONS="true"
    )
    assert result.returncode == 3, result.stderr
    assert json.loads(result.stdout)
    found = said(result)
    assert {one["file"] for one, _ in found} == {"run/manifest.json"}
    assert any("files" in text for _, text in found)


def test_an_error_about_a_key_stands_at_the_key(project: Path, tmp_path: Path) -> None:
    (project / "Dockerfile.cpu").unlink()
    replace_once(project / "repro.yaml", "Dockerfile.cpu", "Dockerfile.none")
    result = repro(tmp_path, "lock", "-C", project, "--annotations", "github")
    assert "dockerfile-missing" in result.stderr
    assert [one["line"] for one, _ in said(result)] == [line_of(project / "repro.yaml", "cpu:")]


def test_an_accelerator_that_is_not_named_stands_where_it_could_be(project: Path, tmp_path: Path) -> None:
    result = repro(tmp_path, "lock", "-C", project, "-a", "rocm", "--annotations", "github")
    assert [one["line"] for one, _ in said(result)] == [line_of(project / "repro.yaml", "accelerators:")]


def test_an_error_about_no_file_stands_nowhere(tmp_path: Path) -> None:
    trust = KEPT.parent / "trust.yaml"
    ((found, text),) = said(repro(tmp_path, "verify", ".", "--trust", trust, "--annotations", "github"))
    assert found == {"title": "repro: not-a-run"}
    assert text.startswith(".: there is no manifest.json")


def test_a_path_that_no_repository_holds_is_whole(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "job").mkdir()
    (tmp_path / "elsewhere" / "repro.yaml").write_text("naem: x\n")
    result = repro(tmp_path / "job", "lock", "-C", "../elsewhere", GITHUB_ACTIONS="true")
    assert {one["file"] for one, _ in said(result)} == {str(tmp_path / "elsewhere" / "repro.yaml")}


def test_the_top_of_the_repository_is_what_the_runner_says(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "repro.yaml").write_text("naem: x\n")
    result = repro(tmp_path / "sub", "lock", GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(tmp_path))
    assert {one["file"] for one, _ in said(result)} == {"sub/repro.yaml"}
