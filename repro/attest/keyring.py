"""A trust policy together with the key material it names."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime

from repro.attest.publickey import PublicKey, load_public_key
from repro.digest import Digest, digest_bytes
from repro.errors import TrustError
from repro.trust import Authority, TimeAuthority, TrustedKey, TrustPolicy, parse_moment, parse_policy

__all__ = ["Material", "ReadBeside", "Trust", "open_trust"]

ReadBeside = Callable[[str], bytes]
"""Reads a file named in the trust policy, relative to it."""


@dataclass(frozen=True, slots=True)
class Material:
    """PEM files of the authorities, by the names the policy gives them."""

    authorities: tuple[tuple[Authority, tuple[bytes, ...], tuple[bytes, ...]], ...]
    """Authority, its roots, its intermediates."""
    time_authorities: tuple[tuple[TimeAuthority, bytes, bytes], ...]
    """Authority, its certificate, the root above it."""


@dataclass(frozen=True, slots=True)
class Trust:
    """What an auditor believes, ready to be applied."""

    policy: TrustPolicy
    digest: Digest
    """Of the bytes of `trust.yaml`."""
    keys: tuple[tuple[TrustedKey, PublicKey], ...]
    material: Material

    def expired(self, now: datetime) -> bool:
        """Say whether the policy's own time is over."""
        return self.policy.expires is not None and parse_moment(self.policy.expires) <= now


def open_trust(data: bytes, read: ReadBeside, *, where: str) -> Trust:
    """Read a trust policy and every file it names.

    Args:
        data: the bytes of `trust.yaml`.
        read: gives the bytes of a file beside it.
        where: name of the policy, for messages.

    Raises:
        SpecError: kind `E_YAML` or `E_TRUST`, with every flaw of the policy.
        TrustError: kind `E_KEY` for a file that is no key that may sign, `E_TRUST` for a key under another
            key's fingerprint.
    """
    policy = parse_policy(data, where=where)
    material = Material(
        tuple(
            (ca, tuple(read(name) for name in ca.roots), tuple(read(name) for name in ca.intermediates))
            for ca in policy.cas
        ),
        tuple((tsa, read(tsa.certificate), read(tsa.root)) for tsa in policy.tsas),
    )
    return Trust(policy, digest_bytes(data), tuple((key, _open(key, read)) for key in policy.keys), material)


def _open(key: TrustedKey, read: ReadBeside) -> PublicKey:
    opened = load_public_key(read(key.file), where=key.file)
    if opened.fingerprint != key.fingerprint:
        message = f"the key's fingerprint is {opened.fingerprint}, but the policy says {key.fingerprint}"
        remedy = "ask the key's owner for the fingerprint, by another way than the key came"
        raise TrustError("E_TRUST", message, where=key.file, remedy=remedy)
    return opened
