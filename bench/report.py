"""What reading a run for its HTML page takes as steps grow: `python bench/report.py`.

Both phases of a replay are read and put side by side, every rank, as `repro report` does. The yardstick is
parsing the same lines with `json.loads` and keeping nothing. Seconds are processor time.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path

from compare import trace, write
from measured import measured

from repro.report.series import difference, phase_series
from repro.tolerance import ToleranceSpec


def read_for_page(target: Path, candidate: Path, ranks: int) -> str:
    phases = [trace(path, ranks).phases[0] for path in (target, candidate)]
    curves = [phase_series(phase) for phase in phases]
    found = difference(*phases, ToleranceSpec().same)
    return f"{len(curves[0].loss.buckets)} points a curve, {type(found).__name__.lower()} read"


def parse_lines(target: Path, candidate: Path, ranks: int) -> str:
    # The page reads each side twice: once for its curves, once for the difference (rank 0 to the last).
    parsed = 0
    for path in (target, candidate) * 2:
        for _ in range(ranks):
            with path.open("rb") as stream:
                for line in stream:
                    json.loads(line)
                    parsed += 1
    return f"{parsed} lines parsed"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", type=Path, help="write the table here too")
    options = parser.parse_args()
    rows = []
    print(f"{'steps':>9} {'ranks':>5} {'page s':>8} {'json s':>8} {'ratio':>6} {'peak MB':>8}  said")
    for steps in options.steps:
        with tempfile.TemporaryDirectory() as folder:
            sides = Path(folder) / "target.jsonl", Path(folder) / "candidate.jsonl"
            write(sides[0], steps, departs=None, clock=0)
            write(sides[1], steps, departs=7, clock=1)
            seconds, peak, said = measured(read_for_page, *sides, options.ranks)
            yardstick, _, _ = measured(parse_lines, *sides, options.ranks)
        ratio = seconds / yardstick
        rows.append(
            {"steps": steps, "ranks": options.ranks, "seconds": seconds, "json_seconds": yardstick}
            | {"ratio": ratio, "peak_bytes": peak}
        )
        told = f"{steps:>9} {options.ranks:>5} {seconds:>8.2f} {yardstick:>8.2f} {ratio:>6.2f}"
        print(f"{told} {peak / 1e6:>8.1f}  {said}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
