"""`repro run`: the pilot, or any command, recorded; nothing is signed."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from repro.adapters.publish import publish
from repro.adapters.tracefiles import open_trace
from repro.cli import options
from repro.cli.console import Console, print_json
from repro.cli.flow import Ready, ready
from repro.cli.pilot import probe_pilot, prove_pilot, record_pilot, scratch
from repro.cli.project import locked_project
from repro.digest import pretty_json
from repro.measurement import PhaseMeasurement, measure_phase
from repro.proof import Proof
from repro.report.measurement import measurement_lines
from repro.report.proof import proof_lines
from repro.report.saved import saved_lines
from repro.report.words import count, duration, printable
from repro.run import PilotRun, run_command

__all__ = ["command"]


def _record(
    opened: Ready, folder: Path, console: Console, *, prove: bool, probe: bool
) -> tuple[PilotRun, Proof | None]:
    """Record the pilot and what was asked for beside it; a proof needs the full phase only."""
    proof = None
    if prove:
        run, proof = prove_pilot(opened, folder, console)
    else:
        run = record_pilot(opened, folder, console)
    if probe:
        run = replace(run, phases=(*run.phases, probe_pilot(opened, folder, console)))
    return run, proof


def _say(run: PilotRun, measured: list[PhaseMeasurement], proof: Proof | None) -> None:
    """Say it to a person."""
    for phase, found in zip(run.phases, measured, strict=True):
        ranks = count(phase.world_size, "rank")
        click.echo(f"{phase.name:12}{count(phase.steps, 'step')}, {ranks}, {duration(phase.milliseconds)}")
        for line in measurement_lines(found) if phase.name != "bare" else ():
            click.echo(f"{'':12}{line}")
    if run.checkpoint is not None and run.checkpoint.saved is not None:
        for at, line in enumerate(saved_lines(run.checkpoint.saved)):
            click.echo(f"{'' if at else 'checkpoint':12}{printable(line)}")
    for at, line in enumerate(proof_lines(proof) if proof is not None else ()):
        click.echo(f"{'' if at else 'proof':12}{printable(line)}")


def _keep(run: PilotRun, folder: Path) -> None:
    traces = {file.path: run.folder / file.path for phase in run.phases for file in phase.trace}
    publish(folder, {"phases.json": pretty_json([phase.tree() for phase in run.phases])}, traces)


@click.command("run", context_settings={"ignore_unknown_options": True})
@options.project
@options.accelerator
@options.engine_runtime
@click.option(
    "--keep", type=click.Path(path_type=Path, file_okay=False), help="Keep the traces in this folder."
)
@click.option("--prove", is_flag=True, help="Run bare and recorded, and show that recording changes nothing.")
@click.option("--fp32-probe", "probe", is_flag=True, help="Record the first steps once more, in float32.")
@click.argument("words", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND...]")
@options.quiet
@options.as_json
def command(
    root: Path,
    accelerator: str | None,
    runtime: str,
    keep: Path | None,
    prove: bool,
    probe: bool,
    words: tuple[str, ...],
    quiet: bool,
    as_json: bool,
) -> int:
    """Run the pilot, or any command, in the image and record it.

    With a COMMAND its output goes to stderr and its exit code is returned.

    \b
    Example:  repro run -a cpu
              repro run -a cpu -- python -c 'import torch; print(torch.__version__)'
    Exit codes: 0 ran, 1 could not do it, 2 usage; with a COMMAND, its own. With
    --prove: 3 recording changed the run, 4 could not tell.
    """
    if words and (prove or probe):
        raise click.UsageError("--prove and --fp32-probe are for the pilot, not for a COMMAND")
    written, locked, name = locked_project(root, accelerator)
    with (
        Console(quiet=quiet or as_json) as console,
        ready(written, locked, name, kind=runtime, console=console) as opened,
        scratch() as folder,
    ):
        if words:
            console.start("run")
            result = run_command(opened.project, words, folder, runtime=opened.runtime, on_line=console.line)
            if as_json:
                print_json(result.tree())
            return result.exit_code
        run, proof = _record(opened, folder, console, prove=prove, probe=probe)
        if keep is not None:
            _keep(run, keep)
        measured = [measure_phase(phase) for phase in open_trace(run.folder, run.phases).phases]
    if as_json:
        print_json(
            {
                "phases": [phase.tree() for phase in run.phases],
                "measurements": [one.tree() for one in measured],
                "checkpoint": run.checkpoint.tree() if run.checkpoint else None,
                "proof": {**proof.tree(), "proven": proof.proven} if proof else None,
            }
        )
    else:
        _say(run, measured, proof)
    return 0 if proof is None else {True: 0, False: 3, None: 4}[proof.proven]
