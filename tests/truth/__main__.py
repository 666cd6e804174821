"""How often a verdict is wrong: `python -m tests.truth [--json FILE]`.

Three pilots are recorded, each with a calibration, some fifty variants that mean nothing, and some fifty
mistakes; every one is judged as a replay on another stack. A fourth is interrupted, and resumed in
seventeen ways that forget something, to the bit. With `--pilot` the others keep their lines in FILE. The
bounds are exact (Clopper and Pearson, 95 %, one-sided). A mistake that changes no bit of a pilot is none,
and is counted apart.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.truth.population import PILOTS
from tests.truth.rates import added_up, row
from tests.truth.replays import judge_population, judge_resumes

EVERY = (*PILOTS, "resumed")
KINDS = ("harmless", "faulty")


def main() -> None:
    """Record, judge, print, and write."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--pilot", choices=EVERY, action="append")
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    if chosen.json and chosen.json.exists() and chosen.pilot:
        kept = json.loads(chosen.json.read_text(encoding="utf-8"))["rows"]
        rows = [one for one in kept if one["pilot"] not in ("all", *chosen.pilot)]
    for pilot in chosen.pilot or EVERY:
        started = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="truth-") as name:
            place = Path(name)
            found = judge_population(PILOTS[pilot], place) if pilot in PILOTS else judge_resumes(place)
            judged = list(found)
        for kind in KINDS:
            rows.append(row(pilot, kind, [one for one in judged if one.kind == kind]))
            sys.stdout.write(f"{json.dumps(rows[-1])}\n")
        sys.stdout.write(f"{pilot}: {time.monotonic() - started:.0f} s\n")
        sys.stdout.flush()
    rows += [added_up(rows, kind) for kind in KINDS]
    for one in rows[-2:]:
        sys.stdout.write(f"{json.dumps(one)}\n")
    if chosen.json:
        chosen.json.write_text(json.dumps({"rows": rows}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
