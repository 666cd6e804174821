"""`repro matrix`: the accelerators of a project, one CI job each."""

from __future__ import annotations

import json
from pathlib import Path

import click

from repro.cli import options
from repro.cli.project import read_spec

__all__ = ["RUNNERS", "command"]

RUNNERS: dict[str, list[str]] = {
    "cpu": ["ubuntu-latest"],
    "cuda": ["self-hosted", "linux", "cuda"],
    "rocm": ["self-hosted", "linux", "rocm"],
}
"""Labels of a GitHub runner for each accelerator; a hint, for only the first is GitHub's own."""


@click.command("matrix")
@options.project
@options.as_json
def command(root: Path, as_json: bool) -> None:
    """List the accelerators of repro.yaml, one CI job for each.

    With --json it is one line, fit for `strategy.matrix` of a GitHub workflow.
    The runner's labels are a hint: give your own machines those labels, or map
    the accelerator to what you have.

    \b
    Example:  repro matrix --json
    Exit codes: 0 listed, 1 could not do it, 2 usage.
    """
    spec = read_spec(root).spec
    include = [{"accelerator": name, "runs_on": RUNNERS[name]} for name in spec.accelerators]
    if as_json:
        click.echo(json.dumps({"include": include}, separators=(",", ":")))
        return
    for entry in include:
        click.echo(f"{entry['accelerator']:6}{' '.join(entry['runs_on'])}")
