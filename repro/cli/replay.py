"""`repro replay`: a signed run, run again and judged."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.clock import SystemClock
from repro.adapters.files import write_atomic
from repro.attest.verify import Demands
from repro.cli import options
from repro.cli.again import run_again
from repro.cli.annotating import Annotate, annotated, place_of_run
from repro.cli.console import Console, print_json
from repro.cli.flow import Ready, ready
from repro.cli.judging import OUTCOMES, Judged, judge, keep, say_verdict, sign_replay
from repro.cli.kept import checked_trace, signed_project
from repro.cli.localising import Localising
from repro.cli.pilot import PHASES, scratch
from repro.cli.project import Locked, Written, locked_project
from repro.cli.shipping import signed_image
from repro.cli.signing import Signing
from repro.cli.verifying import VERDICTS, read_trust, say_verification, verify_folder
from repro.errors import RunError, TrustError
from repro.manifest import VerifiedManifest
from repro.replay import replay
from repro.report.annotations import verdict_annotations, verification_annotations
from repro.report.summary import summary_markdown
from repro.verdict import Verdict

__all__ = ["command", "replay_run"]


def _require_signed_image(opened: Ready, verified: VerifiedManifest) -> None:
    signed = verified.manifest.image
    if signed is None or opened.image is None:
        return
    if opened.image.identity != signed.identity:
        raise RunError(
            "image-differs",
            f"the image built from the signed lock is {opened.image.identity.config_digest}, "
            f"and {signed.identity.config_digest} was signed",
            remedy="ask `repro build --check` why it differs",
        )


def _replayed(
    run: Path,
    verified: VerifiedManifest,
    signed: tuple[Written, Locked],
    now: tuple[Written, Locked],
    opened: Ready,
    folder: Path,
    console: Console,
) -> Judged:
    repeated = replay(
        verified,
        opened.project,
        folder,
        runtime=opened.runtime,
        clock=SystemClock(),
        on_phase=lambda name: console.start(PHASES[name]),
        on_line=lambda line: console.advance(0, note=line),
    )
    console.start("compare")
    return run_again(judge(run, verified, signed, now, opened, repeated), opened, folder, console)


def replay_run(
    run: Path, trust: Path, root: Path, *, runtime: str, image: str | None, console: Console
) -> Verdict:
    """Verify a run, run it again as it was signed, and judge it.

    Args:
        image: where the signed image lies, as `repro.cli.shipping.signed_image` has it.

    Raises:
        TrustError: the run is not verified.
    """
    verification = verify_folder(run, trust, Demands(replays=False))
    if verification.manifest is None:
        failed = next((one for one in verification.checks if one.code), None)
        raise TrustError(
            verification.code or "E_POLICY",
            failed.detail if failed else "the run is not verified",
            where=str(run),
        )
    verified = verification.manifest
    signed = signed_project(run, verified.manifest, root)
    supply = signed_image(image, verified.manifest, console)
    with (
        ready(*signed, verified.manifest.accelerator, kind=runtime, console=console, supply=supply) as opened,
        scratch() as folder,
    ):
        _require_signed_image(opened, verified)
        return _replayed(run, verified, signed, signed, opened, folder, console).verdict


@click.command("replay")
@options.run_folder
@options.trust
@options.project
@options.engine_runtime
@click.option(
    "--image",
    "image_in",
    metavar="SOURCE",
    help="Where the signed image lies: `engine` (the default), `oci://REGISTRY/REPOSITORY[:TAG]`, "
    "a folder with an OCI layout, or an archive of `docker save` or of such a layout.",
)
@click.option(
    "--current", is_flag=True, help="Replay with the project as it stands now, not as it was signed."
)
@click.option("--sign", "asked", is_flag=True, help="Sign the verdict, whatever it is, into RUN/replays.")
@options.optional_key
@click.option(
    "--report", type=click.Path(path_type=Path, dir_okay=False), help="Write a Markdown summary here."
)
@click.option(
    "--keep", "kept", type=click.Path(path_type=Path, file_okay=False), help="Keep verdict and traces here."
)
@click.option(
    "--localize",
    "localizing",
    is_flag=True,
    help="Where it diverges, run that step on both sides once more and name the first module that departs.",
)
@click.option("--detail", is_flag=True, help="Print every difference that was kept.")
@options.quiet
@options.as_json
@annotated
def command(
    run: Path,
    trust_file: Path,
    root: Path,
    runtime: str,
    image_in: str | None,
    current: bool,
    asked: bool,
    signing: Signing | None,
    report: Path | None,
    kept: Path | None,
    localizing: bool,
    detail: bool,
    quiet: bool,
    as_json: bool,
    annotate: Annotate,
) -> int:
    """Verify a run, run it again, and say whether it is the same.

    The signed image is used where --image or the engine has it, and rebuilt
    from the signed lock where not; another image is refused. The project's
    folder gives data sets, and the source for a rebuild. Nothing runs before
    the run is verified.

    \b
    Example:  repro replay manifests/pilot.cpu --trust trust.yaml
              repro replay manifests/pilot.cpu --trust trust.yaml --image oci://registry.example/team/pilot
    Exit codes: 0 reproduced, 1 could not do it, 2 usage, 3 rejected or diverged, 4 could not tell.
    """
    if asked and signing is None:
        raise click.UsageError("--sign needs --key")
    if image_in is not None and (current or runtime == "host"):
        raise click.UsageError("--image is where the signed image lies: not for --current or --runtime host")
    signer = signing.open() if asked and signing else None
    verification = verify_folder(run, trust_file, Demands(replays=False))
    if verification.manifest is None:
        annotate(verification_annotations(verification, place_of_run(run)))
        if as_json:
            print_json({"verification": verification.tree(), "verdict": None})
            return VERDICTS[verification.verdict][1]
        return say_verification(verification)
    verified = verification.manifest
    accelerator = verified.manifest.accelerator
    signed = signed_project(run, verified.manifest, root)
    console = Console(quiet=quiet or as_json)
    now, supply = signed, None if current else signed_image(image_in, verified.manifest, console)
    if current:
        written, locked, _ = locked_project(root, accelerator)
        now = (written, locked)
    with (
        console,
        ready(*now, accelerator, kind=runtime, console=console, supply=supply) as opened,
        scratch() as folder,
    ):
        if not current:
            _require_signed_image(opened, verified)
        judged = _replayed(run, verified, signed, now, opened, folder, console)
        if localizing:
            both = Localising(
                signed=signed,
                accelerator=accelerator,
                opened=opened,
                current=current,
                runtime=runtime,
                folder=folder,
                console=console,
            )
            judged = judged.localised(both, checked_trace(run, verified.manifest.phases))
        if kept is not None:
            keep(judged, kept)
        if signer is not None:
            sign_replay(run, verification, judged, opened, read_trust(trust_file), signer)
    annotate(verdict_annotations(judged.verdict, place_of_run(run)))
    if report is not None:
        title = f"Replay of {verified.manifest.project} ({accelerator})"
        text = summary_markdown(verified.manifest, verification, judged.verdict, title=title)
        write_atomic(report, text.encode())
    if as_json:
        print_json({"verification": verification.tree(), "verdict": judged.verdict.tree()})
        return OUTCOMES[judged.verdict.outcome][1]
    return say_verdict(judged.verdict, detail=detail)
