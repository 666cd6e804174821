"""`repro show`: a run folder, readable."""

from __future__ import annotations

from pathlib import Path

import click

from repro.cli import options
from repro.cli.console import print_json
from repro.cli.runs import read_manifest
from repro.report.manifest import manifest_lines

__all__ = ["command"]


@click.command("show")
@options.run_folder
@options.as_json
def command(run: Path, as_json: bool) -> None:
    """Print a run folder so that a person can read it.

    Nothing is verified: that is `repro verify`.

    \b
    Example:  repro show manifests/pilot.cpu
    Exit codes: 0 printed, 1 could not read it.
    """
    manifest = read_manifest(run)
    if as_json:
        print_json(manifest.model_dump(mode="json", by_alias=True))
        return
    click.echo(f"{run} (not verified; see `repro verify`)")
    for line in manifest_lines(manifest):
        click.echo(line)
