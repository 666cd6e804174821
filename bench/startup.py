"""What it takes to start the command line, against importing click alone: `python bench/startup.py`.

The commands take turns, so that a busy machine slows all alike; figures are medians of wall seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import time
from pathlib import Path

ENTRY = "import sys; from repro.cli import main; sys.argv = ['repro', *sys.argv[1:]]; main()"
ROOT = Path(__file__).parent.parent
BARE = "import click"
COMMANDS: dict[str, list[str]] = {
    "python -c 'pass'": ["-c", "pass"],
    f"python -c '{BARE}'": ["-c", BARE],
    "repro --help": ["-c", ENTRY, "--help"],
    "repro lock --help": ["-c", ENTRY, "lock", "--help"],
    "repro lock --check": ["-c", ENTRY, "lock", "--check", "-C", str(ROOT / "examples" / "pilot")],
    "repro verify": [
        *("-c", ENTRY, "verify", str(ROOT / "manifests" / "pilot.cpu")),
        *("--trust", str(ROOT / "manifests" / "trust.yaml")),
    ],
}


def took(arguments: list[str]) -> float:
    """Run once and return wall seconds."""
    started = time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False
    )
    return time.perf_counter() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--json", type=Path, help="write the table here too")
    options = parser.parse_args()
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(options.rounds):
        for name, arguments in COMMANDS.items():
            times[name].append(took(arguments))
    bare = statistics.median(times[f"python -c '{BARE}'"])
    rows = []
    print(f"{'command':28} {'seconds':>8} {'by import click':>16}")
    for name, values in times.items():
        median = statistics.median(values)
        print(f"{name:28} {median:8.3f} {median / bare:16.2f}")
        rows.append({"command": name, "seconds": median, "ratio": median / bare})
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
