"""RFC 3161 time stamps over signatures: proof of when, where a key or a certificate is no longer good."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from repro.attest.envelope import OpenedBundle
from repro.attest.keyring import Trust
from repro.attest.outcome import CannotTell
from repro.errors import TrustError

__all__ = ["load_certificate", "stamped"]


def stamped(opened: OpenedBundle, trust: Trust, *, where: str) -> list[tuple[str, datetime]]:
    """Return name and time of every trusted time stamp over the bundle's raw signature bytes.

    Raises:
        CannotTell: where the package that reads time stamps is not installed.
        TrustError: kind `E_TRUST` where the policy's own certificates cannot be read.
    """
    if not opened.tokens or not trust.policy.tsas:
        return []
    try:
        import rfc3161_client
    except ImportError:
        message = f"{where} carries a time stamp; install repro-manifest[tsa] to check it"
        raise CannotTell(message) from None
    found = []
    for authority, certificate_pem, root_pem in trust.material.time_authorities:
        certificate = load_certificate(certificate_pem, where=authority.certificate)
        root = load_certificate(root_pem, where=authority.root)
        verifier = (
            rfc3161_client.VerifierBuilder(roots=[root], intermediates=[])
            .tsa_certificate(certificate)
            .build()
        )
        for token in opened.tokens:
            moment = _time(rfc3161_client, verifier, certificate, token, opened.signature)
            if moment is not None:
                found.append((authority.name, moment))
    return found


def _time(library: Any, verifier: Any, certificate: Any, token: bytes, signature: bytes) -> datetime | None:
    """Return the time in a token, or None where it proves nothing."""
    try:
        response = library.decode_timestamp_response(token)
        verifier.verify_message(response, signature)
        moment: datetime = response.tst_info.gen_time
    except (ValueError, library.VerificationError):
        return None
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    inside = certificate.not_valid_before_utc <= moment <= certificate.not_valid_after_utc
    return moment if inside and response.as_bytes() == token else None


def load_certificate(pem: bytes, *, where: str) -> Any:
    """Read the one certificate of a PEM file.

    Raises:
        TrustError: kind `E_TRUST`.
    """
    from cryptography.x509 import load_pem_x509_certificates

    try:
        (certificate,) = load_pem_x509_certificates(pem.replace(b"\r\n", b"\n"))
    except ValueError:
        raise TrustError("E_TRUST", "this is not one PEM certificate", where=where) from None
    return certificate
