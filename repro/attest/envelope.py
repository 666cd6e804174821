"""Bundles, from bytes to what they hold and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from repro.attest.dsse import decode_base64, encode_base64, pae
from repro.bundle import BUNDLE_TYPE, PAYLOAD_TYPE, parse_bundle_json
from repro.digest import Digest, canonical_json, digest_bytes
from repro.errors import TrustError

__all__ = ["OpenedBundle", "open_bundle", "seal"]


@dataclass(frozen=True, kw_only=True, slots=True)
class OpenedBundle:
    """What one bundle holds, decoded and not yet verified."""

    payload: bytes
    signature: bytes
    hint: str | None
    """Which key the signer says it used. It never selects trust."""
    certificate: bytes | None
    """DER of the signer's certificate."""
    tokens: tuple[bytes, ...]
    """DER of RFC 3161 TimeStampResp values."""

    @property
    def message(self) -> bytes:
        """The bytes the signature covers."""
        return pae(PAYLOAD_TYPE, self.payload)

    @property
    def payload_digest(self) -> Digest:
        """Digest of the payload: the identity of what was signed, whatever the bundle's own bytes."""
        return digest_bytes(self.payload)


def open_bundle(data: bytes, *, where: str) -> OpenedBundle:
    """Decode a bundle.

    Raises:
        TrustError: kind `E_SIZE`, `E_JSON`, `E_TEXT`, `E_BUNDLE`, `E_TYPE` or `E_B64`.
    """
    bundle = parse_bundle_json(data, where=where)
    envelope, material = bundle.dsse_envelope, bundle.verification_material
    if envelope.payload_type != PAYLOAD_TYPE:
        raise TrustError("E_TYPE", f"the payload type is {envelope.payload_type!a}", where=where)
    stamps = material.timestamp_verification_data
    return OpenedBundle(
        payload=decode_base64(envelope.payload, where=f"{where}: payload"),
        signature=decode_base64(envelope.signatures[0].sig, where=f"{where}: sig"),
        hint=material.public_key.hint if material.public_key else None,
        certificate=(
            decode_base64(material.certificate.raw_bytes, where=f"{where}: certificate")
            if material.certificate
            else None
        ),
        tokens=tuple(
            decode_base64(stamp.signed_timestamp, where=f"{where}: time stamp")
            for stamp in (stamps.rfc3161_timestamps if stamps else ())
        ),
    )


def seal(payload: bytes, signature: bytes, *, signer: str | bytes, tokens: tuple[bytes, ...] = ()) -> bytes:
    """Encode a bundle.

    Args:
        payload: the exact bytes that were signed, inside their PAE.
        signature: DER for ECDSA, 64 bytes for Ed25519.
        signer: the hint of a key, or the DER of a certificate.
        tokens: DER of RFC 3161 TimeStampResp values over the raw signature.
    """
    material: dict[str, Any] = {"tlogEntries": []}
    if isinstance(signer, str):
        material["publicKey"] = {"hint": signer}
    else:
        material["certificate"] = {"rawBytes": encode_base64(signer)}
    if tokens:
        stamps = [{"signedTimestamp": encode_base64(token)} for token in tokens]
        material["timestampVerificationData"] = {"rfc3161Timestamps": stamps}
    bundle = {
        "mediaType": BUNDLE_TYPE,
        "verificationMaterial": material,
        "dsseEnvelope": {
            "payload": encode_base64(payload),
            "payloadType": PAYLOAD_TYPE,
            "signatures": [{"keyid": "", "sig": encode_base64(signature)}],
        },
    }
    return canonical_json(bundle) + b"\n"
