"""Old runs, other runs, and what times may say."""

from __future__ import annotations

from datetime import datetime, timedelta

from repro.attest.demands import Demands
from repro.attest.outcome import CannotTell
from repro.attest.statements import Agreed
from repro.errors import TrustError
from repro.manifest import Manifest
from repro.trust import CLOCK_SKEW, TrustPolicy, parse_moment

__all__ = ["check_roll_back", "check_time", "future_phases"]


def check_roll_back(agreed: Agreed, policy: TrustPolicy, demands: Demands) -> str:
    """Refuse runs that were taken back, are too old by number, or are not the one asked for.

    Raises:
        TrustError: kind `E_REVOKED` or `E_REPLAY`.
    """
    predicate = agreed.statement.predicate
    if agreed.payload_digest in policy.revoked_payloads:
        raise TrustError("E_REVOKED", "the policy takes trust away from this very run")
    if demands.project not in (None, predicate.project):
        raise TrustError("E_REPLAY", f"the run is of project {predicate.project!a}, not {demands.project!a}")
    if demands.run_id not in (None, predicate.run_id):
        raise TrustError("E_REPLAY", f"the run is {predicate.run_id!a}, not {demands.run_id!a}")
    said = f"run number {predicate.sequence} of {predicate.project!a}"
    floor = policy.min_sequence.get(predicate.project)
    if floor is None:
        return f"{said}; the policy names no oldest one"
    if predicate.sequence < floor:
        raise TrustError("E_REPLAY", f"{said} is older than {floor}, the oldest believed")
    return f"{said}, {floor} or later is believed"


def check_time(
    agreed: Agreed, policy: TrustPolicy, now: datetime, max_age: timedelta | None
) -> tuple[str, list[str]]:
    """Read the time the signer wrote, and say how keys were judged.

    That time is a claim: in the future it gives a warning, unless the policy refuses it.

    Returns:
        what was found, and warnings.

    Raises:
        TrustError: kind `E_TIME`.
        CannotTell: where an age was demanded and nothing proves one.
    """
    created = agreed.statement.predicate.created_at
    try:
        moment = parse_moment(created)
    except ValueError as error:
        raise TrustError("E_TIME", f"createdAt is {created!a}: {error}") from None
    warnings = []
    if moment > now + CLOCK_SKEW:
        if policy.future_times == "refuse":
            raise TrustError("E_TIME", f"createdAt {created} is in the future, which the policy refuses")
        warnings.append(f"signed-in-the-future: the run is said to be made at {created}")
    times = sorted({signature.time or "" for signature in agreed.signatures})
    if max_age is not None:
        _check_age(times, now, max_age)
    return f"signers say {created}; keys judged by {', '.join(times)}", warnings


def _check_age(times: list[str], now: datetime, limit: timedelta) -> None:
    proved = [parse_moment(time.rpartition(" ")[2]) for time in times if time != "now"]
    if not proved:
        raise CannotTell("an age was demanded, and no time stamp proves one")
    if now - max(proved) > limit:
        raise TrustError("E_TIME", f"the latest time stamp, {max(proved):%Y-%m-%dT%H:%M:%SZ}, is too old")


def future_phases(manifest: Manifest, now: datetime) -> list[str]:
    """Warn of phases that are said to start in the future. Such times are claims, and decide nothing.

    Raises:
        TrustError: kind `E_TIME` for what is no time.
    """
    warnings = []
    for phase in manifest.phases:
        try:
            future = parse_moment(phase.started_at) > now + CLOCK_SKEW
        except ValueError:
            message = f"{phase.started_at!a} is no time"
            raise TrustError("E_TIME", message, where=f"phase {phase.name}") from None
        if future:
            warnings.append(
                f"signed-in-the-future: phase {phase.name} is said to start at {phase.started_at}"
            )
    return warnings
