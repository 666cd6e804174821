"""The page of the command line is what the commands say, and what they say of themselves is whole."""

from __future__ import annotations

import re

import click
import pytest

from tests.docs.command_lines import check_line, command_lines, words_of
from tests.docs.test_docs import ROOT, script

PAGE = script("cli_page")
COMMANDS: list[tuple[str, click.Command, click.Context]] = list(PAGE.commands())


def test_the_page_of_the_command_line_is_the_source() -> None:
    page = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert page == PAGE.page(), "run `python scripts/cli_page.py`"


@pytest.mark.parametrize(
    ("path", "command"), [found[:2] for found in COMMANDS], ids=[one[0] for one in COMMANDS]
)
def test_every_command_says_purpose_example_and_exit_codes(path: str, command: click.Command) -> None:
    purpose, _, examples, codes = PAGE.said(command)
    assert purpose.endswith(".")
    assert len(purpose) <= 90
    assert examples
    assert all(line.startswith(("repro ", 'eval "$(repro ')) for line in examples)
    assert path in " ".join(examples) or path == "repro"
    assert {"0", "1", "2"} <= set(re.findall(r"\b([0-4]) ", codes)), codes


@pytest.mark.parametrize(
    ("path", "command"), [found[:2] for found in COMMANDS], ids=[one[0] for one in COMMANDS]
)
def test_every_example_is_a_command_that_there_is(path: str, command: click.Command) -> None:
    text = "```sh\n" + "\n".join(PAGE.said(command)[2]) + "\n```\n"
    lines = command_lines(text)
    assert len(lines) == len(PAGE.said(command)[2])
    for line in lines:
        check_line(line)


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        ("repro lokc", "no command"),
        ("repro lock --chekc", "No such option"),
        ("repro build -a tpu", "is not one of"),
        ("repro keys trusted", "no command"),
    ],
)
def test_a_wrong_line_is_found(line: str, flaw: str) -> None:
    with pytest.raises(click.UsageError, match=flaw):
        check_line(line)


def test_a_line_ends_where_the_shell_goes_on() -> None:
    block = "$ repro lock --check && repro build \\\n    --check > out\nx=$(repro matrix --json)"
    text = f"```sh\n{block}\n```\n`repro show RUN`"
    assert [words_of(line) for line in command_lines(text)] == [
        ["repro", "lock", "--check"],
        ["repro", "build", "--check"],
        ["repro", "matrix", "--json"],
        ["repro", "show", "RUN"],
    ]
