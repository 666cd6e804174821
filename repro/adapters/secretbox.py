"""NaCl's `secretbox` (XSalsa20-Poly1305), as cosign seals its private keys with it.

Salsa20 is plain Python after D. J. Bernstein's specification; it only ever
runs over the few hundred bytes of a key. Poly1305 is that of `cryptography`.
"""

from __future__ import annotations

import struct

from repro.errors import TrustError

__all__ = ["open_box", "seal_box"]

_SIGMA = struct.unpack("<4I", b"expand 32-byte k")
_MASK = 0xFFFFFFFF
_TAG = 16
_COLUMNS = ((0, 4, 8, 12), (5, 9, 13, 1), (10, 14, 2, 6), (15, 3, 7, 11))
_ROWS = ((0, 1, 2, 3), (5, 6, 7, 4), (10, 11, 8, 9), (15, 12, 13, 14))


def _rounds(state: list[int]) -> list[int]:
    """Twenty rounds of Salsa20, without the final addition."""
    x = list(state)

    def mix(target: int, first: int, second: int, shift: int) -> None:
        total = (x[first] + x[second]) & _MASK
        x[target] ^= ((total << shift) | (total >> (32 - shift))) & _MASK

    for _ in range(10):
        for a, b, c, d in (*_COLUMNS, *_ROWS):
            mix(b, a, d, 7)
            mix(c, b, a, 9)
            mix(d, c, b, 13)
            mix(a, d, c, 18)
    return x


def _state(key: bytes, block: bytes) -> list[int]:
    k, n, s = struct.unpack("<8I", key), struct.unpack("<4I", block), _SIGMA
    return [s[0], *k[:4], s[1], *n, s[2], *k[4:], s[3]]


def _hsalsa20(key: bytes, nonce: bytes) -> bytes:
    x = _rounds(_state(key, nonce))
    return struct.pack("<8I", x[0], x[5], x[10], x[15], x[6], x[7], x[8], x[9])


def _stream(key: bytes, nonce: bytes, length: int) -> bytes:
    """Return `length` bytes of XSalsa20's stream; `nonce` has 24 bytes."""
    inner = _hsalsa20(key, nonce[:16])
    blocks = bytearray()
    for counter in range(-(-length // 64)):
        state = _state(inner, nonce[16:] + struct.pack("<Q", counter))
        mixed = zip(_rounds(state), state, strict=True)
        blocks += struct.pack("<16I", *((a + b) & _MASK for a, b in mixed))
    return bytes(blocks[:length])


def _apply(stream: bytes, data: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(stream, data, strict=True))


def seal_box(key: bytes, nonce: bytes, message: bytes) -> bytes:
    """Encrypt and authenticate. `key` has 32 bytes, `nonce` 24; a nonce is used once."""
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    stream = _stream(key, nonce, 32 + len(message))
    sealed = _apply(stream[32:], message)
    return Poly1305.generate_tag(stream[:32], sealed) + sealed


def open_box(key: bytes, nonce: bytes, box: bytes, *, where: str) -> bytes:
    """Check and decrypt.

    Raises:
        TrustError: kind `E_KEY` where the key is not the right one, so the passphrase was not.
    """
    from cryptography.exceptions import InvalidSignature
    from cryptography.hazmat.primitives.poly1305 import Poly1305

    tag, sealed = box[:_TAG], box[_TAG:]
    stream = _stream(key, nonce, 32 + len(sealed))
    try:
        Poly1305.verify_tag(stream[:32], sealed, tag)
    except InvalidSignature:
        raise TrustError("E_KEY", "the passphrase does not open the key", where=where) from None
    return _apply(stream[32:], sealed)
