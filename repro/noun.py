"""The base of every noun: frozen, typed, validated, and free of I/O."""

from __future__ import annotations

from typing import Any, Self

from pydantic import BaseModel, ConfigDict

from repro.digest import canonical_json

__all__ = ["Noun"]


class Noun(BaseModel):
    """A value of the pipeline. Unknown members are refused, values are never coerced."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, serialize_by_alias=True, defer_build=True
    )

    @classmethod
    def parse(cls, value: Any) -> Self:
        """Validate a tree of plain values, in which JSON lists stand for tuples.

        Raises:
            pydantic.ValidationError: with every flaw at once.
        """
        return cls.model_validate_json(canonical_json(value), by_alias=True, by_name=False)

    def tree(self) -> dict[str, Any]:
        """Return the plain tree that `parse` takes back."""
        return self.model_dump(mode="json")
