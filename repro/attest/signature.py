"""One bundle against a trust policy: whose signature it is, and whether it counts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from repro.attest.envelope import OpenedBundle, open_bundle
from repro.attest.keyring import Trust
from repro.attest.outcome import CannotTell, Signature
from repro.errors import TrustError
from repro.statement import REPLAY_TYPE, RUN_TYPE, ReplayStatement, RunStatement
from repro.statement import parse_replay_statement as parse_replay
from repro.statement import parse_run_statement as parse_run
from repro.trust import TrustedKey, parse_moment

__all__ = ["examine_replay", "examine_run"]


def examine_run(
    data: bytes, *, name: str, trust: Trust, now: datetime
) -> tuple[Signature, RunStatement | None]:
    """Examine a bundle that should hold the signature of a run. Never raises for what the bundle holds."""
    return _examine(data, name, trust, now, RUN_TYPE, parse_run)


def examine_replay(
    data: bytes, *, name: str, trust: Trust, now: datetime
) -> tuple[Signature, ReplayStatement | None]:
    """Examine a bundle that should hold the signature of a replay. Never raises for what the bundle holds."""
    return _examine(data, name, trust, now, REPLAY_TYPE, parse_replay)


def _examine(
    data: bytes, name: str, trust: Trust, now: datetime, kind: str, parse: Any
) -> tuple[Signature, Any]:
    known: dict[str, Any] = {}
    try:
        opened = open_bundle(data, where=name)
        known["payload_digest"] = opened.payload_digest
        known |= _signer(opened, trust, now, name)
        statement = parse(opened.payload, where=f"{name}: payload")
        rule = trust.policy.rule(kind)
        if rule is None or known["principal"] not in rule.principals:
            message = f"{known['principal']} is not trusted to sign statements of this kind"
            raise TrustError("E_KEY", message, where=name)
    except TrustError as error:
        return Signature(bundle=name, state="ignored", code=error.kind, reason=error.message, **known), None
    except CannotTell as reason:
        return Signature(bundle=name, state="undecided", reason=str(reason), **known), None
    return Signature(bundle=name, state="counts", **known), statement


def _signer(opened: OpenedBundle, trust: Trust, now: datetime, name: str) -> dict[str, Any]:
    if opened.certificate is not None:
        from repro.attest.certificate import certified_signer

        return certified_signer(opened, trust, now, where=name)
    message = opened.message
    ordered = sorted(trust.keys, key=lambda pair: pair[1].hint != opened.hint)
    for entry, key in ordered:
        if key.verifies(opened.signature, message):
            time = _key_time(entry, opened, trust, now, name)
            return {
                "principal": entry.principal,
                "fingerprint": key.fingerprint,
                "method": "key",
                "time": time,
            }
    raise TrustError("E_SIG", "no trusted key made this signature" + _ed25519ph(opened, trust), where=name)


def _ed25519ph(opened: OpenedBundle, trust: Trust) -> str:
    """Cosign 3.1 signs Ed25519ph and calls it Ed25519 (sigstore/cosign pull request 5074)."""
    hinted = any(key.kind == "ed25519" and key.hint == opened.hint for _, key in trust.keys)
    if not hinted or len(opened.signature) != 64:
        return ""
    return "; if cosign 3.1 made it, it is Ed25519ph, which DSSE verifiers do not accept"


def _key_time(entry: TrustedKey, opened: OpenedBundle, trust: Trust, now: datetime, name: str) -> str:
    """Say by which time the key is good.

    Raises:
        TrustError: kind `E_KEY` where it is not.
        CannotTell: where a time stamp cannot be checked here.
    """
    if entry.status == "active" and _inside(entry, now):
        return "now"
    why = entry.status if entry.status != "active" else _outside(entry, now)
    from repro.attest.timestamp import stamped

    for authority, moment in stamped(opened, trust, where=name):
        before = entry.revoked_from is None or moment < parse_moment(entry.revoked_from)
        if _inside(entry, moment) and before:
            return f"{authority} {moment:%Y-%m-%dT%H:%M:%SZ}"
    raise TrustError(
        "E_KEY", f"the key is {why}, and no trusted time stamp is from when it was good", where=name
    )


def _inside(entry: TrustedKey, moment: datetime) -> bool:
    after = entry.not_before is None or parse_moment(entry.not_before) <= moment
    return after and (entry.not_after is None or moment < parse_moment(entry.not_after))


def _outside(entry: TrustedKey, now: datetime) -> str:
    early = entry.not_before is not None and now < parse_moment(entry.not_before)
    return f"not valid before {entry.not_before}" if early else f"expired since {entry.not_after}"
