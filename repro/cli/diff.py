"""`repro diff`: two runs side by side."""

from __future__ import annotations

from pathlib import Path

import click

from repro import strictyaml
from repro.adapters.tracefiles import open_trace
from repro.cli import options
from repro.cli.console import print_json
from repro.cli.judging import OUTCOMES, say_verdict
from repro.cli.project import parse_lock
from repro.cli.runs import read_manifest
from repro.comparability import comparability
from repro.compare import compare
from repro.facts import input_facts
from repro.manifest import Manifest
from repro.spec import Spec

__all__ = ["command"]


def _facts(run: Path, manifest: Manifest) -> dict[str, object]:
    spec_path, lock_path = run / manifest.spec.path, run / manifest.lock.path
    document = strictyaml.load(spec_path.read_bytes(), where=str(spec_path))
    spec = strictyaml.validate(document, Spec, where=str(spec_path))
    lock = parse_lock(lock_path.read_bytes(), where=str(lock_path))
    return input_facts(spec, lock, manifest.accelerator, environment=manifest.environment, host=manifest.host)


@click.command("diff")
@click.argument("first", type=options.FOLDER, metavar="A")
@click.argument("second", type=options.FOLDER, metavar="B")
@click.option("--detail", is_flag=True, help="Print every difference that was kept.")
@options.as_json
def command(first: Path, second: Path, detail: bool, as_json: bool) -> int:
    """Say what differs between two run folders, and which inputs can explain it.

    Nothing is verified: that is `repro verify`.

    \b
    Example:  repro diff manifests/pilot.cpu other/pilot.cpu
    Exit codes: 0 same, 1 could not do it, 2 usage, 3 differs, 4 could not tell.
    """
    a, b = read_manifest(first), read_manifest(second)
    verdict = compare(
        open_trace(first, a.phases),
        open_trace(second, b.phases),
        tolerance=a.tolerance,
        environment=comparability(a, b.image, b.host, accelerator=b.accelerator),
        facts=(_facts(first, a), _facts(second, b)),
    )
    if as_json:
        print_json(verdict.tree())
        return OUTCOMES[verdict.outcome][1]
    return say_verdict(verdict, detail=detail)
