"""Compare a replay with what was signed, say the verdict, and make the statement about it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from repro.adapters.clock import SystemClock
from repro.adapters.files import write_atomic
from repro.adapters.publish import publish
from repro.adapters.tracefiles import open_trace
from repro.attest.keyring import Trust
from repro.attest.outcome import Verification
from repro.attest.replayed import Replayed, replay_payload
from repro.cli.flow import Ready
from repro.cli.kept import checked_trace
from repro.cli.localising import Localising
from repro.cli.machine import facts_of_run
from repro.cli.project import Locked, Written
from repro.cli.signing import OpenedSigning
from repro.comparability import comparability
from repro.compare import compare
from repro.digest import digest_bytes, pretty_json
from repro.facts import input_facts
from repro.host import HostFacts
from repro.manifest import Manifest, VerifiedManifest
from repro.report.verdict import verdict_lines
from repro.run import PilotRun
from repro.trace import Trace
from repro.verdict import Comparability, Outcome, Verdict

__all__ = ["OUTCOMES", "Judged", "compare_runs", "judge", "keep", "say_verdict", "sign_replay"]

OUTCOMES = {
    Outcome.BITWISE: ("green", 0),
    Outcome.WITHIN_TOLERANCE: ("green", 0),
    Outcome.DIVERGED: ("red", 3),
    Outcome.INCOMPARABLE: ("yellow", 4),
}
"""Colour and exit code of each outcome."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Judged:
    """A replay and what came of it."""

    verdict: Verdict
    run: PilotRun
    host: HostFacts

    def localised(self, both: Localising, target: Trace) -> Judged:
        """The same, with the module where the replay parts from the target."""
        candidate = open_trace(self.run.folder, self.run.phases)
        return replace(self, verdict=both.of(self.verdict, target, candidate))


def judge(
    run: Path,
    verified: VerifiedManifest,
    signed: tuple[Written, Locked],
    now: tuple[Written, Locked],
    opened: Ready,
    replayed: PilotRun,
) -> Judged:
    """Come to a verdict about a replay.

    Args:
        run: the signed run folder, which was verified.
        signed: spec and lock of the signed run.
        now: spec and lock of the replay; the same where the run was replayed as it was signed.
    """
    manifest = verified.manifest
    accelerator = manifest.accelerator
    host = facts_of_run(replayed, opened.engine)
    target_facts = input_facts(
        signed[0].spec, signed[1].lock, accelerator, environment=manifest.environment, host=manifest.host
    )
    candidate_facts = input_facts(
        now[0].spec, now[1].lock, accelerator, environment=replayed.environment, host=host
    )
    verdict = compare_runs(
        checked_trace(run, manifest.phases),
        open_trace(replayed.folder, replayed.phases),
        manifest=manifest,
        environment=comparability(manifest, opened.image, host),
        facts=(target_facts, candidate_facts),
        locks=(_lock_digest(signed), _lock_digest(now)),
    )
    return Judged(verdict=verdict, run=replayed, host=host)


def compare_runs(
    target: Trace,
    candidate: Trace,
    *,
    manifest: Manifest,
    environment: Comparability,
    facts: tuple[Mapping[str, Any], Mapping[str, Any]],
    locks: tuple[str, str],
) -> Verdict:
    """Compare two runs by the rule of the first; equal numbers from other inputs are no replay."""
    asked = partial(
        compare, target, candidate, tolerance=manifest.tolerance, environment=environment, facts=facts
    )
    verdict = asked()
    return asked(locks=locks) if verdict.reproduced and locks[0] != locks[1] else verdict


def _lock_digest(project: tuple[Written, Locked]) -> str:
    return digest_bytes(project[1].documents["repro.lock"])


def keep(judged: Judged, folder: Path) -> None:
    """Keep a replay's verdict and traces in a folder of their own, for `repro report` and `repro diff`."""
    documents = {
        "verdict.json": pretty_json(judged.verdict.tree()),
        "phases.json": pretty_json([phase.tree() for phase in judged.run.phases]),
        "host.json": pretty_json(judged.host.tree()),
    }
    traces = {file.path: judged.run.folder / file.path for phase in judged.run.phases for file in phase.trace}
    publish(folder, documents, traces)


def sign_replay(
    run: Path,
    verification: Verification,
    judged: Judged,
    opened: Ready,
    trust: Trust,
    signing: OpenedSigning,
) -> Path:
    """Sign what a replay found, whatever it is, and put it into the run folder's `replays/`."""
    verified = verification.manifest
    assert verified is not None
    now = SystemClock().now()
    payload = replay_payload(
        verified,
        digest_bytes((run / "manifest.json").read_bytes()),
        Replayed(
            verdict=judged.verdict,
            phases=judged.run.phases,
            host=judged.host,
            image_digest=opened.image.identity.config_digest if opened.image else None,
            replayer=signing.name,
            signers=[s.fingerprint for s in verification.signatures if s.state == "counts" and s.fingerprint],
            policy_digest=trust.digest,
            deviations=[explanation.sentence for explanation in judged.verdict.explanations],
        ),
        now=now,
    )
    target = run / "replays" / signing.bundle_name
    write_atomic(target, signing.bundle(payload))
    return target


def say_verdict(verdict: Verdict, *, detail: bool = False) -> int:
    """Print the outcome and what there is to say; return the exit code."""
    colour, code = OUTCOMES[verdict.outcome]
    click.secho(str(verdict.outcome), fg=colour, bold=True, nl=False)
    for index, line in enumerate(verdict_lines(verdict, detail=detail)):
        click.echo(f"  {line}" if index == 0 else line)
    return code
