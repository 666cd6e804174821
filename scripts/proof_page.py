"""Write docs/proof.md from the figures that the benchmarks and the fault tests wrote below bench/results/.

No figure on that page is typed by hand: each section is a JSON file with `rows`, and the columns to show.
A file that is not there is a section that says so.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parent.parent
RESULTS = ROOT / "bench" / "results"

HEAD = """# Proof

What is claimed here can be run again: each table names the command that made it, and is written from
that command's JSON by `python scripts/proof_page.py`. Ratios were taken within one run, against the
alternative that is named. The machine: {machine}.
"""

NOT_RUN = """
## What was not run

- No GPU: nothing here ran on CUDA or ROCm hardware. CUDA images were built and run on a CPU; probes of
  drivers and devices were tried on recorded outputs.
- No public Sigstore: keyless signing needs an identity provider and a transparency log.
- No Slurm, no second machine: two nodes were two launchers on one loopback interface. DataParallel and model
  parallelism ran on one processor, not across devices.
- No table yet of image builds against a plain Dockerfile.
- The truth of verdicts in bfloat16 has not been counted with this code yet: `--pilot 'transformer in bf16'`.
- No macOS, no Windows.
- Time on a shared machine of two cores: absolute seconds are worth little, ratios more.
"""


class Section(NamedTuple):
    """One table: where its figures lie, which command makes them, what to show of each row."""

    file: str
    title: str
    command: str
    columns: tuple[str, ...]
    words: str


SECTIONS = (
    Section(
        "faults.json",
        "Faults",
        "python -m tests.faults --json bench/results/faults.json",
        ("fault", "of", "tried", "came", "faults"),
        "An empty last column is the claim: nothing torn, nothing lost, every refusal has a name.",
    ),
    Section(
        "scale.json",
        "Scale",
        "python bench/scale.py --json bench/results/scale.json",
        ("work", "size", "seconds", "peak_bytes"),
        "Processor seconds, and memory above the start, for a tenth and for the whole.",
    ),
    Section(
        "truth.json",
        "Truth of the verdict",
        "python -m tests.truth --json bench/results/truth.json",
        ("pilot", "replays", "of", "right", "cannot tell", "wrong", "wrong at most", "without effect"),
        "Replays of known worth, recorded and judged as on another stack. The bound is one-sided, 95 %.",
    ),
    Section(
        "pilots.json",
        "Layouts and precision",
        "python bench/pilots.py --json bench/results/pilots.json",
        (
            "pilot",
            "ranks",
            "recorded",
            "restored",
            "replayed",
            "loss",
            "weights",
            "step_s",
            "efficiency",
            "peak_bytes",
            "time_ratio",
            "memory_ratio",
        ),
        "`loss` and `weights`: largest relative distance at any step to one process in float32 on the same "
        "batches, ranks added up. `efficiency`: throughput to that of one process, by the number of ranks,"
        " on two cores. The last row is activation checkpointing, to keeping activations, on a larger model.",
    ),
    Section(
        "startup.json",
        "Start of the command line",
        "python bench/startup.py --json bench/results/startup.json",
        ("command", "seconds", "ratio"),
        "`ratio` is to `python -c 'import click'`.",
    ),
    Section(
        "compare.json",
        "Comparing traces",
        "python bench/compare.py --json bench/results/compare.json",
        ("steps", "ranks", "work", "seconds", "peak_bytes"),
        "Against reading both files and comparing their lines.",
    ),
    Section(
        "report.json",
        "HTML page",
        "python bench/report.py --json bench/results/report.json",
        ("steps", "ranks", "seconds", "json_seconds", "ratio", "peak_bytes"),
        "`ratio` is to parsing the same lines with `json.loads`.",
    ),
    Section(
        "replay.json",
        "Replay",
        "python bench/replay.py --json bench/results/replay.json",
        ("replay_s", "pilot_s", "added_s", "ratio"),
        "Wall time of a replay against that of the pilot's own processes in it.",
    ),
    Section(
        "lock.json",
        "Lock",
        "python bench/lock.py --json bench/results/lock.json",
        (),
        "Against `pip-compile`, `uv`, parallel `openssl dgst -sha256` and `model_signing`.",
    ),
    Section(
        "verify.json",
        "Verify",
        "python bench/verify.py --json bench/results/verify.json",
        (),
        "Against `model_signing`, cosign and parallel `openssl dgst -sha256`.",
    ),
    Section(
        "recorder.json",
        "Recorder",
        "python bench/recorder.py --json bench/results/recorder.json",
        (),
        "Against the bare loop, TensorBoard and MLflow.",
    ),
)


def cell(value: Any) -> str:
    """A value as a person reads it."""
    if isinstance(value, float):
        return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    if isinstance(value, list):
        return "; ".join(map(str, value))
    return "" if value is None else str(value).replace("|", r"\\|").replace("\\n", " ")


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Rows as Markdown; all members of the first row where no columns are named."""
    names = columns or tuple(rows[0])
    lines = [f"| {' | '.join(names)} |", f"|{'---|' * len(names)}"]
    lines += [f"| {' | '.join(cell(row.get(name)) for name in names)} |" for row in rows]
    return "\n".join(lines)


def section(one: Section, results: Path = RESULTS) -> str:
    """A heading, the command, and the table."""
    head = f"\n## {one.title}\n\n`{one.command}`\n\n{one.words}\n\n"
    path = results / one.file
    if not path.exists():
        return head + "Not run yet.\n"
    rows = json.loads(path.read_text(encoding="utf-8"))["rows"]
    return head + (table(rows, one.columns) if rows else "No rows.") + "\n"


def page() -> str:
    """The whole page."""
    machine = (RESULTS / "machine.txt").read_text(encoding="utf-8").strip()
    return HEAD.format(machine=machine) + "".join(map(section, SECTIONS)) + NOT_RUN


if __name__ == "__main__":
    (ROOT / "docs" / "proof.md").write_text(page(), encoding="utf-8")
    sys.stdout.write("docs/proof.md\n")
