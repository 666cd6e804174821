"""The base of every noun: frozen, typed, validated, and free of I/O."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

__all__ = ["Noun"]


class Noun(BaseModel):
    """A value of the pipeline. Unknown members are refused, values are never coerced or changed."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
