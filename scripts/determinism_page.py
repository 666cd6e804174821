"""Write docs/determinism.md from the recorder's list of knobs, the one place that has them."""

from __future__ import annotations

import sys
from itertools import groupby
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from repro.recorder.knobs import KNOBS, Knob  # noqa: E402

HEAD = """# Determinism

Every setting known to decide whether a run repeats to the bit. This page is written from
`repro/recorder/knobs.py` by `python scripts/determinism_page.py`; a test compares the two.

All are recorded, in the head of every rank's trace. `determinism:` in `repro.yaml` says what is done:

| level | does |
|---|---|
| `strict` | sets every value of the column *strict*; an operation with no deterministic form is an error |
| `warn` | sets the same; such an operation runs, and is recorded |
| `off` | sets nothing but the seed |

Environment variables are set before the process starts, torch's settings right after torch was imported.
All are read again before the first step: the trace says what held, not what was asked for. Under `strict`
and `warn` a setting that the program changed meanwhile, and an operation without a deterministic form, are
recorded by name (event `err`, `where` is `determinism`).
Settings without a value under *strict* are recorded and left alone: experts set them differently.

*When* is when a setting must be made: before the process starts, before torch is imported, or at any time.
"""
TIMES = {"start": "before the start", "import": "before the import", "any": "any time"}


def row(knob: Knob) -> str:
    """One knob as a line of a table."""
    where = "all" if len(knob.accelerators) == 3 else ", ".join(knob.accelerators)
    strict = f"`{knob.strict}`" if knob.strict is not None else ""
    return f"| `{knob.name}` | {where} | {TIMES[knob.when]} | {strict} | {knob.source} |"


def page() -> str:
    """The whole page."""
    parts = [HEAD]
    ordered = sorted(KNOBS, key=lambda knob: knob.layer.casefold())
    for layer, knobs in groupby(ordered, key=lambda knob: knob.layer):
        lines = [
            f"## {layer}",
            "",
            "| setting | matters on | when | strict | source |",
            "|---|---|---|---|---|",
        ]
        parts.append("\n".join([*lines, *map(row, knobs)]) + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    (ROOT / "docs" / "determinism.md").write_text(page(), encoding="utf-8")
