"""Distances between recorded numbers: scalars as hex floats, tensors as fingerprints.

Formats are those of `docs/trace.md`: `repro-dg1` digests decide equality, `repro-sk1` count sketches estimate
the L2 distance of two tensors without either.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from repro.trace import decode_sketch, unhex

__all__ = ["Change", "epsilon", "norm_of", "scalar_change", "tensor_change"]

_MANTISSA_BITS = {
    "float64": 52,
    "float32": 23,
    "float16": 10,
    "bfloat16": 7,
    "complex64": 23,
    "complex128": 52,
}
_MAX_INTEGER = (1 << 53) - 1


@dataclass(frozen=True, slots=True)
class Change:
    """How far a candidate's value is from the target's; None where only digests are known."""

    absolute: float | None
    """Absolute difference; of tensors the estimated L2 distance, without sketches the difference of norms."""
    target: float
    """Magnitude of the target: absolute value, or L2 norm."""
    candidate: float
    ulp: int | None = None

    @property
    def magnitude(self) -> float:
        """The larger magnitude of the two: what a relative bound applies to, so that it has no direction."""
        return max(self.target, self.candidate)

    @property
    def relative(self) -> float | None:
        """Difference over the target's magnitude; 0 only where nothing differs."""
        if self.absolute is None:
            return None
        if self.absolute == 0:
            return 0.0
        return self.absolute / self.target if self.target else math.inf


def epsilon(dtype: str | None) -> float:
    """Distance from 1 to the next value of a floating-point dtype; float8 has 2 or 3 bits after the point."""
    if dtype is not None and dtype.startswith("float8_"):
        return 2.0**-3 if "e4m3" in dtype else 2.0**-2
    return 2.0 ** -_MANTISSA_BITS.get(dtype or "float32", 23)


def _ordinal(value: float, dtype: str) -> int | None:
    """Number the finite values of a dtype in order; both zeros are 0."""
    if dtype == "float64":
        bits, width = struct.unpack("<Q", struct.pack("<d", value))[0], 64
    elif dtype in ("float32", "bfloat16"):
        bits, width = struct.unpack("<I", struct.pack("<f", value))[0], 32
        if dtype == "bfloat16":
            bits, width = bits >> 16, 16
    elif dtype == "float16":
        bits, width = struct.unpack("<H", struct.pack("<e", value))[0], 16
    else:
        return None
    sign = 1 << (width - 1)
    return -(bits - sign) if bits & sign else int(bits)


def scalar_change(target: str, candidate: str, dtype: str | None) -> Change:
    """Compare two recorded scalars. A value that is not finite is infinitely far from any other."""
    a, b = unhex(target), unhex(candidate)
    if not (math.isfinite(a) and math.isfinite(b)):
        return Change(0.0 if target == candidate else math.inf, abs(a), abs(b))
    ulp = None
    try:
        first, second = _ordinal(a, dtype or "float64"), _ordinal(b, dtype or "float64")
    except OverflowError:  # the recorded value does not fit its own dtype: leave the count unknown
        first = second = None
    if first is not None and second is not None and abs(first - second) <= _MAX_INTEGER:
        ulp = abs(first - second)
    return Change(abs(a - b), abs(a), abs(b), ulp)


def norm_of(fingerprint: Mapping[str, Any]) -> float:
    """L2 norm of a fingerprinted tensor: as recorded, else as its sketch estimates it, else 0."""
    if "l2" in fingerprint:
        return unhex(fingerprint["l2"])
    return math.hypot(*decode_sketch(fingerprint["sk"])) if "sk" in fingerprint else 0.0


def tensor_change(target: Mapping[str, Any], candidate: Mapping[str, Any]) -> Change | None:
    """Compare two fingerprints of equal shape and dtype; None where they are equal.

    Digests decide where both have one. Without them equal norms count as equal.
    """
    if "dg" in target and "dg" in candidate:
        if target["dg"] == candidate["dg"]:
            return None
    elif target.get("l2") == candidate.get("l2") and target.get("bad") == candidate.get("bad"):
        return None
    first, second = norm_of(target), norm_of(candidate)
    if "sk" in target and "sk" in candidate:
        a, b = decode_sketch(target["sk"]), decode_sketch(candidate["sk"])
        absolute: float | None = math.dist(a, b) if len(a) == len(b) else None
    elif "l2" in target and "l2" in candidate:
        absolute = abs(first - second)
    else:
        absolute = None
    if absolute is not None and math.isnan(absolute):
        absolute = math.inf
    return Change(absolute, first, second)
