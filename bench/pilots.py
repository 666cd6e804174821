"""Every layout of `examples/pilots`, recorded, restored, replayed, and held to one process.

Run as `python bench/pilots.py`.

Each configuration is recorded four times: in full; in full again; up to its checkpoint, where it ends; and
from there in new processes. `restored` and `replayed` are verdicts. `loss` and `weights` are the largest
relative distances at any step to a single process in float32 on the same global batches, ranks added up.
Seconds are the median of a step on its slowest rank, without the first two; with more processes than cores
they say little.
"""

from __future__ import annotations

import argparse
import json
import os
import secrets
import socket
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import recorder
from repro.adapters.tracefiles import open_trace
from repro.compare import compare, compare_resume, one_rank
from repro.manifest import PhaseRecord
from repro.recorder import knobs
from repro.run.merge import merge
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, Trace, unhex
from repro.verdict import Comparability, Outcome, Verdict

PILOTS = Path(__file__).parent.parent / "examples" / "pilots"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run"]
SAME = Comparability(relation="same")
LARGER = ["batch=8", "steps=5", "checkpoint=99", "model={width: 256, layers: 8, heads: 4, context: 256}"]


@dataclass(frozen=True)
class Pilot:
    """One configuration on so many processes."""

    config: str
    processes: int = 1
    nodes: int = 1
    changes: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        """What the table calls it."""
        return f"{self.config}, two nodes" if self.nodes > 1 else self.config


MATRIX = (
    *(Pilot(f"single{kind}") for kind in ("", "-accumulate", "-bf16", "-fp16", "-checkpointing")),
    Pilot("data-parallel"),
    Pilot("model-parallel"),
    Pilot("ddp", 2),
    Pilot("ddp", 4),
    Pilot("ddp", 2, nodes=2),
    Pilot("ddp-buckets", 2),
    Pilot("ddp-buckets", 4),
    Pilot("ddp-bf16-accumulate", 2),
    Pilot("ddp-fp16", 2),
    Pilot("ddp-checkpointing", 2),
    Pilot("fsdp2", 2),
    Pilot("fsdp2", 4),
    Pilot("fsdp2-checkpointing-accumulate", 2),
    Pilot("pipeline", 2),
    Pilot("pipeline", 4),
)


@dataclass(frozen=True)
class Phases:
    """Records phases of one pilot below a folder."""

    pilot: Pilot
    folder: Path
    steps: int
    at: int

    def record(self, name: str, *, resume: Path | None = None, stop_after: int | None = None) -> PhaseTrace:
        """Run once, recorded."""
        raw, out, nonce = self.folder / "raw" / name, self.folder / "outputs" / name, secrets.token_hex(8)
        raw.mkdir(parents=True)
        done = 0 if resume is None else self.at
        environment = {
            **{key: text for key, text in os.environ.items() if not key.startswith(("REPRO_", "PYTHON"))},
            **knobs.environment("strict", accelerator="cpu", seed=7),
            "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(recorder.folder() / "inject"),
            "PYTHONWARNINGS": "ignore",
            "REPRO_DETERMINISM": "strict",
            "REPRO_EVERY": "1",
            "REPRO_NONCE": nonce,
            "REPRO_SEED": "7",
            "REPRO_STEPS": str(self.steps - done),
            "REPRO_TRACE": str(raw),
            **({} if stop_after is None else {"REPRO_STOP_AFTER": str(stop_after)}),
        }
        chosen = ["--config", f"configs/{self.pilot.config}.yaml", f"out={out}", *self.pilot.changes]
        command = [str(PILOTS / "train.py"), *chosen, *(["--resume", str(resume)] if resume else [])]
        self._launch(command, environment)
        files, steps, world = merge(self.folder, name, nonce)
        record = PhaseRecord.model_construct(
            name=name, first_step=done, world_size=world, steps=steps, trace=files
        )
        return open_trace(self.folder, [record]).phase(name)

    def _launch(self, command: Sequence[str], environment: dict[str, str]) -> None:
        """Start torchrun, once for each node, and wait for all."""
        pilot = self.pilot
        each = f"--nproc-per-node={pilot.processes // pilot.nodes}"
        place = ["--standalone"]
        if pilot.nodes > 1:
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                end = f"127.0.0.1:{free.getsockname()[1]}"
            place = [
                f"--nnodes={pilot.nodes}",
                "--rdzv-backend=c10d",
                f"--rdzv-endpoint={end}",
                "--rdzv-id=1",
            ]
        started = [
            subprocess.Popen(
                [*TORCHRUN, *place, each, *command],
                cwd=PILOTS,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for _ in range(pilot.nodes)
        ]
        said = [process.communicate(timeout=600)[0] for process in started]
        if any(process.returncode for process in started):
            raise SystemExit(f"{pilot.name}: {said[0][-3000:]}")


def measured(phase: PhaseTrace) -> tuple[float, int]:
    """Median seconds of a step and peak bytes, of the rank with most."""
    seconds, peaks = [], []
    for file in phase.ranks:
        events = list(file.events())
        times = [unhex(one["s"]) for one in events if one["ev"] == "time" and one.get("step", 0) > 2]
        seconds.append(statistics.median(times))
        peaks.append(max(one["rss_peak_bytes"] for one in events if one["ev"] == "mem"))
    return max(seconds), max(peaks)


def judged(target: PhaseTrace, candidate: PhaseTrace, *, added_up: bool = False) -> Verdict:
    """Compare two phases to the bit, as they are or with their ranks added up."""
    traces: Iterator[Trace] = iter([Trace(phases=(target,)), Trace(phases=(candidate,))])
    if added_up:
        traces = map(one_rank, traces)
    first, second = traces
    return compare(first, second, tolerance=ToleranceSpec(), environment=SAME, phases=[target.name])


def distances(verdict: Verdict) -> dict[str, float | None]:
    """Largest relative distance of loss and of weights at any step; null where they were not compared."""
    nothing = 0.0 if verdict.outcome == Outcome.BITWISE else None
    told = {"loss": [one.loss for one in verdict.growth], "weights": [one.params for one in verdict.growth]}
    return {
        name: max((unhex(one) for one in values if one), default=nothing) for name, values in told.items()
    }


def row(
    pilot: Pilot, folder: Path, single: PhaseTrace | None, *, steps: int = 8, at: int = 4
) -> dict[str, Any]:
    """Record one configuration and say what came of it; `single` is None for the yardstick itself."""
    phases = Phases(pilot, folder, steps, at)
    full = phases.record("full")
    again = phases.record("again")
    stopped = phases.record("interrupted", stop_after=at)
    resumed = phases.record("resumed", resume=folder / "outputs" / "interrupted" / "checkpoint")
    seconds, peak = measured(full)
    again = PhaseTrace(name="full", first_step=0, world_size=again.world_size, ranks=again.ranks)
    apart = judged(single or full, full, added_up=True)
    return {
        "pilot": pilot.name,
        "ranks": full.world_size,
        "recorded": f"{len([one for one in full.ranks[0].events() if one['ev'] == 'step'])} steps",
        "stopped": stopped.world_size == full.world_size,
        "restored": str(compare_resume(full, resumed).outcome),
        "replayed": str(judged(full, again).outcome),
        **distances(apart),
        "step_s": seconds,
        "peak_bytes": peak,
        "trace": full,
    }


def checkpointing(folder: Path) -> dict[str, Any]:
    """Cost of activation checkpointing on a larger model, as ratios to keeping activations."""
    costs = []
    for config in ("single", "single-checkpointing"):
        phases = Phases(Pilot(config, changes=tuple(LARGER)), folder / config, 5, 99)
        costs.append(measured(phases.record("full")))
    (kept, kept_peak), (again, again_peak) = costs
    return {
        "pilot": "activation checkpointing, larger model",
        "ranks": 1,
        "step_s": again,
        "time_ratio": again / kept,
        "peak_bytes": again_peak,
        "memory_ratio": again_peak / kept_peak,
    }


def main() -> None:
    """Record the matrix, print and write the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="pilots-") as name:
        single: PhaseTrace | None = None
        for number, pilot in enumerate(MATRIX):
            found = row(pilot, Path(name) / str(number), single)
            trace = found.pop("trace")
            single = single or trace
            found["efficiency"] = rows[0]["step_s"] / found["step_s"] / found["ranks"] if rows else 1.0
            rows.append(found)
            sys.stdout.write(f"{json.dumps(found)}\n")
            sys.stdout.flush()
        rows.append(checkpointing(Path(name) / "larger"))
        sys.stdout.write(f"{json.dumps(rows[-1])}\n")
    if chosen.json:
        chosen.json.write_text(json.dumps({"cores": os.cpu_count(), "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
