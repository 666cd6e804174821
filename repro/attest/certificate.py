"""Signers known by a certificate of a private authority, instead of by their key.

A chain that comes with a bundle is never looked at: roots and intermediates
are those of the trust policy. RFC 5280 path building and checking is that of
`cryptography.x509.verification`.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

from repro.attest.envelope import OpenedBundle
from repro.attest.keyring import Trust
from repro.attest.publickey import public_key
from repro.attest.timestamp import load_certificate, stamped
from repro.errors import TrustError
from repro.trust import Identity

__all__ = ["certified_signer"]


def certified_signer(opened: OpenedBundle, trust: Trust, now: datetime, *, where: str) -> dict[str, Any]:
    """Say who signed a bundle that carries a certificate.

    Returns:
        principal, fingerprint of the public key, method, and the time that validity was judged by.

    Raises:
        TrustError: kind `E_BUNDLE` where the policy knows no authorities, `E_CERT`, `E_SIG` or `E_TIME`.
        CannotTell: where a time stamp would decide and cannot be read here.
    """
    if not trust.policy.cas or opened.certificate is None:
        raise TrustError("E_BUNDLE", "it carries a certificate, and the policy trusts keys only", where=where)
    leaf = _load_leaf(opened.certificate, where)
    try:
        key = public_key(leaf.public_key(), where=where)
    except TrustError as error:
        raise TrustError("E_CERT", error.message, where=where) from None
    if not key.verifies(opened.signature, opened.message):
        raise TrustError("E_SIG", "the certificate's key did not make this signature", where=where)
    moment, said = _moment(leaf, opened, trust, now, where)
    identity = _identity(leaf, trust, moment, where)
    return {
        "principal": identity.principal,
        "fingerprint": key.fingerprint,
        "method": "certificate",
        "time": said,
    }


def _load_leaf(der: bytes, where: str) -> Any:
    from cryptography.x509 import load_der_x509_certificate

    try:
        return load_der_x509_certificate(der)
    except ValueError:
        raise TrustError("E_CERT", "the certificate cannot be read", where=where) from None


def _moment(leaf: Any, opened: OpenedBundle, trust: Trust, now: datetime, where: str) -> tuple[datetime, str]:
    """The time to judge by: now, or one that a trusted time stamp proves to lie in the leaf's life."""
    start, end = leaf.not_valid_before_utc, leaf.not_valid_after_utc
    if start <= now <= end:
        return now, "now"
    for authority, moment in stamped(opened, trust, where=where):
        if start <= moment <= end:
            return moment, f"{authority} {moment:%Y-%m-%dT%H:%M:%SZ}"
    life = f"{start:%Y-%m-%d} to {end:%Y-%m-%d}"
    message = f"the certificate was good from {life}, and no trusted time stamp is from then"
    raise TrustError("E_TIME", message, where=where)


def _identity(leaf: Any, trust: Trust, moment: datetime, where: str) -> Identity:
    """Compare the one name in the leaf exactly with the names each authority may vouch for."""
    from cryptography.x509 import Certificate
    from cryptography.x509.verification import PolicyBuilder, Store, VerificationError

    ca_policy, leaf_policy = _extension_policies()
    name = _only_name(leaf, where)
    reason = "no trusted authority issued the certificate"
    for authority, roots_pem, intermediates_pem in trust.material.authorities:
        roots: list[Certificate] = [load_certificate(pem, where=authority.name) for pem in roots_pem]
        inner: list[Certificate] = [load_certificate(pem, where=authority.name) for pem in intermediates_pem]
        builder = PolicyBuilder().store(Store(roots)).time(moment.replace(tzinfo=None)).max_chain_depth(3)
        builder = builder.extension_policies(ca_policy=ca_policy, ee_policy=leaf_policy)
        try:
            builder.build_client_verifier().verify(leaf, inner)
        except VerificationError as error:
            reason = (
                f"{authority.name} did not issue the certificate for signing: {str(error).splitlines()[0]}"
            )
            continue
        identity = next((known for known in authority.identities if known.san == name), None)
        if identity is not None:
            return identity
        reason = f"{authority.name} issued the certificate, but the policy does not know the name {name!a}"
    raise TrustError("E_CERT", reason, where=where)


def _only_name(leaf: Any, where: str) -> str:
    """The subject alternative name, which must be one URI, e-mail address or DNS name."""
    from cryptography.x509 import (
        DNSName,
        ExtensionNotFound,
        RFC822Name,
        SubjectAlternativeName,
        UniformResourceIdentifier,
    )

    try:
        names = list(leaf.extensions.get_extension_for_class(SubjectAlternativeName).value)
    except (ExtensionNotFound, ValueError):
        names = []
    if len(names) != 1 or not isinstance(names[0], DNSName | RFC822Name | UniformResourceIdentifier):
        message = f"the certificate must carry exactly one name (URI, e-mail or DNS), not {len(names)}"
        raise TrustError("E_CERT", message, where=where)
    return str(names[0].value)


def _extension_policies() -> tuple[Any, Any]:
    """Rules for authorities as on the web; a leaf must be for code signing, and no authority."""
    from cryptography import x509
    from cryptography.x509.oid import ExtendedKeyUsageOID
    from cryptography.x509.verification import Criticality, ExtensionPolicy

    def for_code(_policy: Any, _leaf: Any, usage: x509.ExtendedKeyUsage) -> None:
        if list(usage) != [ExtendedKeyUsageOID.CODE_SIGNING]:
            raise ValueError("the certificate is not for code signing alone")

    def for_signatures(_policy: Any, _leaf: Any, usage: x509.KeyUsage) -> None:
        if not usage.digital_signature or usage.key_cert_sign:
            raise ValueError("the certificate's key is not for signatures alone")

    def no_authority(_policy: Any, _leaf: Any, constraints: x509.BasicConstraints | None) -> None:
        if constraints is not None and constraints.ca:
            raise ValueError("the certificate is an authority's")

    leaf = (
        ExtensionPolicy.webpki_defaults_ee()
        .may_be_present(x509.BasicConstraints, Criticality.AGNOSTIC, no_authority)
        .require_present(x509.KeyUsage, Criticality.AGNOSTIC, for_signatures)
        .require_present(x509.ExtendedKeyUsage, Criticality.AGNOSTIC, for_code)
    )
    return ExtensionPolicy.webpki_defaults_ca(), leaf
