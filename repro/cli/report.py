"""`repro report`: a run and its replays, to look at."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from repro.adapters.files import write_atomic
from repro.attest.outcome import Verification
from repro.cli import options
from repro.cli.kept import checked_bytes, checked_trace, read_replay
from repro.cli.project import parse_lock
from repro.cli.runs import read_manifest
from repro.cli.verifying import verify_folder
from repro.manifest import Manifest
from repro.report.junit import junit_xml
from repro.report.page import html_page
from repro.report.replayed import Replayed
from repro.report.summary import replays_markdown

__all__ = ["command"]

ENDINGS = {".html": "html", ".htm": "html", ".md": "markdown", ".xml": "junit"}


def _format(asked: str | None, output: Path | None) -> str:
    if asked is not None:
        return asked
    if output is None:
        return "markdown"
    if output.suffix.lower() not in ENDINGS:
        raise click.UsageError(f"{output.name} ends in none of {', '.join(ENDINGS)}: choose with --format")
    return ENDINGS[output.suffix.lower()]


def _named_apart(replays: list[Replayed]) -> list[Replayed]:
    """Number replays that have one name."""
    names = [replay.name for replay in replays]
    return [
        replace(one, name=f"{one.name} ({index + 1})") if names.count(one.name) > 1 else one
        for index, one in enumerate(replays)
    ]


def _page(run: Path, manifest: Manifest, verification: Verification | None, replays: list[Replayed]) -> str:
    """Files of a run that was rejected are not read: what they say is not what was signed."""
    vouched = verification is None or verification.verdict != "REJECTED"
    return html_page(
        manifest,
        verification,
        trace=checked_trace(run, manifest.ordinary) if vouched else None,
        replays=replays,
        lock=parse_lock(checked_bytes(run, manifest.lock), where=manifest.lock.path) if vouched else None,
        title=run.resolve().name,
    )


@click.command("report")
@options.run_folder
@click.option(
    "--replay",
    "kept",
    type=click.Path(path_type=Path, exists=True),
    multiple=True,
    help="Folder of `repro replay --keep`, or a verdict.json; may be given again.",
)
@options.optional_trust
@click.option(
    "--format",
    "asked",
    type=click.Choice(["html", "markdown", "junit"]),
    help="What to write.  [default: by FILE's ending, else markdown]",
)
@click.option(
    "-o", "--output", type=click.Path(path_type=Path, dir_okay=False), metavar="FILE", help="Write here."
)
def command(
    run: Path, kept: tuple[Path, ...], trust_file: Path | None, asked: str | None, output: Path | None
) -> None:
    """Write a summary of a run and its replays as HTML or Markdown.

    The HTML page is one file, needs no network and runs no script. JUnit XML is
    for CI systems that show tests. With --trust the run is verified first, and
    the check list is part of the report; what it says does not change the exit
    code.

    \b
    Example:  repro report manifests/pilot.cpu --trust trust.yaml --replay kept -o report.html
    Exit codes: 0 written, 1 could not do it, 2 usage.
    """
    form = _format(asked, output)
    verification = verify_folder(run, trust_file) if trust_file else None
    replays = _named_apart([read_replay(path) for path in kept])
    if form == "junit":
        text = junit_xml(verification, replays, name=run.resolve().name)
    elif form == "html":
        text = _page(run, read_manifest(run), verification, replays)
    else:
        verdicts = {replay.name: replay.verdict for replay in replays}
        text = replays_markdown(read_manifest(run), verification, verdicts, title=run.resolve().name)
    if output is None:
        click.echo(text, nl=not text.endswith("\n"))
        return
    write_atomic(output, text.encode("utf-8"))
    click.echo(f"written: {output}", err=True)
