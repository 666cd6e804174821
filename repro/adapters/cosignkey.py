"""Private keys as cosign keeps them: PKCS#8 in a `secretbox` under a scrypt key, as JSON in PEM."""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
from typing import Any

from repro.adapters.secretbox import open_box, seal_box
from repro.errors import TrustError

__all__ = ["is_cosign_key", "open_cosign_key", "seal_cosign_key"]

_PEM = re.compile(
    r"-----BEGIN ENCRYPTED (SIGSTORE|COSIGN) PRIVATE KEY-----\n([A-Za-z0-9+/=\n]+)"
    r"-----END ENCRYPTED \1 PRIVATE KEY-----"
)
_N, _R, _P = 65536, 8, 1
_MAX_MEMORY = 256 << 20
"""Bytes that scrypt may be made to use by a key file: 128 * N * r."""
_MAX_BYTES = 16 << 10


def is_cosign_key(pem: bytes) -> bool:
    """Say whether a file is one of cosign's encrypted private keys."""
    return b"BEGIN ENCRYPTED SIGSTORE PRIVATE KEY" in pem or b"BEGIN ENCRYPTED COSIGN PRIVATE KEY" in pem


def _derive(passphrase: bytes, salt: bytes, n: int, r: int, p: int) -> bytes:
    from cryptography.hazmat.primitives.kdf.scrypt import Scrypt

    return Scrypt(salt=salt, length=32, n=n, r=r, p=p).derive(passphrase)


def open_cosign_key(pem: bytes, passphrase: bytes, *, where: str) -> bytes:
    """Return the PKCS#8 DER in a cosign key.

    Raises:
        TrustError: kind `E_KEY` for a wrong passphrase, another format, or costs beyond any real key's.
    """
    match = _PEM.search(pem.replace(b"\r\n", b"\n").decode("ascii", "replace"))
    if match is None or len(pem) > _MAX_BYTES:
        raise TrustError("E_KEY", "this cosign key cannot be read", where=where)
    try:
        box: Any = json.loads(base64.b64decode(match[2]))
        kdf, cipher = box["kdf"], box["cipher"]
        n, r, p = (int(kdf["params"][name]) for name in ("N", "r", "p"))
        salt, nonce, text = (
            base64.b64decode(part, validate=True)
            for part in (kdf["salt"], cipher["nonce"], box["ciphertext"])
        )
        named = (kdf["name"], cipher["name"]) == ("scrypt", "nacl/secretbox")
    except (ValueError, KeyError, TypeError, binascii.Error, RecursionError):
        raise TrustError("E_KEY", "this cosign key cannot be read", where=where) from None
    if not named or len(nonce) != 24 or len(text) < 16:
        raise TrustError("E_KEY", "this cosign key is sealed in an unknown way", where=where)
    if n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= 4 or 128 * n * r > _MAX_MEMORY:
        message = f"this cosign key asks for scrypt with N={n}, r={r}, p={p}, which no real key does"
        raise TrustError("E_KEY", message, where=where)
    return open_box(_derive(passphrase, salt, n, r, p), nonce, text, where=where)


def seal_cosign_key(pkcs8: bytes, passphrase: bytes) -> bytes:
    """Return a key file for cosign, with the costs cosign itself uses."""
    salt, nonce = os.urandom(32), os.urandom(24)
    sealed = seal_box(_derive(passphrase, salt, _N, _R, _P), nonce, pkcs8)

    def text(data: bytes) -> str:
        return base64.b64encode(data).decode("ascii")

    box = {
        "kdf": {"name": "scrypt", "params": {"N": _N, "r": _R, "p": _P}, "salt": text(salt)},
        "cipher": {"name": "nacl/secretbox", "nonce": text(nonce)},
        "ciphertext": text(sealed),
    }
    body = text(json.dumps(box, separators=(",", ":")).encode("ascii"))
    lines = "\n".join(body[i : i + 64] for i in range(0, len(body), 64))
    name = "ENCRYPTED SIGSTORE PRIVATE KEY"
    return f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----\n".encode("ascii")
