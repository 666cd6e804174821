"""Signed replays of a run against the policy's rule about them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from repro.attest.keyring import Trust
from repro.attest.outcome import CannotTell, ReplayFinding, Signature
from repro.attest.signature import examine_replay
from repro.attest.statements import Agreed
from repro.errors import TrustError
from repro.manifest import Manifest
from repro.statement import MANIFEST_NAME, RUN_PAYLOAD_NAME, ReplayStatement
from repro.strictjson import MAX_BYTES
from repro.trust import CLOCK_SKEW, Rule, parse_moment

if TYPE_CHECKING:
    from repro.ports import RunFolder

__all__ = ["apply_rule", "examine_replays"]


def examine_replays(
    folder: RunFolder,
    bundles: Sequence[str],
    *,
    trust: Trust,
    rule: Rule,
    run: Agreed,
    manifest: Manifest,
    now: datetime,
) -> tuple[ReplayFinding, ...]:
    """Say of each bundle below `replays/` who replayed, with what result, and whether the rule counts it."""
    return tuple(_examine(folder, name, trust, rule, run, manifest, now) for name in bundles)


def _examine(
    folder: RunFolder, name: str, trust: Trust, rule: Rule, run: Agreed, manifest: Manifest, now: datetime
) -> ReplayFinding:
    try:
        data = folder.read(name, limit=MAX_BYTES)
    except TrustError as error:
        signature = Signature(bundle=name, state="ignored", code=error.kind, reason=error.message)
        return ReplayFinding(signature=signature, result=None, counts=False, reason=error.message)
    signature, statement = examine_replay(data, name=name, trust=trust, now=now)
    if statement is None:
        return ReplayFinding(signature=signature, result=None, counts=False, reason=signature.reason)
    if elsewhere := _about_another_run(statement, run):
        return ReplayFinding(signature=signature, result=None, counts=False, reason=elsewhere)
    steps = next((phase.steps for phase in manifest.phases if phase.name == "full"), 0)
    objection = _objection(statement, signature, rule, run, steps, now)
    return ReplayFinding(
        signature=signature, result=statement.predicate.result, counts=not objection, reason=objection
    )


def _about_another_run(statement: ReplayStatement, run: Agreed) -> str:
    """The payload digest is the identity of a run; the other subjects must be that run's own."""
    payload = run.payload_digest.removeprefix("sha256:")
    expected = {RUN_PAYLOAD_NAME: payload}
    image = run.statement.predicate.image
    for subject in run.statement.subject:
        if subject.name == MANIFEST_NAME or (image is not None and subject.name == image.name):
            expected[subject.name] = subject.digest.sha256
    subjects = {subject.name: subject.digest.sha256 for subject in statement.subject}
    if statement.predicate.run.payload_digest.sha256 != payload or subjects != expected:
        return "it is about another run"
    return ""


def _objection(
    statement: ReplayStatement, signature: Signature, rule: Rule, run: Agreed, steps: int, now: datetime
) -> str:
    """Say why a replay does not count, or nothing."""
    predicate = statement.predicate
    compared = predicate.comparison
    if predicate.result != rule.result:
        return f"its result is {predicate.result}"
    if rule.independent_of_run_signers and signature.principal in run.principals:
        return f"{signature.principal} signed the run, so is not independent of it"
    if not 0 < compared.steps_compared == compared.steps_matched == steps:
        done = f"{compared.steps_compared} steps compared and {compared.steps_matched} matched"
        return f"{done}, of {steps} recorded"
    if compared.first_mismatch is not None:
        return "it names a mismatch"
    if surplus := sorted(set(predicate.environment.deviations) - set(rule.allowed_deviations)):
        return f"it deviates in {surplus[0]!a}, which the rule does not allow"
    try:
        started, created = parse_moment(predicate.started_at), parse_moment(predicate.time_created)
    except ValueError as error:
        return f"its times cannot be read: {error}"
    if created > now + CLOCK_SKEW:
        return f"it is said to end in the future, at {predicate.time_created}"
    return "" if started <= created else "it ended before it started"


def apply_rule(findings: Sequence[ReplayFinding], rule: Rule) -> str:
    """Count the principals that replayed the run and found it to hold.

    A FAILED replay by a principal of the rule vetoes, whoever else says PASSED. That a failed one
    was taken away cannot be seen, so absence never counts as success.

    Raises:
        TrustError: kind `E_REPLAYED` for a veto, or where too few count.
        CannotTell: where replays that could not be judged would decide.
    """
    for finding in findings:
        if finding.result == "FAILED":
            message = f"{finding.signature.principal} replayed the run, and it failed"
            raise TrustError("E_REPLAYED", message, where=finding.signature.bundle)
    counted = sorted({f.signature.principal for f in findings if f.counts and f.signature.principal})
    if any(finding.signature.state == "undecided" for finding in findings):
        raise CannotTell("a replay that could not be judged may be a veto")
    if len(counted) < rule.threshold:
        objections = [f"{f.signature.bundle}: {f.reason}" for f in findings if f.reason]
        message = f"{len(counted)} of {rule.threshold} independent principals replayed the run with success"
        raise TrustError("E_REPLAYED", "; ".join([message, *objections]))
    return f"{', '.join(counted)} replayed the run with success"
