"""The command line: one file per command, each parses, calls verbs, renders, returns an exit code.

Commands are imported when they are called, so that `repro --help` stays quick.
"""

from __future__ import annotations

import gc
import importlib
import os
import signal
import sys
from types import FrameType
from typing import NoReturn

import click

from repro import __version__

__all__ = ["COMMANDS", "cli", "main"]

COMMANDS = {
    "init": "Write repro.yaml and Dockerfiles for a project, or add what is missing.",
    "lock": "Turn every mutable reference of repro.yaml into an immutable one.",
    "build": "Build the locked image, bit for bit repeatable.",
    "run": "Run the pilot, or any command, in the image and record it.",
    "capture": "Lock check, build, run and sign: repro.yaml to a signed run folder.",
    "sign": "Add a signature to a run folder.",
    "attach": "Attach a signed run folder to its image in a registry.",
    "verify": "Check a signed run folder offline, against your own trust policy.",
    "replay": "Verify a run, run it again, and say whether it is the same.",
    "diff": "Say what differs between two run folders, or between two images, and why.",
    "image": "Say what an image, or a root filesystem made from one, holds.",
    "show": "Print a run folder so that a person can read it.",
    "report": "Write a summary of a run and its replays as HTML or Markdown.",
    "export": "Hand a run on as CycloneDX, SLSA provenance or a test result.",
    "pack": "Write a run folder as one file, to be sent or kept.",
    "unpack": "Unpack a file of `repro pack` to a run folder.",
    "keys": "Make, show and trust signing keys.",
    "matrix": "List the accelerators of repro.yaml, one CI job for each.",
    "doctor": "Say what this machine can do, and how to mend what it cannot.",
    "completion": "Print a script for a shell that completes commands, options and paths.",
}
"""Command name to purpose line, in the order of the pipeline."""


class _Lazy(click.Group):
    """A group whose commands live in modules of the same name."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        command = getattr(importlib.import_module(f"repro.cli.{cmd_name}"), "command")  # noqa: B009
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            hint = f" Did you mean {near[0]}?" if near else ""
            raise click.UsageError(f"No such command: {name}.{hint}", ctx)
        return super().resolve_command(ctx, args)


@click.group(
    cls=_Lazy,
    context_settings={"help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="repro")
def cli() -> None:
    """Prove that a PyTorch training run can be repeated.

    repro.yaml is locked, built, run, recorded and signed; what was signed is
    replayed and judged.

    \b
    Example:  repro capture -a cpu --key keys/train.key
              repro verify manifests/pilot.cpu --trust trust.yaml
    Exit codes: 0 yes, 1 could not do it, 2 usage, 3 no, 4 could not tell.
    """


def _colour() -> bool | None:
    """NO_COLOR wins over FORCE_COLOR; with neither, a terminal has colours and a pipe has none."""
    if os.environ.get("NO_COLOR"):
        return False
    return True if os.environ.get("FORCE_COLOR") else None


def _stop(signum: int, frame: FrameType | None) -> NoReturn:  # noqa: ARG001
    raise KeyboardInterrupt


def main() -> NoReturn:
    """Entry point: turn every known failure into a message and an exit code."""
    signal.signal(signal.SIGTERM, _stop)
    gc.set_threshold(100_000)  # what is imported stays; to look for garbage in it takes an eighth of a start
    os.environ["PYDANTIC_DISABLE_PLUGINS"] = "__all__"  # whatever else is installed takes no part in checks
    code = 0
    try:
        code = cli.main(standalone_mode=False, color=_colour()) or 0
    except Exception as error:  # noqa: BLE001 - the one boundary of the program
        from repro.cli.failure import explain

        code = explain(error, sys.argv[1:], colour=_colour())
    except KeyboardInterrupt:
        click.echo("interrupted: nothing half-written is left", err=True)
        code = 130
    _leave(code)


def _leave(code: int) -> NoReturn:
    """Flush and exit; a reader that closed the pipe early is no fault of ours."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)
