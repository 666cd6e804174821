"""What verify, replay and report share: read the policy, verify a folder, say the check list."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click

from repro.adapters.clock import SystemClock
from repro.adapters.packing import unpack
from repro.adapters.runfolder import DiskRunFolder
from repro.attest.keyring import Trust, open_trust
from repro.attest.outcome import Verification
from repro.attest.paths import check_name
from repro.attest.verify import Demands, verify
from repro.bundle import BUNDLE_SUFFIX
from repro.cli.runs import not_a_run
from repro.errors import TrustError
from repro.report.verification import MARKS, verification_lines

__all__ = ["check_folder", "read_trust", "say_verification", "verify_folder", "verify_packed"]

COLOURS = {"passed": "green", "failed": "red", "not-made": "yellow"}
VERDICTS = {"VERIFIED": ("green", 0), "REJECTED": ("red", 3), "INCOMPLETE": ("yellow", 4)}


def read_trust(path: Path) -> Trust:
    """Read a trust policy and the key files beside it.

    Raises:
        SpecError: the policy has flaws.
        TrustError: a key file cannot be used.
    """

    def beside(name: str) -> bytes:
        try:
            return (path.parent / name).read_bytes()
        except OSError as error:
            reason = error.strerror or type(error).__name__
            raise TrustError(
                "E_TRUST",
                f"{name} cannot be read: {reason}",
                where=str(path),
                remedy="put the file beside trust.yaml, at the path written there",
            ) from None

    return open_trust(path.read_bytes(), beside, where=str(path))


def verify_folder(run: Path, trust_file: Path, demands: Demands | None = None) -> Verification:
    """Verify a run folder of this machine, now.

    Raises:
        FileError: `not-a-run` where neither a manifest nor a signature lies there.
    """
    _require_run(run, run)
    return check_folder(run, trust_file, demands)


def verify_packed(file: Path, trust_file: Path, demands: Demands | None = None) -> Verification:
    """Verify a file of `repro pack`, now: in a folder that only this person can read, and that is gone then.

    Raises:
        FileError: `pack-malformed`, or `not-a-run`.
        TrustError: kind `E_PATH`, where a name in it could mean another file somewhere.
    """
    with tempfile.TemporaryDirectory(prefix="repro-") as name:
        folder = Path(name) / "run"
        unpack(file, folder, check_name)
        _require_run(folder, file)
        return check_folder(folder, trust_file, demands)


def _require_run(folder: Path, shown: Path) -> None:
    if not (folder / "manifest.json").exists() and not any(folder.glob(f"*{BUNDLE_SUFFIX}")):
        raise not_a_run(shown)


def check_folder(run: Path, trust_file: Path, demands: Demands | None = None) -> Verification:
    """Verify whatever lies in a folder, now."""
    return verify(DiskRunFolder(run), read_trust(trust_file), now=SystemClock().now(), demands=demands)


def say_verification(verification: Verification, *, err: bool = False) -> int:
    """Print the check list and the verdict; return the exit code."""
    for state, line in verification_lines(verification):
        click.secho(f"{MARKS[state]} ", fg=COLOURS[state], nl=False, err=err)
        click.echo(line, err=err)
    colour, code = VERDICTS[verification.verdict]
    click.secho(verification.verdict, fg=colour, bold=True, nl=False, err=err)
    reason = f" {verification.code}" if verification.code else ""
    click.echo(f"{reason} run {(verification.run_id or 'unknown')[:12]}", err=err)
    return code
