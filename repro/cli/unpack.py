"""`repro unpack`: one file back to a run folder."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.packing import SUFFIX, unpack
from repro.attest.paths import check_name
from repro.cli import options
from repro.cli.console import print_json

__all__ = ["command"]


@click.command("unpack")
@click.argument("file", type=options.FILE)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path), help="Folder to make.  [default: by FILE's name]"
)
@options.as_json
def command(file: Path, output: Path | None, as_json: bool) -> None:
    """Unpack a file of `repro pack` to a run folder.

    Safe for a file from anybody: links, odd names and whatever else packing
    would not have written is refused, and nothing is left then. It says nothing
    about signatures: verify the folder.

    \b
    Example:  repro unpack pilot.repro.tar
    Exit codes: 0 unpacked, 1 could not do it, 2 usage.
    """
    name = file.name.removesuffix(SUFFIX).removesuffix(".tar")
    target = output or Path(name if name != file.name else f"{name}.run")
    unpack(file, target, check_name)
    if as_json:
        print_json({"run": str(target)})
        return
    click.echo(f"{target}: unpacked, not verified")
