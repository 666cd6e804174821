"""The command line as a whole: every command has help, failures are said, nothing is slow to load."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from repro.cli import COMMANDS, cli

ENTRY = "import sys; from repro.cli import main; sys.argv[0] = 'repro'; main()"


def repro(*arguments: str, cwd: Path | None = None, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", ENTRY, *arguments],
        capture_output=True,
        text=True,
        cwd=cwd,
        env={**os.environ, **environment},
        check=False,
    )


def commands() -> list[tuple[str, click.Command]]:
    found: list[tuple[str, click.Command]] = []
    for name in COMMANDS:
        command = importlib.import_module(f"repro.cli.{name}").command
        assert isinstance(command, click.Command)
        if isinstance(command, click.Group):
            found += [(f"{name} {sub}", leaf) for sub, leaf in command.commands.items()]
        else:
            found.append((name, command))
    return found


@pytest.mark.parametrize(("name", "command"), commands(), ids=[name for name, _ in commands()])
def test_every_command_says_purpose_example_and_exit_codes(name: str, command: click.Command) -> None:
    text = command.help or ""
    assert "Example:  repro " + name.split()[0] in text
    assert "Exit codes:" in text
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{name} {parameter.opts[0]} has no help"


@pytest.mark.parametrize("name", COMMANDS)
def test_the_list_and_the_command_say_the_same(name: str) -> None:
    command = importlib.import_module(f"repro.cli.{name}").command
    assert command.help is not None
    assert command.help.split("\n\n")[0].replace("\n", " ") == COMMANDS[name]


def test_help_imports_no_command() -> None:
    code = (
        "import sys\nfrom repro.cli import cli\n"
        "try:\n    cli.main(['--help'], standalone_mode=False)\nfinally:\n"
        "    heavy = {'docker', 'pydantic', 'torch', 'rich', 'ruamel'}\n"
        "    print([name for name in sys.modules if name.split('.')[0] in heavy])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.splitlines()[-1] == "[]"


def test_a_wrong_command_names_the_near_one() -> None:
    result = CliRunner().invoke(cli, ["lokc"])
    assert result.exit_code == 2
    assert "Did you mean lock?" in result.output


def test_a_missing_spec_is_an_error_with_a_remedy(tmp_path: Path) -> None:
    result = repro("lock", "-C", str(tmp_path))
    assert result.returncode == 1
    assert "error[spec-missing]" in result.stderr
    assert "repro init" in result.stderr
    assert "Traceback" not in result.stderr


def test_every_flaw_of_a_spec_is_said_at_once(tmp_path: Path) -> None:
    (tmp_path / "repro.yaml").write_text("version: 1\nnaem: x\nseed: -1\n")
    result = repro("lock", "-C", str(tmp_path), "--json")
    assert result.returncode == 1
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "spec-invalid"
    assert len(error["flaws"]) >= 4
    assert all(flaw["line"] > 0 for flaw in error["flaws"])
    assert "unknown key 'naem'; did you mean 'name'?" in result.stderr


def test_a_pipe_that_closes_early_is_no_failure(tmp_path: Path) -> None:
    result = subprocess.run(
        f'{sys.executable} -c "{ENTRY}" --help | head -1',
        shell=True,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0
    assert "Traceback" not in result.stderr


def test_colour_is_left_out_when_asked_and_in_a_pipe(tmp_path: Path) -> None:
    assert "\x1b[" not in repro("lock", "-C", str(tmp_path), NO_COLOR="1").stderr
    assert "\x1b[" not in repro("lock", "-C", str(tmp_path)).stderr


def test_what_is_no_plain_file_is_refused_at_once(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "repro.yaml")
    result = repro("lock", "--check", "-C", str(tmp_path))
    assert result.returncode == 1
    assert "error[spec-not-a-file]" in result.stderr


def test_wrong_usage_is_json_too(tmp_path: Path) -> None:
    result = repro("verify", str(tmp_path), "--trust", str(tmp_path / "absent"), "--json")
    assert result.returncode == 2
    error = json.loads(result.stdout)["error"]
    assert error["kind"] == "usage"
    assert "absent" in error["message"]
    assert error["remedy"] == "see `repro verify --help`"


def test_one_flaw_is_said_once(tmp_path: Path) -> None:
    spec = (Path(__file__).parents[2] / "examples" / "pilot" / "repro.yaml").read_text()
    (tmp_path / "repro.yaml").write_text(spec.replace("steps: 20", "steps: 0"))
    said = repro("lock", "-C", str(tmp_path)).stderr
    assert said.count("pilot.steps") == 1


def test_a_folder_that_is_no_run_is_no_forgery(tmp_path: Path) -> None:
    trust = Path(__file__).parents[2] / "manifests" / "trust.yaml"
    for command in (["verify", str(tmp_path), "--trust", str(trust)], ["show", str(tmp_path)]):
        result = repro(*command)
        assert result.returncode == 1
        assert "error[not-a-run]" in result.stderr


def test_trusting_a_key_twice_changes_nothing(tmp_path: Path) -> None:
    assert repro("keys", "new", str(tmp_path / "a"), "--no-passphrase").returncode == 0
    trust = ["keys", "trust", str(tmp_path / "trust.yaml"), str(tmp_path / "a.pub"), "--principal", "a"]
    assert repro(*trust).returncode == 0
    written = (tmp_path / "trust.yaml").read_bytes()
    assert repro(*trust).returncode == 0
    assert (tmp_path / "trust.yaml").read_bytes() == written
    assert repro(*trust, "--for", "replay").returncode == 0
    assert b"version: 2" in (tmp_path / "trust.yaml").read_bytes()
