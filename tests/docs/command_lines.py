"""Lines of pages that call `repro`, held to the commands there are. A helper of tests, not a test."""

from __future__ import annotations

import re
import shlex

import click

from repro.cli import cli

FENCE = re.compile(r"^```(?:sh|console)\n(.*?)^```", re.DOTALL | re.MULTILINE)
INLINE = re.compile(r"`(repro [a-z][^`\n]*)`")
SHELL = {"|", "||", "&&", ";", ">", ">>", "<", "2>", "&"}


def block_lines(text: str) -> list[str]:
    """Every call of `repro` in a page's blocks of shell, to the end of its line."""
    found = []
    for block in FENCE.findall(text):
        joined = block.replace("\\\n", " ")
        found += re.findall(r"(?:^|[;&(\"]\s*|\$ )(?=(repro [a-z][^\n]*))", joined, re.MULTILINE)
    return found


def command_lines(text: str) -> list[str]:
    """The same, and every call in running text."""
    return [*block_lines(text), *INLINE.findall(FENCE.sub("", text))]


def words_of(line: str) -> list[str]:
    """The words of one call, up to where the shell goes on to something else."""
    lexer = shlex.shlex(line.replace("$(", "(").rstrip('")'), posix=True, punctuation_chars="|&;<>()")
    lexer.whitespace_split = True
    words: list[str] = []
    for word in lexer:
        if set(word) <= set("|&;<>()"):
            break
        words.append(word)
    return words


def check_line(line: str) -> None:
    """Find the command that a line calls, and hold every option and choice of it to the command.

    Raises:
        click.UsageError: there is no such command, option or choice.
    """
    command: click.Command = cli
    context = click.Context(cli, info_name="repro")
    words = words_of(line)[1:]
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name = words.pop(0)
        below = command.get_command(context, name)
        if below is None:
            raise click.UsageError(f"no command {name}")
        command, context = below, click.Context(below, info_name=name, parent=context)
    try:
        given, _, _ = command.make_parser(context).parse_args(args=list(words))
    except click.BadOptionUsage:  # a page may speak of an option and leave its value out
        given, _, _ = command.make_parser(context).parse_args(args=[*words, "…"])
    for parameter in command.get_params(context):
        value = given.get(parameter.name or "")
        for one in value if isinstance(value, (list, tuple)) else [value]:
            if not isinstance(one, str) or one.isupper() or one[0] in "…⟨":
                continue
            if isinstance(parameter.type, click.Choice):
                parameter.type.convert(one, parameter, context)
