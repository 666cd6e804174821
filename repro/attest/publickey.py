"""Public keys that may sign: ECDSA P-256 with SHA-256, and pure Ed25519. Nothing else.

`cryptography` is imported where it is used, so that reading about keys costs nothing.
"""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import dataclass, field
from typing import Any, Literal

from repro.attest.dsse import encode_base64
from repro.digest import Digest
from repro.errors import TrustError

__all__ = ["ALLOWED", "KeyKind", "PublicKey", "describe_key", "load_public_key", "public_key"]

KeyKind = Literal["ecdsa-p256", "ed25519"]
ALLOWED = "ECDSA P-256 or Ed25519"

_REMEDY = "make a key with `repro keys new`"
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\n[A-Za-z0-9+/=\n]+-----END \1-----\n?")

_ED25519 = bytes.fromhex("302a300506032b6570032100")
_P256 = bytes.fromhex("3059301306072a8648ce3d020106082a8648ce3d03010703420004")
"""How the DER of a key begins (RFC 8410; RFC 5480, uncompressed point); the rest is the key itself."""


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key that verifies signatures."""

    kind: KeyKind
    spki: bytes
    """DER of the SubjectPublicKeyInfo."""
    handle: Any = field(compare=False, repr=False)
    """The key as `cryptography` holds it."""

    @property
    def fingerprint(self) -> Digest:
        """SHA-256 over the SPKI DER."""
        return Digest("sha256:" + hashlib.sha256(self.spki).hexdigest())

    @property
    def hint(self) -> str:
        """The fingerprint as cosign writes it into a bundle: base64 of the 32 bytes."""
        return encode_base64(hashlib.sha256(self.spki).digest())

    def verifies(self, signature: bytes, message: bytes) -> bool:
        """Say whether `signature` over `message` was made with this key. The key alone decides how."""
        from cryptography.exceptions import InvalidSignature

        try:
            if self.kind == "ed25519":
                self.handle.verify(signature, message)
            else:
                from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
                from cryptography.hazmat.primitives.hashes import SHA256

                self.handle.verify(signature, message, ECDSA(SHA256()))
        except InvalidSignature:
            return False
        return True


def describe_key(key: Any) -> str:
    """Name a key of `cryptography`'s as people do: `RSA-2048`, `ECDSA secp384r1`, `Ed448`."""
    if hasattr(key, "curve"):
        return f"ECDSA {key.curve.name}"
    name = type(key).__name__.removesuffix("PublicKey").removesuffix("PrivateKey")
    return f"{name}-{key.key_size}" if hasattr(key, "key_size") else name


def public_key(key: Any, *, where: str) -> PublicKey:
    """Take one of `cryptography`'s public keys, if it is of a kind that may sign.

    Raises:
        TrustError: kind `E_KEY`, naming the kind it is.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    kind: KeyKind
    if isinstance(key, Ed25519PublicKey):
        kind = "ed25519"
    elif isinstance(key, EllipticCurvePublicKey) and isinstance(key.curve, SECP256R1):
        kind = "ecdsa-p256"
    else:
        message = f"this is a key of the kind {describe_key(key)}; repro wants {ALLOWED}"
        raise TrustError("E_KEY", message, where=where, remedy=_REMEDY)
    return PublicKey(kind, key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo), key)


def load_public_key(pem: bytes, *, where: str) -> PublicKey:
    """Read one public key in PEM; CRLF line ends are accepted.

    Raises:
        TrustError: kind `E_KEY` where the file is no such key, holds more than one, or a private one.
    """
    text = pem.replace(b"\r\n", b"\n")
    if b"PRIVATE KEY" in text:
        message = "this is a private key; only public keys belong here"
        raise TrustError("E_KEY", message, where=where, remedy="use the .pub file beside it")
    if not text.isascii() or not _BLOCK.fullmatch(text.decode("ascii").strip() + "\n"):
        raise TrustError("E_KEY", "this is not one PEM public key", where=where, remedy=_REMEDY)
    if (plain := _plain_key(text)) is not None:
        return plain
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_pem_public_key

    try:
        key = load_pem_public_key(text)
    except (ValueError, UnsupportedAlgorithm):
        message = f"this public key cannot be read; repro wants {ALLOWED}"
        raise TrustError("E_KEY", message, where=where, remedy=_REMEDY) from None
    return public_key(key, where=where)


def _plain_key(pem: bytes) -> PublicKey | None:
    """Read a key whose DER is the usual one; None leaves it to `cryptography`, whose reader loads slowly."""
    body = b"".join(pem.strip().split(b"\n")[1:-1])
    try:
        der = base64.b64decode(body, validate=True)
        if der.startswith(_ED25519) and len(der) == len(_ED25519) + 32:
            from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

            return PublicKey("ed25519", der, Ed25519PublicKey.from_public_bytes(der[len(_ED25519) :]))
        if der.startswith(_P256) and len(der) == len(_P256) + 64:
            from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, EllipticCurvePublicKey

            point = der[len(_P256) - 1 :]
            return PublicKey("ecdsa-p256", der, EllipticCurvePublicKey.from_encoded_point(SECP256R1(), point))
    except ValueError:
        return None
    return None
