"""`repro attach`: a signed run folder beside its image, in a registry."""

from __future__ import annotations

from pathlib import Path

import click

from repro.cli import options
from repro.cli.console import print_json
from repro.cli.remote import attach_run

__all__ = ["command"]


@click.command("attach")
@options.run_folder
@click.argument("where", metavar="oci://REGISTRY/REPOSITORY[@DIGEST]")
@options.as_json
def command(run: Path, where: str, as_json: bool) -> None:
    """Attach a signed run folder to its image in a registry.

    Signatures, replays and files become referrers of the image, which the
    registry must hold as it was signed. Signatures are found by `cosign
    verify-attestation`, and everything by `repro verify oci://…`. To attach the
    same once more changes nothing.

    \b
    Example:  repro attach manifests/pilot.cpu oci://registry.example/team/pilot
    Exit codes: 0 attached, 1 could not do it, 2 usage.
    """
    attached = attach_run(run, where)
    if as_json:
        print_json(attached.tree())
        return
    click.echo(f"image  {attached.image}")
    for name, digest in attached.artifacts:
        click.echo(f"  {name:<28} {digest}")
