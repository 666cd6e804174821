"""`repro completion`: a script with which a shell completes what is typed."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

__all__ = ["command"]


@click.command("completion")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print a script for a shell that completes commands, options and paths.

    Nothing is written: put such a line into your shell's own file.

    \b
    Example:  repro completion fish > ~/.config/fish/completions/repro.fish
              eval "$(repro completion bash)"
    Exit codes: 0 printed, 1 could not do it, 2 usage.
    """
    kind = get_completion_class(shell)
    assert kind is not None, "click knows the three shells above"
    root = click.get_current_context().find_root().command
    click.echo(kind(root, {}, "repro", "_REPRO_COMPLETE").source(), nl=False)
