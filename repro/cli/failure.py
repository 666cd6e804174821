"""How a failure is said: to a person on stderr, to a machine as JSON on stdout."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from typing import Any

import click

from repro.cli.console import print_json
from repro.errors import FileError, ReproError, SpecError

__all__ = ["explain", "named"]


def named(error: OSError | ReproError) -> ReproError:
    """One of our errors: as it is, or what the system refused in our words."""
    if isinstance(error, ReproError):
        return error
    place = str(error.filename) if error.filename else None
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return FileError(
            "disk-full", "no space is left on the device", where=place, remedy="free some space and run again"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return FileError("permission-denied", "writing or reading here is not permitted", where=place)
    return FileError(
        "file-trouble",
        error.strerror or type(error).__name__,
        where=place,
        remedy="see that the path is right and leads to a plain file or folder",
    )


def _tree(error: ReproError) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "kind": error.kind,
        "family": error.family,
        "message": error.message,
        "where": error.where,
        "remedy": error.remedy,
    }
    if isinstance(error, SpecError) and error.flaws:
        tree["flaws"] = [
            {"path": f.path, "line": f.line, "column": f.column, "message": f.message} for f in error.flaws
        ]
    return tree


def _usage(error: click.ClickException) -> dict[str, Any]:
    context = getattr(error, "ctx", None)
    remedy = f"see `{context.command_path} --help`" if context else "see `repro --help`"
    message = error.format_message()
    return {"kind": "usage", "family": "usage", "message": message, "where": None, "remedy": remedy}


def _say(error: ReproError, colour: bool | None) -> None:
    click.secho(f"error[{error.kind}] ", fg="red", bold=True, nl=False, err=True, color=colour)
    click.echo(str(error), err=True)
    if isinstance(error, SpecError) and len(error.flaws) > 1:
        for flaw in error.flaws:
            place = f"{flaw.line}:{flaw.column}: " if flaw.line else ""
            click.echo(f"  {place}{flaw.message}", err=True)
    if error.remedy:
        click.secho("  what to do: ", fg="cyan", nl=False, err=True, color=colour)
        click.echo(error.remedy, err=True)


def explain(error: Exception, arguments: Sequence[str], *, colour: bool | None = None) -> int:
    """Print what went wrong and return the exit code.

    Raises:
        Exception: the error itself, where it is a fault of this program.
    """
    if isinstance(error, click.Abort):
        click.echo("interrupted: nothing half-written is left", err=True)
        return 130
    if isinstance(error, click.ClickException):
        if "--json" in arguments:
            print_json({"error": _usage(error)})
        error.show()
        return error.exit_code
    if not isinstance(error, OSError | ReproError):
        raise error
    error = named(error)
    if "--json" in arguments:
        print_json({"error": _tree(error)})
    _say(error, colour)
    return 1
