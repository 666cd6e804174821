"""What `repro replay` adds to the pilot's own time: `python bench/replay.py`.

A tiny project is captured and replayed on this machine, without an image. The pilot's own time is that of its
processes, phase by phase, as the replay keeps it; the rest is verifying, preparing, reading and comparing.
Figures are medians of wall seconds.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.e2e.e2e_world import succeed
from tests.faults.faults_world import captured_tiny


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, help="write the figures here too")
    options = parser.parse_args()
    whole, own = [], []
    with tempfile.TemporaryDirectory() as folder:
        tiny = captured_tiny(Path(folder))
        kept = Path(folder) / "kept"
        for _ in range(options.rounds):
            started = time.perf_counter()
            succeed(
                *("replay", tiny.run, "--trust", tiny.trust, "-C", tiny.project),
                *("--runtime", "host", "--keep", kept),
            )
            whole.append(time.perf_counter() - started)
            phases = json.loads((kept / "phases.json").read_text())
            own.append(sum(phase["milliseconds"] for phase in phases) / 1000)
    added = statistics.median(a - b for a, b in zip(whole, own, strict=True))
    figures = {"replay_s": statistics.median(whole), "pilot_s": statistics.median(own), "added_s": added}
    figures["ratio"] = figures["replay_s"] / figures["pilot_s"]
    print(
        f"replay {figures['replay_s']:.2f} s, of which the pilot's own processes {figures['pilot_s']:.2f} s"
    )
    print(f"added  {added:.2f} s; ratio {figures['ratio']:.2f}")
    if options.json:
        options.json.write_text(json.dumps({"rounds": options.rounds, "figures": figures}, indent=2) + "\n")


if __name__ == "__main__":
    main()
