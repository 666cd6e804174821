"""`repro verify`: the auditor's offline check."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import click

from repro.attest.verify import Demands
from repro.cli import options
from repro.cli.annotating import Annotate, annotated, place_of_run
from repro.cli.console import print_json
from repro.cli.evidence import OCI, find_files, find_image
from repro.cli.verifying import (
    VERDICTS,
    check_folder,
    read_trust,
    say_verification,
    verify_folder,
    verify_packed,
)
from repro.report.annotations import verification_annotations

__all__ = ["command"]


@click.command("verify")
@options.run_or_reference
@options.trust
@click.option("--expect-project", metavar="NAME", help="Refuse a run of any other project.")
@click.option("--expect-run", metavar="ID", help="Refuse any other run.")
@click.option(
    "--max-age", metavar="DAYS", type=click.IntRange(min=1), help="Refuse older runs; needs a time stamp."
)
@click.option(
    "--image",
    "image_in",
    metavar="WHERE",
    help="Check the image too: `engine`, `oci://REGISTRY/REPOSITORY`, or a folder with an OCI layout.",
)
@click.option("--models", type=options.FOLDER, help="Check the models too, below this folder.")
@click.option("--datasets", type=options.FOLDER, help="Check the data sets too, below this folder.")
@click.option("--strict", is_flag=True, help="Refuse files that no signature covers.")
@options.as_json
@annotated
def command(
    run: str,
    trust_file: Path,
    expect_project: str | None,
    expect_run: str | None,
    max_age: int | None,
    image_in: str | None,
    models: Path | None,
    datasets: Path | None,
    strict: bool,
    as_json: bool,
    annotate: Annotate,
) -> int:
    """Check a signed run folder offline, against your own trust policy.

    Needs no network, no engine, no GPU and no torch. Nothing but VERIFIED exits with 0.
    RUN may be a file of `repro pack` too, or oci://REGISTRY/REPOSITORY@DIGEST: an
    image that the run is attached to.

    \b
    Example:  repro verify manifests/pilot.cpu --trust trust.yaml
              repro verify pilot.cpu.repro.tar --trust trust.yaml
              repro verify manifests/pilot.cpu --trust trust.yaml --image engine --datasets .
    Exit codes: 0 verified, 1 could not do it, 2 usage, 3 rejected, 4 incomplete.
    """
    demands = Demands(
        project=expect_project,
        run_id=expect_run,
        max_age=timedelta(days=max_age) if max_age else None,
        strict=strict,
        image=find_image(image_in),
        models=find_files(models),
        datasets=find_files(datasets),
    )
    if run.startswith(OCI):
        # Imported here: a folder is verified without a network, and need not wait for its libraries.
        from repro.cli.remote import attached_run

        with attached_run(run, read_trust(trust_file), expect_run) as (folder, image):
            verification = check_folder(folder, trust_file, replace(demands, image_digest=image))
    else:
        check = verify_packed if Path(run).is_file() else verify_folder
        verification = check(Path(run), trust_file, demands)
    annotate(verification_annotations(verification, place_of_run(Path(run))))
    if as_json:
        print_json(verification.tree())
        return VERDICTS[verification.verdict][1]
    return say_verification(verification)
