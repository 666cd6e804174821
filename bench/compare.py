"""How long comparing two traces takes, and how much memory, as steps grow: `python bench/compare.py`.

Traces are files on disk with every step's scalars and, every hundredth step, fingerprints of eight tensors.
All ranks read one file per side, so that a million steps on eight ranks fit on a small disk; every byte is
read and compared for every rank all the same. The yardstick is reading both files line by line and comparing
the lines with no filter and no meaning. Seconds are processor time, so that a busy machine does not count.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from measured import measured

from repro.compare import compare
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, RankFile, Trace, encode_sketch, hexed, write_line

TENSORS = [f"blocks.{index}.weight" for index in range(8)]


def events(steps: int, *, departs: int | None, clock: int) -> Iterator[dict[str, Any]]:
    head = {
        "ev": "head",
        "format": "repro-trace/1",
        "rank": 0,
        "rng_probe": {"cpu": "a" * 64},
        "argv": ["train.py"],
    }
    yield head
    sketch = encode_sketch([1.0] * 64)
    for step in range(1, steps + 1):
        shift = 1e-3 if departs is not None and step >= departs else 0.0
        full = step % 100 == 0
        fp: dict[str, Any] = {"shape": [64], "dtype": "float32", "n": 64, "off": 0, "l2": hexed(8.0 + shift)}
        if full:
            fp |= {"dg": f"{step:032x}" if not shift else f"{step + 1:032x}", "sk": sketch}
        event: dict[str, Any] = {
            "ev": "step",
            "step": step,
            "optimizers": [{"i": 0, "cls": "AdamW", "k": step - 1, "hyper": [{"lr": hexed(3e-4)}]}],
            "inputs": [[[8, 128], "int64", f"{step:032x}"]],
            "loss": [{"bits": hexed(2.0 + 1.0 / step + shift), "dtype": "float32"}],
            "grad_norm": hexed(1.0 + shift),
            "rng": {"torch": f"{step:032x}", "python": "0" * 32},
            "grads": dict.fromkeys(TENSORS, fp),
        }
        if full:
            event["params"] = dict.fromkeys(TENSORS, fp)
        yield event
        yield {"ev": "time", "step": step, "s": hexed(0.1 + clock), "data_wait_s": hexed(0.01)}
        yield {"ev": "mem", "step": step, "rss_peak_bytes": 1 << 30, "allocated_peak_bytes": None}


def write(path: Path, steps: int, *, departs: int | None, clock: int) -> None:
    with path.open("wb") as stream:
        for event in events(steps, departs=departs, clock=clock):
            stream.write(write_line(event))


def trace(path: Path, ranks: int) -> Trace:
    def opened() -> Iterator[bytes]:
        with path.open("rb") as stream:
            yield from stream

    files = tuple(
        RankFile(rank=rank, path=str(path), digest="", size=0, lines=opened) for rank in range(ranks)
    )
    return Trace(phases=(PhaseTrace(name="full", first_step=0, world_size=ranks, ranks=files),))


def judge(target: Path, candidate: Path, ranks: int) -> str:
    return compare(trace(target, ranks), trace(candidate, ranks), tolerance=ToleranceSpec()).sentence


def read_lines(target: Path, candidate: Path, ranks: int) -> str:
    equal = 0
    for _ in range(ranks):
        with target.open("rb") as a, candidate.open("rb") as b:
            equal += sum(x == y for x, y in zip(a, b, strict=False))
    return f"{equal} lines are equal"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--steps", type=int, nargs="+", default=[1_000, 100_000, 1_000_000])
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    rows = []
    print(f"{'steps':>9} {'ranks':>5} {'MB/side':>8} {'work':<22} {'seconds':>8} {'peak MB':>8}  result")
    for steps in options.steps:
        with tempfile.TemporaryDirectory() as folder:
            paths = {name: Path(folder) / f"{name}.jsonl" for name in ("target", "equal", "departs")}
            write(paths["target"], steps, departs=None, clock=0)
            write(paths["equal"], steps, departs=None, clock=1)
            write(paths["departs"], steps, departs=7, clock=1)
            size = paths["target"].stat().st_size * options.ranks / 1e6
            works = (
                ("compare, equal", judge, paths["equal"]),
                ("compare, differ from 7", judge, paths["departs"]),
                ("lines only", read_lines, paths["equal"]),
            )
            for name, work, candidate in works:
                seconds, peak, said = measured(work, paths["target"], candidate, options.ranks)
                rows.append(
                    {
                        "steps": steps,
                        "ranks": options.ranks,
                        "work": name,
                        "seconds": seconds,
                        "peak_bytes": peak,
                    }
                )
                row = f"{steps:>9} {options.ranks:>5} {size:>8.0f} {name:<22} {seconds:>8.2f}"
                print(f"{row} {peak / 1e6:>8.1f}  {said[:60]}", flush=True)
    if options.json:
        options.json.write_text(json.dumps({"python": sys.version.split()[0], "rows": rows}, indent=2) + "\n")


if __name__ == "__main__":
    main()
