"""The published schema is the one the noun has, and `docs/verdict.md` names every kind."""

from __future__ import annotations

import json
import typing
from pathlib import Path

from repro.verdict import Kind, Verdict

ROOT = Path(__file__).parents[2]


def test_schema_is_up_to_date() -> None:
    """`python scripts/schemas.py` writes it."""
    published = json.loads((ROOT / "docs" / "schema" / "verdict.json").read_text())
    published.pop("$schema")
    assert published == Verdict.model_json_schema(by_alias=True)


def test_every_kind_is_documented() -> None:
    text = (ROOT / "docs" / "verdict.md").read_text()
    assert [kind for kind in typing.get_args(Kind) if f"`{kind}`" not in text] == []
