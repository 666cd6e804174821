"""`repro show`: a run folder, readable."""

from __future__ import annotations

from pathlib import Path

import click

from repro.cli import options
from repro.cli.console import print_json
from repro.cli.kept import checked_trace
from repro.cli.runs import read_manifest
from repro.errors import TraceError, TrustError
from repro.manifest import Manifest
from repro.measurement import PhaseMeasurement, measure_phase
from repro.report.manifest import manifest_lines
from repro.report.measurement import measurement_lines
from repro.report.words import printable

__all__ = ["command"]


def _measured(run: Path, manifest: Manifest) -> tuple[list[PhaseMeasurement], str | None]:
    """Read the traces, where they are what the manifest says; else say why they are not read."""
    try:
        return [measure_phase(phase) for phase in checked_trace(run, manifest.phases).phases], None
    except (TrustError, TraceError) as error:
        return [], error.message


@click.command("show")
@options.run_folder
@options.as_json
def command(run: Path, as_json: bool) -> None:
    """Print a run folder so that a person can read it.

    Nothing is verified: that is `repro verify`.

    \b
    Example:  repro show manifests/pilot.cpu
    Exit codes: 0 printed, 1 could not read it, 2 usage.
    """
    manifest = read_manifest(run)
    measured, unread = _measured(run, manifest)
    if as_json:
        measurements = [one.tree() for one in measured] if unread is None else None
        print_json({**manifest.model_dump(mode="json", by_alias=True), "measurements": measurements})
        return
    click.echo(f"{run} (not verified; see `repro verify`)")
    for line in manifest_lines(manifest):
        click.echo(line)
    if unread is not None:
        click.echo(f"  {'measured':16}unknown: {printable(unread)}")
    for one in measured:
        for at, line in enumerate(measurement_lines(one)):
            click.echo(f"  {'' if at else f'measured {one.phase}':22}{line}")
