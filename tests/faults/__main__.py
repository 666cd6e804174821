"""Every fault, in one table: `python -m tests.faults`. Exits 1 where one was not met as it should be.

Needs torch in the package cache; the engine for the build, and root for disks of its own.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.faults import disk, kills, malformed
from tests.faults.faults_world import captured_tiny
from tests.faults.oddities import oddities

SHARES = {"lock": 0.2, "build": 0.1, "capture": 0.2, "sign": 0.35, "replay": 0.15}
"""How the kills are spread: the quick commands get more of them."""

Row = dict[str, str | int | float | list[str] | None]


@contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="repro-faults-") as name:
        yield Path(name)


def killed(total: int, seed: int) -> Iterator[Row]:
    """`kill -9` at random moments, then before every change of a file."""
    with _folder() as folder:
        tiny = captured_tiny(folder)
        for name, case in kills.cases(tiny).items():
            often = kills.kill_often(case, round(total * SHARES[name]), seed=seed, complete_every=10)
            yield _kill_row("at random moments", often)
            if name != "build":
                yield _kill_row("before each change", kills.kill_at_every_change(case, tiny.project))


def _kill_row(when: str, tally: kills.Tally) -> Row:
    tried = tally.kills + tally.finished_first
    told = f"{tally.kills} killed, {tally.finished_first} ended first, {tally.completions} went on"
    return {
        "fault": f"kill -9 {when}",
        "of": tally.command,
        "tried": tried,
        "came": told,
        "faults": tally.faults,
    }


def filled(_total: int, _seed: int) -> Iterator[Row]:
    """Disks that fill up."""
    if os.getuid() != 0:
        return
    with _folder() as folder, disk.small_disk(folder / "disk", "64m") as small:
        (small / "here").mkdir()
        for name, command in disk.commands(captured_tiny(small / "here")).items():
            tally = disk.fill_up(name, command, small, growth=1.0 if name == "capture" else 0.25)
            came = f"{tally.refused} refused, fits from {tally.fits_from_bytes} bytes"
            tried = tally.refused + 1
            yield {"fault": "disk full", "of": name, "tried": tried, "came": came, "faults": tally.faults}


def spoiled(total: int, seed: int) -> Iterator[Row]:
    """Malformed files."""
    with _folder() as folder:
        found = malformed.targets(folder)
        for target in found:
            tally = target.spoil(-(-total // len(found)), seed)
            names = len(tally.names.keys() - {"passed"})
            came = f"{tally.passed} still good, the others refused by {names} names"
            row: Row = {"fault": "malformed", "of": tally.kind, "tried": tally.tried}
            yield row | {"came": came, "faults": sorted(set(tally.faults))}


def odd(_total: int, _seed: int) -> Iterator[Row]:
    """Places and times that nobody planned for."""
    for name, provoke in oddities().items():
        with _folder() as folder:
            try:
                came, faults = provoke(folder), list[str]()
            except AssertionError as error:
                came, faults = "", [str(error)[-400:]]
        yield {"fault": name, "of": "capture and others", "tried": 1, "came": came, "faults": faults}


GROUPS: dict[str, tuple[Callable[[int, int], Iterator[Row]], int]] = {
    "kills": (killed, 300),
    "disk": (filled, 1),
    "malformed": (spoiled, 2000),
    "odd": (odd, 1),
}


def main() -> None:
    """Provoke, print and write down."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("groups", nargs="*", choices=[*GROUPS, []], help="which ones; all by default")
    parser.add_argument("--seed", type=int, default=1, help="of the random moments and of the spoiling")
    parser.add_argument("--share", type=float, default=1.0, help="how much of the full number to try")
    parser.add_argument("--json", type=Path, help="write the table here too")
    options = parser.parse_args()
    rows: list[Row] = []
    for name in options.groups or GROUPS:
        provoke, total = GROUPS[name]
        started = time.monotonic()
        for row in provoke(max(1, round(total * options.share)), options.seed):
            row["seconds"] = round(time.monotonic() - started, 1)
            started = time.monotonic()
            rows.append(row)
            verdict = "ok" if not row["faults"] else "FAULT"
            sys.stdout.write(
                f"{verdict:5} {row['fault']:28} {row['of']:28} {row['tried']:5}  {row['came']}\n"
            )
            sys.stdout.writelines(f"      {fault}\n" for fault in row["faults"] or [])  # type: ignore[union-attr]
            sys.stdout.flush()
    if options.json:
        options.json.write_text(json.dumps({"seed": options.seed, "rows": rows}, indent=2) + "\n")
    sys.exit(any(row["faults"] for row in rows))


if __name__ == "__main__":
    main()
