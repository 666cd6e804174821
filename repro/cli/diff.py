"""`repro diff`: two runs, or two images, side by side."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from repro.cli import options
from repro.cli.console import print_json
from repro.cli.images import diff_images, is_run
from repro.cli.judging import OUTCOMES, compare_runs, say_verdict
from repro.cli.kept import checked_trace, signed_project
from repro.cli.runs import read_manifest
from repro.comparability import FactResult, compare_stacks, conclude
from repro.compare import one_rank
from repro.facts import input_facts
from repro.manifest import Manifest
from repro.report.stack import stack_lines
from repro.verdict import Verdict

__all__ = ["command", "told_apart"]


def _inputs(run: Path, manifest: Manifest) -> tuple[dict[str, Any], str]:
    """Facts of what the run started from, and the digest of its lock."""
    written, locked = signed_project(run, manifest, run)
    facts = input_facts(
        written.spec,
        locked.lock,
        manifest.accelerator,
        environment=manifest.environment,
        host=manifest.host,
    )
    return facts, manifest.lock.digest


@click.command("diff")
@click.argument("first", metavar="A")
@click.argument("second", metavar="B")
@click.option("--detail", is_flag=True, help="Print every difference that was kept.")
@click.option(
    "--layout",
    is_flag=True,
    help="Add the ranks of each run up first: compare DDP, FSDP, pipelines and single processes.",
)
@options.as_json
def command(first: str, second: str, detail: bool, layout: bool, as_json: bool) -> int:
    """Say what differs between two run folders, or between two images, and why.

    Of runs, inputs that can explain the outputs come first. An image is one
    that the engine holds, an archive of `docker save`, or an OCI image layout;
    a run folder beside it stands for the image that ran. Nothing is verified:
    that is `repro verify`.

    \b
    Example:  repro diff manifests/pilot.cpu other/pilot.cpu
              repro diff my-image:monday my-image.tar
    Exit codes: 0 same, 1 could not do it, 2 usage, 3 differs, 4 could not tell.
    """
    if not (is_run(first) and is_run(second)):
        if layout:
            raise click.UsageError("--layout compares two run folders")
        return diff_images(first, second, detail=detail, as_json=as_json)
    return _diff_runs(Path(first), Path(second), detail=detail, layout=layout, as_json=as_json)


def told_apart(first: Path, second: Path, *, layout: bool = False) -> tuple[Verdict, tuple[FactResult, ...]]:
    """Compare two run folders by the rule of the first; also say what their stacks have in common.

    Args:
        layout: whether ranks are added up first, so that the two may be laid out differently.
    """
    a, b = read_manifest(first), read_manifest(second)
    stacks = compare_stacks(a, b.image, b.host, accelerator=b.accelerator)
    (facts_a, lock_a), (facts_b, lock_b) = _inputs(first, a), _inputs(second, b)
    traces = checked_trace(first, a.phases), checked_trace(second, b.phases)
    verdict = compare_runs(
        *(map(one_rank, traces) if layout else traces),
        manifest=a,
        environment=conclude(stacks),
        facts=(facts_a, facts_b),
        locks=(lock_a, lock_b),
    )
    return verdict, stacks


def _diff_runs(first: Path, second: Path, *, detail: bool, layout: bool, as_json: bool) -> int:
    verdict, stacks = told_apart(first, second, layout=layout)
    if as_json:
        print_json({**verdict.tree(), "stack": [fact.tree() for fact in stacks]})
        return OUTCOMES[verdict.outcome][1]
    code = say_verdict(verdict, detail=detail)
    for line in stack_lines(stacks):
        click.echo(line)
    return code
