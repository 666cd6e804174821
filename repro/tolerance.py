"""How far a replay may be from its target: to the bit, within written bounds, or within an envelope."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Discriminator, Field, Tag, WithJsonSchema, model_validator

from repro.noun import Noun

__all__ = [
    "MEASURED",
    "Bound",
    "HexFloat",
    "Rule",
    "ToleranceSpec",
    "bound_for",
    "hex_float",
]

MEASURED = ("loss", "grad_norm", "grads", "params", "eval", "observe")
"""Observables that are floating-point results. Everything else in a trace is compared exactly, always."""

_DTYPES = "float64|float32|float16|bfloat16|float8_[a-z0-9]+|complex64|complex128"
_KEY = re.compile(rf"(?:{'|'.join(MEASURED)})(?:\.(?:{_DTYPES}))?")


def hex_float(value: Any) -> str:
    """Write a number as a C99 hex float, so that it survives in files which hold no floats.

    Takes an int, a float, or text in decimal (`1e-5`) or hex (`0x1.5p-17`). Raises ValueError for anything
    negative, infinite or not a number.
    """
    if isinstance(value, str):
        try:
            number = float.fromhex(value) if "0x" in value.lower() else float(value)
        except ValueError:
            raise ValueError("write a number such as 1e-5") from None
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        number = float(value)
    else:
        raise ValueError("write a number such as 1e-5")
    if not math.isfinite(number) or number < 0:
        raise ValueError("write a finite number that is not negative")
    return number.hex()


HexFloat = Annotated[
    str,
    BeforeValidator(hex_float),
    WithJsonSchema({"anyOf": [{"type": "number", "minimum": 0}, {"type": "string"}]}),
]
"""A finite number that is not negative, kept as a hex string."""


class Bound(Noun):
    """An explicit allowance: `rtol` and `atol`, both written, or `max_ulp`.

    With rtol and atol a difference may be `atol + rtol * max(|target|, |candidate|)`; for tensors the
    difference is the estimated L2 distance and the magnitude the L2 norm. `max_ulp` counts representable
    values of the observable's dtype between two scalars; for tensors it allows an L2 distance of
    `max_ulp * epsilon(dtype) * norm`.
    """

    rtol: HexFloat | None = None
    atol: HexFloat | None = None
    max_ulp: int | None = Field(default=None, ge=0)

    @model_validator(mode="after")
    def _complete(self) -> Bound:
        if self.max_ulp is not None:
            if self.rtol is not None or self.atol is not None:
                raise ValueError("give rtol and atol, or max_ulp, not a mixture")
        elif self.rtol is None or self.atol is None:
            raise ValueError("give both rtol and atol (0 is a value too), or max_ulp")
        return self


def _observable(key: Any) -> Any:
    if isinstance(key, str) and _KEY.fullmatch(key):
        return key
    raise ValueError(
        f"{key} is no observable with a bound; known are {', '.join(MEASURED)}, each also as params.bfloat16"
    )


Observable = Annotated[str, BeforeValidator(_observable)]


def _is_word(value: Any) -> str:
    return "word" if isinstance(value, str) else "bounds"


Limit = Annotated[
    Annotated[Literal["bitwise", "any"], Tag("word")] | Annotated[Bound, Tag("bounds")],
    Discriminator(_is_word),
]
"""What one observable may do: equal bits, anything at all (not judged), or a bound."""

Rule = Annotated[
    Annotated[Literal["bitwise", "calibrated"], Tag("word")]
    | Annotated[dict[Observable, Limit], Field(min_length=1), Tag("bounds")],
    Discriminator(_is_word),
]
"""`bitwise`, `calibrated`, or a limit per observable. What is not named must be equal to the bit."""


class ToleranceSpec(Noun):
    """The `tolerance` of `repro.yaml`."""

    same: Rule = "bitwise"
    """Asked of a replay on an equal stack: same image, architecture and driver family."""
    across: Rule = "calibrated"
    """Asked of a replay on another stack."""
    factor: HexFloat = (5.0).hex()
    """How many times the calibrated envelope a replay may reach; see `docs/tolerance.md`."""


def bound_for(rule: Rule, observable: str, dtype: str | None) -> Bound | Literal["bitwise", "any"]:
    """Return what an explicit rule says of an observable; a key with the dtype goes before one without."""
    if isinstance(rule, str):
        raise TypeError("only an explicit rule has bounds")
    plain = rule.get(observable, "bitwise")
    return plain if dtype is None else rule.get(f"{observable}.{dtype}", plain)
