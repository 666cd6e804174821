"""Signed updates of a trust policy: a new one counts when old and new root keys signed it, and it is newer.

The rule is that of The Update Framework's root role: version N+1 is signed by a threshold of N and of N+1.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Final

from repro.attest.envelope import OpenedBundle, open_bundle
from repro.attest.keyring import Trust
from repro.digest import canonical_json, digest_bytes, hex_of
from repro.errors import TrustError
from repro.statement import STATEMENT_TYPE
from repro.trust import TRUST_SCHEMA, TrustPolicy, parse_moment

__all__ = ["POLICY_NAME", "check_update", "policy_payload"]

POLICY_NAME: Final = "trust.yaml"


def policy_payload(data: bytes, policy: TrustPolicy) -> bytes:
    """The statement about a policy: its bytes and its version. Everyone who signs it signs the same."""
    return canonical_json(
        {
            "_type": STATEMENT_TYPE,
            "predicateType": TRUST_SCHEMA,
            "subject": [{"name": POLICY_NAME, "digest": {"sha256": hex_of(digest_bytes(data))}}],
            "predicate": {"version": policy.version},
        }
    )


def check_update(
    old: Trust, new: Trust, data: bytes, bundles: Mapping[str, bytes], now: datetime
) -> tuple[str, ...]:
    """Say who signed a new policy, if that is enough for it to take the old one's place.

    Args:
        old: the policy in force.
        new: the one that is to replace it.
        data: the new one's bytes.
        bundles: signatures that came with it, by name. Those that count for nothing are passed over.
        now: the reader's time, aware.

    Raises:
        TrustError: kind `E_TRUST`.
    """
    if new.policy.version <= old.policy.version:
        message = f"version {new.policy.version} does not come after {old.policy.version}"
        raise TrustError("E_TRUST", message, remedy="obtain the latest policy")
    if new.expired(now):
        raise TrustError("E_TRUST", f"the new policy is expired since {new.policy.expires}")
    expected = policy_payload(data, new.policy)
    opened = [found for name, bundle in bundles.items() if (found := _about(bundle, name, expected))]
    signers: set[str] = set()
    for which, trust in (("old", old), ("new", new)):
        root = trust.policy.root
        if root is None:
            message = f"the {which} policy names no root keys, so nobody may sign updates of it"
            raise TrustError("E_TRUST", message, remedy="edit your policy by hand, and say who may: `root`")
        holders = _holders(trust, opened, now)
        if len(holders) < root.threshold:
            message = (
                f"{len(holders)} of {root.threshold} root principals of the {which} policy signed the new one"
            )
            raise TrustError("E_TRUST", message)
        signers |= holders
    return tuple(sorted(signers))


def _about(data: bytes, name: str, expected: bytes) -> OpenedBundle | None:
    try:
        opened = open_bundle(data, where=name)
    except TrustError:
        return None
    return opened if opened.payload == expected else None


def _holders(trust: Trust, opened: list[OpenedBundle], now: datetime) -> set[str]:
    """Principals whose root keys are good now and made one of the signatures."""
    assert trust.policy.root is not None
    return {
        entry.principal
        for entry, key in trust.keys
        if entry.fingerprint in trust.policy.root.keys
        and entry.status == "active"
        and (entry.not_before is None or parse_moment(entry.not_before) <= now)
        and (entry.not_after is None or now < parse_moment(entry.not_after))
        and any(key.verifies(bundle.signature, bundle.message) for bundle in opened)
    }
