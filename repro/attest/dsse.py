"""DSSE 1.0.2: the bytes a signature covers, and the base64 around it."""

from __future__ import annotations

import base64
import binascii
import re

from repro.errors import TrustError

__all__ = ["decode_base64", "encode_base64", "pae"]

_STANDARD = re.compile(r"[A-Za-z0-9+/]*={0,2}")
_URL_SAFE = re.compile(r"[A-Za-z0-9_-]*={0,2}")


def pae(payload_type: str, payload: bytes) -> bytes:
    """Pre-authentication encoding. Lengths are decimal and count bytes."""
    kind = payload_type.encode("utf-8")
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload)


def encode_base64(data: bytes) -> str:
    """Standard base64 with padding: what this project writes."""
    return base64.b64encode(data).decode("ascii")


def decode_base64(text: str, *, where: str) -> bytes:
    """Decode standard or URL-safe base64, as DSSE demands of verifiers, in its one canonical spelling.

    Raises:
        TrustError: kind `E_B64` for mixed alphabets, missing padding, line ends or stray trailing bits.
    """
    for alphabet, decode, encode in (
        (_STANDARD, base64.standard_b64decode, base64.standard_b64encode),
        (_URL_SAFE, base64.urlsafe_b64decode, base64.urlsafe_b64encode),
    ):
        if alphabet.fullmatch(text) and len(text) % 4 == 0:
            try:
                data = decode(text)
            except binascii.Error:
                break
            if encode(data) == text.encode("ascii"):
                return data
    raise TrustError("E_B64", "not base64 in its canonical spelling", where=where)
