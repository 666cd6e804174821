"""Completion in real shells: what a person gets when they press the tab key."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from repro.cli import cli
from tests.cli.test_cli import repro

PROGRAM = f"#!{sys.executable}\nfrom repro.cli import main\nmain()\n"


def shell(folder: Path, *words: str) -> list[str]:
    """Run a shell that finds `repro`, and return what it printed, line by line."""
    if shutil.which(words[0]) is None:
        pytest.skip(f"{words[0]} is not here")
    program = folder / "bin" / "repro"
    program.parent.mkdir()
    program.write_text(PROGRAM)
    program.chmod(0o755)
    environment = {**os.environ, "PATH": f"{program.parent}:{os.environ['PATH']}", "HOME": str(folder)}
    done = subprocess.run(words, capture_output=True, text=True, env=environment, cwd=folder, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout.splitlines()


def bash(folder: Path, *typed: str) -> list[str]:
    """What bash would offer for the last of the words typed."""
    words = " ".join(f"'{word}'" for word in typed)
    lines = (
        'eval "$(repro completion bash)"',
        f"COMP_WORDS=({words}); COMP_CWORD={len(typed) - 1}",
        "complete -p repro | grep -q _repro_completion",
        "_repro_completion repro",
        'printf "%s\\n" "${COMPREPLY[@]}"',
    )
    return shell(folder, "bash", "--norc", "-ec", "\n".join(lines))


def test_bash_completes_commands(tmp_path: Path) -> None:
    assert bash(tmp_path, "repro", "re") == ["replay", "report"]


def test_bash_completes_commands_of_a_group(tmp_path: Path) -> None:
    assert bash(tmp_path, "repro", "keys", "e") == ["endorse", "export"]


def test_bash_completes_options_and_choices(tmp_path: Path) -> None:
    assert bash(tmp_path, "repro", "lock", "-a", "c") == ["cpu", "cuda"]


def test_fish_completes_with_the_purpose_beside_the_name(tmp_path: Path) -> None:
    line = "repro completion fish | source; complete --do-complete 'repro ver'"
    assert shell(tmp_path, "fish", "--no-config", "-c", line) == ["verify\tCheck a signed run folder offline"]


def test_zsh_takes_the_script(tmp_path: Path) -> None:
    line = 'autoload -U compinit; compinit -u; eval "$(repro completion zsh)"; print $_comps[repro]'
    assert shell(tmp_path, "zsh", "-fc", line) == ["_repro_completion"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_command_prints_what_the_variable_gives(name: str) -> None:
    asked = repro(_REPRO_COMPLETE=f"{name}_source")
    assert asked.returncode == 0
    assert repro("completion", name).stdout == asked.stdout


def test_another_shell_is_wrong_usage() -> None:
    assert CliRunner().invoke(cli, ["completion", "tcsh"]).exit_code == 2
