"""What CI systems get: a matrix, an action, and a page whose examples are true."""

from __future__ import annotations

import importlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import CliRunner

from repro.cli import cli
from tests.e2e.e2e_world import ROOT

ACTION = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
PAGE = (ROOT / "docs" / "ci.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```(yaml|sh)\n(.*?)```", PAGE, re.DOTALL)


def test_a_matrix_has_one_job_for_each_accelerator(tmp_path: Path) -> None:
    text = (ROOT / "examples" / "pilot" / "repro.yaml").read_text(encoding="utf-8")
    cpu = next(line for line in text.splitlines() if line.startswith("  cpu:"))
    (tmp_path / "repro.yaml").write_text(text.replace(cpu, f"{cpu}\n{cpu.replace('cpu', 'rocm')}"))
    result = CliRunner().invoke(cli, ["matrix", "-C", str(tmp_path), "--json"])
    assert result.output.count("\n") == 1, "a step's output is one line"
    assert json.loads(result.output) == {
        "include": [
            {"accelerator": "cpu", "runs_on": ["ubuntu-latest"]},
            {"accelerator": "rocm", "runs_on": ["self-hosted", "linux", "rocm"]},
        ]
    }
    assert (
        CliRunner().invoke(cli, ["matrix", "-C", str(tmp_path)]).output.splitlines()[0]
        == "cpu   ubuntu-latest"
    )


def test_the_action_is_a_whole_composite_action() -> None:
    assert ACTION["runs"]["using"] == "composite"
    steps = ACTION["runs"]["steps"]
    assert all({"shell", "run"} <= step.keys() for step in steps), "a composite step needs its shell named"
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    assert set(re.findall(r"inputs\.([\w-]+)", text)) == set(ACTION["inputs"])
    ids = {step["id"] for step in steps if "id" in step}
    assert set(re.findall(r"steps\.([\w-]+)\.outputs", text)) <= ids
    assert all("${{" not in step["run"] for step in steps), "an input in a script is an injection"
    assert all(one.get("required") or "default" in one for one in ACTION["inputs"].values())


def act(folder: Path, **inputs: str) -> tuple[int, str, dict[str, str], str]:
    """Run the action's second step as a runner would; exit code, summary, outputs, what was printed."""
    step = ACTION["runs"]["steps"][1]
    given = {name: str(one.get("default", "")) for name, one in ACTION["inputs"].items()} | inputs
    variables = {
        name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: given[found[1]], text)
        for name, text in step["env"].items()
    }
    files = {name: folder / name.lower() for name in ("GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT")}
    for path in files.values():
        path.touch()
    environment = {
        **os.environ,
        **variables,
        **{name: str(path) for name, path in files.items()},
        "GITHUB_ACTION_PATH": str(ROOT),
        "RUNNER_TEMP": str(folder),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    ended = subprocess.run(
        ["bash", "-e", "-o", "pipefail", "-c", step["run"]],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        check=False,
    )
    outputs = dict(line.split("=", 1) for line in files["GITHUB_OUTPUT"].read_text().splitlines())
    return ended.returncode, files["GITHUB_STEP_SUMMARY"].read_text(), outputs, ended.stdout + ended.stderr


def test_the_action_checks_a_lock(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    code, summary, outputs, _ = act(tmp_path, command="lock-check", project=str(tmp_path / "empty"))
    assert code == 1
    assert outputs["exit-code"] == "1"
    assert "error[" in summary


def test_the_action_verifies_a_run(tmp_path: Path) -> None:
    kept = ROOT / "manifests"
    inputs = {"command": "verify", "run": str(kept / "pilot.cpu"), "trust": str(kept / "trust.yaml")}
    code, summary, outputs, printed = act(tmp_path, **inputs)
    assert code == 0, printed
    assert "VERIFIED" in printed
    assert "exit code 0" in summary
    assert "VERIFIED" in summary
    assert Path(outputs["junit"]).read_text().startswith("<?xml")


@pytest.mark.parametrize("inputs", [{"command": "verify"}, {"command": "no such; echo command"}])
def test_the_action_refuses_what_it_cannot_do(tmp_path: Path, inputs: dict[str, str]) -> None:
    code, _, outputs, printed = act(tmp_path, **inputs)
    assert code == 2
    assert outputs == {}
    assert "::error title=repro::" in printed


def hook(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the entry of the hook as pre-commit does: in the top folder of the repository."""
    (one,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
    assert one["id"] == "repro-lock-check"
    assert (one["language"], one["pass_filenames"], one["always_run"]) == ("python", False, True)
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    command = shlex.split(one["entry"])
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)


def test_the_hook_lets_a_fresh_lock_pass_and_refuses_a_stale_one(tmp_path: Path) -> None:
    project = tmp_path / "pilot"
    shutil.copytree(ROOT / "examples" / "pilot", project)
    assert hook(project).returncode == 0
    (project / "train.py").write_text("pass\n")
    refused = hook(project)
    assert refused.returncode == 3
    assert "train.py has changed since the lock was made" in refused.stdout


def options_of(name: str) -> set[str]:
    command = importlib.import_module(f"repro.cli.{name}").command
    assert isinstance(command, click.Command)
    return {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}


def test_every_command_on_the_page_exists_with_its_options() -> None:
    lines = re.findall(r"`(repro [^`]+)`", PAGE)
    lines += [found for _, block in BLOCKS for found in re.findall(r"(repro [a-z]+ ?[^\n\")]*)", block)]
    assert len(lines) >= 8
    for line in lines:
        words = shlex.split(line)
        assert {word for word in words[2:] if word.startswith("-")} <= options_of(words[1]), line


def uses(tree: Any) -> list[dict[str, Any]]:
    """Every step of a workflow that uses this action."""
    steps = [step for job in tree.get("jobs", {}).values() for step in job["steps"]]
    return [step for step in steps if "/repro@" in step.get("uses", "")]


def test_every_example_is_yaml_and_gives_the_action_inputs_it_has() -> None:
    trees = [yaml.safe_load(block) for kind, block in BLOCKS if kind == "yaml"]
    used = [step for tree in trees for step in uses(tree)]
    assert len(used) == 3
    commands = {step["with"]["command"] for step in used}
    assert commands == {"lock-check", "build-check", "replay"}
    assert all(set(step["with"]) <= set(ACTION["inputs"]) for step in used)
