"""Write docs/cli.md from the commands: what each is for, its options, an example and its exit codes."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import click

from repro.cli import cli

ROOT = Path(__file__).parent.parent
HEAD = """# The command line

Every command in its own words, written from the source by `python scripts/cli_page.py`; a test compares
the two. `-h` or `--help` prints the same.

Exit codes are the same everywhere: **0** yes · **1** could not do it · **2** usage · **3** no (rejected,
diverged, stale, differs) · **4** could not tell (incomplete, incomparable) · **130** interrupted.

## Completion in a shell

`repro completion SHELL` prints a script for bash (4.4 or newer), zsh or fish. It completes commands,
options, choices and paths.

| shell | once |
|---|---|
| bash | `echo 'eval "$(repro completion bash)"' >> ~/.bashrc` |
| zsh | `echo 'eval "$(repro completion zsh)"' >> ~/.zshrc` |
| fish | `repro completion fish > ~/.config/fish/completions/repro.fish` |

The same script comes from `_REPRO_COMPLETE=bash_source repro`, as with any program made with click.
"""


def commands(
    command: click.Command = cli, context: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Every command below one, groups before what is in them: full name, command, context."""
    if context is None:
        context = click.Context(command, info_name="repro")
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None
            yield from commands(below, click.Context(below, info_name=name, parent=context))


def said(command: click.Command) -> tuple[str, list[str], list[str], str]:
    """Purpose, further paragraphs, examples line by line, and exit codes, out of a command's help."""
    purpose, *rest = [part.strip() for part in re.split(r"\n\s*\n", (command.help or "").strip())]
    more = [" ".join(part.split()) for part in rest if not part.startswith("\b")]
    kept = next((part.removeprefix("\b").strip() for part in rest if part.startswith("\b")), "")
    example, _, codes = kept.partition("Exit codes:")
    lines = [line.strip() for line in example.removeprefix("Example:").splitlines() if line.strip()]
    return " ".join(purpose.split()), more, lines, " ".join(codes.split())


def cell(text: str) -> str:
    """Text as one cell of a table."""
    return text.replace("|", r"\|").replace("\n", " ")


def section(path: str, command: click.Command, context: click.Context) -> str:
    """One command."""
    purpose, more, examples, codes = said(command)
    usage = " ".join(piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]")
    parts = [f"\n## `{path}`\n\n{purpose}\n", *(f"\n{text}\n" for text in more)]
    parts.append("\n```sh\n" + "\n".join(examples) + "\n```\n")
    parts.append(f"\nUsage: `{path} [OPTIONS]{' ' if usage else ''}{usage}`\n\nExit codes: {codes}\n")
    records = [
        record
        for parameter in command.get_params(context)
        if isinstance(parameter, click.Option)
        and "--help" not in parameter.opts
        and (record := parameter.get_help_record(context)) is not None
    ]
    if records:
        parts.append("\n| option | what it does |\n|---|---|\n")
        parts += [f"| `{cell(option)}` | {cell(text)} |\n" for option, text in records]
    return "".join(parts)


def page() -> str:
    """The whole page."""
    return HEAD + "".join(section(*found) for found in commands())


if __name__ == "__main__":
    (ROOT / "docs" / "cli.md").write_text(page(), encoding="utf-8")
    sys.stdout.write(f"docs/cli.md: {sum(1 for _ in commands())} commands\n")
