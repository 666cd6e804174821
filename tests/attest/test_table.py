"""Every attack that `docs/threats.md` says is refused has a test that carries its number."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROWS = range(1, 72)


def expand(text: str) -> set[int]:
    """`1, 2`, `20–22` as numbers."""
    found: set[int] = set()
    for first, last in re.findall(r"(\d+)(?:–(\d+))?", text):
        found |= set(range(int(first), int(last or first) + 1))
    return found


def numbered() -> set[int]:
    """Numbers in the names of tests and of their cases."""
    found: set[int] = set()
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        text = path.read_text(encoding="utf-8")
        for first, last in re.findall(r"def test_(\d\d)(?:_to_(\d\d))?_", text):
            found |= set(range(int(first), int(last or first) + 1))
        if path.parent.name == "attest":
            found |= {int(number) for number in re.findall(r'\(\s*"(\d\d) \w', text)}
    return found


def test_every_row_is_in_the_page() -> None:
    page = (ROOT / "docs" / "threats.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| ([\d, –]+) \|", page, re.MULTILINE)
    assert set().union(*map(expand, rows)) == set(ROWS)


def test_every_row_has_a_test_with_its_number() -> None:
    assert set(ROWS) - numbered() == set()
