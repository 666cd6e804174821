"""`repro pack`: a run folder as one file."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.files import write_stream
from repro.adapters.packing import SUFFIX, packed
from repro.attest.paths import check_name
from repro.cli import options
from repro.cli.console import print_json
from repro.cli.runs import read_manifest
from repro.report.words import size

__all__ = ["command"]


@click.command("pack")
@options.run_folder
@click.option("-o", "--output", type=click.Path(path_type=Path, dir_okay=False), help="Write here.")
@options.as_json
def command(run: Path, output: Path | None, as_json: bool) -> None:
    """Write a run folder as one file, to be sent or kept.

    The same folder gives the same bytes on any machine. Nothing is compressed:
    no file can be larger than it looks. Signatures stay as they are.

    \b
    Example:  repro pack manifests/pilot.cpu -o pilot.repro.tar
    Exit codes: 0 written, 1 could not do it, 2 usage.
    """
    read_manifest(run)
    target = output or Path(f"{run.resolve().name}{SUFFIX}")
    digest, written = write_stream(target, packed(run, check_name))
    if as_json:
        print_json({"file": str(target), "digest": digest, "size": written})
        return
    click.echo(f"{target}: {size(written)}, {digest}")
