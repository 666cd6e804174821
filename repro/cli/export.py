"""`repro export`: a run in the formats of others."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.files import write_atomic
from repro.cli import options
from repro.cli.kept import checked_bytes, read_replay
from repro.cli.project import parse_lock
from repro.cli.runs import read_manifest
from repro.cli.verifying import VERDICTS, say_verification, verify_folder
from repro.digest import Digest, digest_bytes, pretty_json
from repro.errors import FileError, LockError
from repro.lock import Lock
from repro.manifest import Manifest
from repro.report.export.result import result_statement
from repro.report.export.slsa import slsa_statement

__all__ = ["command"]


def _lock(run: Path, manifest: Manifest) -> Lock:
    lock = parse_lock(checked_bytes(run, manifest.lock), where=manifest.lock.path)
    if manifest.accelerator not in lock.accelerators:
        raise LockError(
            "accelerator-unlocked",
            f"{manifest.accelerator} is not locked",
            where=f"{run}/{manifest.lock.path}",
            remedy="obtain the run folder again",
        )
    return lock


def _cyclonedx(manifest: Manifest, digest: Digest, lock: Lock) -> bytes:
    try:
        from repro.report.export.cyclonedx import cyclonedx_json
    except ImportError:
        raise FileError(
            "cyclonedx-package-missing",
            "the package that writes CycloneDX is not installed",
            remedy="install it: pip install 'repro-manifest[export]', or '.[export]' in a checkout",
        ) from None
    return cyclonedx_json(manifest, digest, lock).encode("utf-8")


@click.command("export")
@options.run_folder
@click.option(
    "--format",
    "form",
    type=click.Choice(["cyclonedx", "slsa", "test-result"]),
    required=True,
    help="cyclonedx: bill of materials 1.6. slsa: provenance v1. test-result: of a replay, in-toto v0.1.",
)
@click.option(
    "--replay",
    "kept",
    type=click.Path(path_type=Path, exists=True),
    help="Folder of `repro replay --keep`, or a verdict.json; needed for test-result.",
)
@options.optional_trust
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here."
)
def command(run: Path, form: str, kept: Path | None, trust_file: Path | None, output: Path | None) -> int:
    """Hand a run on as CycloneDX, SLSA provenance or a test result.

    Statements are printed as they are, without a signature. With --trust nothing
    is handed on before the run is verified.

    \b
    Example:  repro export manifests/pilot.cpu --trust trust.yaml --format cyclonedx -o bom.json
    Exit codes: 0 written, 1 could not do it, 2 usage, 3 rejected, 4 incomplete.
    """
    if (form == "test-result") != (kept is not None):
        raise click.UsageError("--replay and the format test-result belong together")
    if trust_file is not None:
        verification = verify_folder(run, trust_file)
        if verification.verdict != "VERIFIED":
            say_verification(verification, err=True)
            return VERDICTS[verification.verdict][1]
    manifest = read_manifest(run)
    digest = digest_bytes((run / "manifest.json").read_bytes())
    if kept is not None:
        data = pretty_json(result_statement(manifest, digest, read_replay(kept).verdict))
    elif form == "slsa":
        data = pretty_json(slsa_statement(manifest, digest, _lock(run, manifest)))
    else:
        data = _cyclonedx(manifest, digest, _lock(run, manifest))
    if output is None:
        click.echo(data.decode("utf-8"), nl=False)
    else:
        write_atomic(output, data)
        click.echo(f"written: {output}", err=True)
    return 0
