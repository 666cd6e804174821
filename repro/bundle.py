"""The file a signature lies in: a Sigstore bundle v0.3 around one DSSE envelope, member by member."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field, model_validator

from repro.statement import Text, Wire, parse_wire

__all__ = ["BUNDLE_SUFFIX", "BUNDLE_TYPE", "MAX_TOKENS", "PAYLOAD_TYPE", "Bundle", "parse_bundle_json"]

BUNDLE_TYPE: Final = "application/vnd.dev.sigstore.bundle.v0.3+json"
PAYLOAD_TYPE: Final = "application/vnd.in-toto+json"
BUNDLE_SUFFIX = ".sigstore.json"
MAX_TOKENS = 8
"""Time stamps one bundle may carry."""


class _PublicKey(Wire):
    hint: Text


class _Certificate(Wire):
    raw_bytes: Text


class _Timestamp(Wire):
    signed_timestamp: Text


class _TimestampData(Wire):
    rfc3161_timestamps: tuple[_Timestamp, ...] = Field(
        default=(), alias="rfc3161Timestamps", max_length=MAX_TOKENS
    )


class _Material(Wire):
    public_key: _PublicKey | None = None
    certificate: _Certificate | None = None
    tlog_entries: tuple[()] = ()
    timestamp_verification_data: _TimestampData | None = None

    @model_validator(mode="after")
    def _one_of(self) -> _Material:
        if (self.public_key is None) == (self.certificate is None):
            raise ValueError("exactly one of publicKey and certificate must be present")
        return self


class _Signature(Wire):
    sig: str
    keyid: str = ""


class _Envelope(Wire):
    payload: str
    payload_type: str
    signatures: tuple[_Signature, ...] = Field(min_length=1, max_length=1)


class Bundle(Wire):
    """A Sigstore bundle v0.3 that holds one DSSE signature and no log entry."""

    media_type: Literal["application/vnd.dev.sigstore.bundle.v0.3+json"]
    verification_material: _Material
    dsse_envelope: _Envelope

    @model_validator(mode="after")
    def _hints_agree(self) -> Bundle:
        key, keyid = self.verification_material.public_key, self.dsse_envelope.signatures[0].keyid
        if key is not None and keyid and keyid != key.hint:
            raise ValueError("keyid contradicts the hint")
        return self


def parse_bundle_json(data: bytes, *, where: str) -> Bundle:
    """Parse a bundle's members. Nothing is decoded or verified yet.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_SIZE` or `E_BUNDLE`.
    """
    return parse_wire(Bundle, "E_BUNDLE", data, where)
