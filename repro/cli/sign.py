"""`repro sign`: one more signature on a run."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from repro.adapters.files import write_atomic
from repro.attest.sign import run_payload
from repro.cli import options
from repro.cli.runs import read_manifest
from repro.cli.signing import Signing

__all__ = ["command"]


@click.command("sign")
@options.run_folder
@options.optional_key
@click.option(
    "--statement-only", is_flag=True, help="Print the statement, to be signed elsewhere, and sign nothing."
)
def command(run: Path, signing: Signing | None, statement_only: bool) -> None:
    """Add a signature to a run folder.

    Every signer signs the same bytes, derived from manifest.json, so that
    signatures can be counted together. Verify the run before you sign it.

    \b
    Example:  repro sign manifests/pilot.cpu --key keys/lab.key
              repro sign manifests/pilot.cpu --key lab.key --certificate lab.pem --tsa https://tsa.example
    Exit codes: 0 signed, 1 could not do it, 2 usage.
    """
    read_manifest(run)
    payload = run_payload((run / "manifest.json").read_bytes())
    if statement_only:
        sys.stdout.buffer.write(payload)
        return
    if signing is None:
        raise click.UsageError("name a key with --key, or print the statement with --statement-only")
    opened = signing.open()
    target = run / opened.bundle_name
    write_atomic(target, opened.bundle(payload))
    click.echo(f"{target}: {opened.signer.public.kind}  {opened.signer.fingerprint}")
