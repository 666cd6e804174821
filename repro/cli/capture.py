"""`repro capture`: the main job, from `repro.yaml` to a signed run folder."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.clock import SystemClock
from repro.adapters.publish import check_place, put, turn
from repro.adapters.tracefiles import open_trace
from repro.attest.sign import run_payload
from repro.capture import Captured, capture
from repro.cli import options
from repro.cli.calibrating import calibrated_run
from repro.cli.console import Console, print_json
from repro.cli.flow import Ready, ready
from repro.cli.machine import facts_of_run
from repro.cli.pilot import record_pilot, scratch
from repro.cli.project import Locked, Written, locked_project
from repro.cli.runs import next_sequence
from repro.cli.signing import OpenedSigning, Signing
from repro.compare import compare_resume, self_replay
from repro.errors import RunError
from repro.manifest import CalibrationRecord
from repro.report.manifest import manifest_lines
from repro.run import FEWEST, PilotRun
from repro.verdict import Verdict

__all__ = ["command"]


def _claims(run: PilotRun) -> tuple[Verdict | None, Verdict | None]:
    """Whether the run repeats itself, and whether it resumes exactly; None where repro.yaml tests neither."""
    trace = open_trace(run.folder, run.phases)
    names = {phase.name for phase in run.phases}
    if "resumed" not in names:
        return None, None
    full = trace.phase("full")
    repeated = self_replay(full, trace.phase("interrupted"))
    return repeated, compare_resume(full, trace.phase("resumed"))


def _captured(
    opened: Ready,
    written: Written,
    locked: Locked,
    name: str,
    run: PilotRun,
    calibration: CalibrationRecord | None,
    sequence: int,
) -> Captured:
    repeated, resumed = _claims(run)
    return capture(
        run,
        spec=written.spec,
        lock=locked.lock,
        accelerator=name,
        documents={"repro.yaml": written.data, **locked.documents},
        image=opened.image,
        host=facts_of_run(run, opened.engine),
        reproduced_itself=repeated,
        resumed_exactly=resumed,
        calibration=calibration,
        sequence=sequence,
        clock=SystemClock(),
    )


def _publish(captured: Captured, target: Path, opened: OpenedSigning) -> None:
    bundle = opened.bundle(run_payload(captured.documents["manifest.json"]))
    documents = {**captured.documents, opened.bundle_name: bundle}
    put(target, documents, captured.traces)


def _require_claims(captured: Captured, allow: bool) -> None:
    """A run that does not restore is not what the person asked to sign, unless they say so."""
    for label, verdict in (
        ("does not repeat itself", captured.manifest.reproduced_itself),
        ("does not resume exactly", captured.manifest.resumed_exactly),
    ):
        if verdict is not None and not verdict.reproduced and not allow:
            raise RunError(
                "pilot-not-exact",
                f"the pilot {label}: {verdict.sentence}",
                where="capture",
                remedy="mend the pilot; or sign it as it is with --allow-inexact, and the manifest says so",
            )


@click.command("capture")
@options.project
@options.accelerator
@options.engine_runtime
@options.signing_key
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for run folders.  [default: manifests in the project]",
)
@click.option(
    "--calibrate",
    type=click.IntRange(min=FEWEST),
    metavar="K",
    help=f"Run K times more under harmless perturbations, and two controls: how far may a replay on another "
    f"machine be? At least {FEWEST}.",
)
@click.option(
    "--allow-inexact", is_flag=True, help="Sign a run that does not repeat itself or resume exactly."
)
@options.quiet
@options.as_json
def command(
    root: Path,
    accelerator: str | None,
    runtime: str,
    signing: Signing,
    out: Path | None,
    calibrate: int | None,
    allow_inexact: bool,
    quiet: bool,
    as_json: bool,
) -> None:
    """Lock check, build, run and sign: repro.yaml to a signed run folder.

    The pilot runs in full, again up to its checkpoint, and on from there in a
    new process; every step of every rank is recorded.

    \b
    Example:  repro capture -a cpu --key keys/train.key
    Exit codes: 0 signed, 1 could not do it, 2 usage.
    """
    written, locked, name = locked_project(root, accelerator)
    target = (out or written.root / "manifests") / f"{written.spec.name}.{name}"
    check_place(target)
    next_sequence(target, written.spec.name)
    signer = signing.open()
    with (
        Console(quiet=quiet or as_json) as console,
        ready(written, locked, name, kind=runtime, console=console) as opened,
        scratch() as folder,
    ):
        recorded = record_pilot(opened, folder, console, calibration_runs=calibrate or 0)
        run, calibration = calibrated_run(recorded, console)
        console.start("sign")
        with turn(target.parent):
            sequence = next_sequence(target, written.spec.name)
            captured = _captured(opened, written, locked, name, run, calibration, sequence)
            _require_claims(captured, allow_inexact)
            _publish(captured, target, signer)
    if as_json:
        print_json({"run": str(target), "manifest": captured.manifest.model_dump(mode="json", by_alias=True)})
        return
    click.echo(f"signed run {target}")
    for line in manifest_lines(captured.manifest):
        click.echo(line)
