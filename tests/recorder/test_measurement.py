"""What a phase took and needed comes out of its trace; null where nobody can know."""

from __future__ import annotations

import json
import statistics
from pathlib import Path
from typing import Any

import pytest

from repro.errors import TraceError
from repro.measurement import PhaseMeasurement, Spread, measure_phase
from repro.recorder.communication import covered
from repro.report.measurement import measurement_lines
from repro.trace import PhaseTrace, RankFile, hexed, write_line
from tests.recorder.recorder_world import only_trace, recorded_environment, run

HEAD = {"ev": "head", "format": "repro-trace/1"}


def phase(*ranks: list[dict[str, Any]]) -> PhaseTrace:
    files = tuple(
        RankFile(
            rank=rank,
            path=f"trace/full/rank-{rank}.jsonl",
            digest="",
            size=0,
            lines=lambda events=events: [write_line(event) for event in [HEAD, *events]],  # type: ignore[misc]
        )
        for rank, events in enumerate(ranks)
    )
    return PhaseTrace(name="full", first_step=0, world_size=len(ranks), ranks=files)


def steps(
    seconds: list[float], *, loss: str = "0x1.0p+0", data: str = "a", **more: Any
) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for number, taken in enumerate(seconds, 1):
        timing = {"s": hexed(taken + 0.5), "recorder_s": hexed(0.5), "data_wait_s": hexed(0.25)}
        found += [
            {"ev": "step", "step": number, "inputs": [[[4, 8], "int64", data]], "loss": [{"bits": loss}]},
            {
                "ev": "time",
                "step": number,
                "passes": 2,
                "samples": 8,
                "tokens": 64,
                "length": 8,
                **timing,
                **more,
            },
        ]
    return found


def model(n: int = 10, **more: Any) -> dict[str, Any]:
    entry = {"shape": [20], "dtype": "float32", "n": n}
    return {"ev": "model", "params": {"a": entry, "b": {**entry, **more}}, "buffers": {}, "frozen": ["b"]}


def test_the_warm_up_is_told_apart_and_the_recorder_left_out() -> None:
    (rank,) = measure_phase(phase(steps([9.0, 8.0, 7.0, 1.0, 2.0, 3.0]))).ranks
    assert rank.warm_up_us == (9_000_000, 8_000_000, 7_000_000)
    deviation = round(statistics.stdev([1e6, 2e6, 3e6]))
    assert rank.step_us == Spread(
        median=2_000_000, mean=2_000_000, deviation=deviation, p95=3_000_000, count=3
    )
    assert rank.recorder_us is not None
    assert rank.recorder_us.median == 500_000
    assert rank.data_wait_us is not None
    assert rank.data_wait_us.mean == 250_000


def test_batches_add_up_over_ranks_that_were_given_different_data() -> None:
    apart = measure_phase(phase(steps([1.0] * 5), steps([2.0] * 5, data="b")))
    assert apart.effective_batch == 16
    assert apart.samples_per_s == hexed(8.0), "the slowest rank is what the others wait for"
    assert apart.tokens_per_s == hexed(64.0)
    alike = measure_phase(phase(steps([1.0] * 5), steps([2.0] * 5)))
    assert alike.effective_batch == 8
    assert (apart.ranks[0].micro_batch, apart.ranks[0].sequence_length) == (4, 8)


def test_shards_add_up_and_replicas_count_once() -> None:
    sharded = measure_phase(phase([model()], [model()]))
    assert (sharded.parameters, sharded.ranks[0].parameters, sharded.ranks[0].trainable) == (40, 40, 20)
    replicated = measure_phase(phase([model(20)], [model(20, rep=1)]))
    assert (replicated.parameters, replicated.ranks[1].held) == (60, 20)


def test_what_lies_between_allocated_reserved_and_in_use() -> None:
    memory = {
        "allocated_peak_bytes": 60,
        "reserved_peak_bytes": 100,
        "reserved_bytes": 90,
        "device_used_bytes": 150,
    }
    (rank,) = measure_phase(phase([{"ev": "mem", "step": 1, "rss_peak_bytes": 7, **memory}])).ranks
    assert rank.memory.tree() == {
        "rss_peak": 7,
        "allocated_peak": 60,
        "reserved_peak": 100,
        "unused_peak": 40,
        "device_used": 150,
        "outside_allocator": 60,
    }


def test_unknown_is_null() -> None:
    (rank,) = measure_phase(phase([{"ev": "mem", "step": 1, "rss_peak_bytes": None}])).ranks
    known = {key for key, value in rank.tree().items() if value is not None}
    assert known == {
        "rank", "steps", "skipped_steps", "non_finite_steps", "warm_up_us", "evaluations", "memory"
    }  # fmt: skip
    assert set(rank.memory.tree().values()) == {None}


def test_a_loss_that_is_not_finite_is_named() -> None:
    found = measure_phase(phase(steps([1.0, 1.0], loss="nan")))
    assert found.ranks[0].non_finite_steps == (1, 2)
    assert "loss not finite at step 1, 2" in "\n".join(measurement_lines(found))


def test_a_malformed_line_is_an_error_of_ours() -> None:
    with pytest.raises(TraceError, match="lacks what its kind must have"):
        measure_phase(phase([{"ev": "time", "what": "eval"}]))


def test_times_that_overlap_count_once() -> None:
    assert covered([(0, 10), (5, 12), (20, 30), (22, 25)]) == 22
    assert covered([]) == 0


PROGRAM = """
import torch
from torch.utils.data import DataLoader
model = torch.nn.Sequential(torch.nn.Embedding(9, 4), torch.nn.Flatten(), torch.nn.Linear(12, 2))
model[0].weight.requires_grad_(False)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for at, x in enumerate(DataLoader(torch.randint(0, 9, (60, 3)), batch_size=5)):
    model(x).square().sum().backward()
    if at % 2:
        optimizer.step()
        optimizer.zero_grad()
with torch.no_grad():
    model(x)
torch.save(model.state_dict(), "model.pt")
torch.load("model.pt")
"""


@pytest.mark.torch
def test_a_program_is_measured(tmp_path: Path) -> None:
    run(["-c", PROGRAM], recorded_environment(tmp_path / "trace"), cwd=tmp_path)
    events = only_trace(tmp_path / "trace")
    found: PhaseMeasurement = measure_phase(phase(events[1:]))
    (rank,) = found.ranks
    assert (rank.steps, rank.samples_per_step, rank.micro_batch, rank.sequence_length) == (6, 10, 5, 3)
    assert (found.effective_batch, rank.tokens_per_step) == (10, 30)
    assert (rank.parameters, rank.trainable, rank.held) == (62, 26, 62)
    times = (rank.load_us, rank.evaluation_us, rank.checkpoint_write_us, rank.checkpoint_restore_us)
    assert all(value is not None and value > 0 for value in times)
    assert rank.step_us is not None
    assert rank.step_us.count == 3
    assert rank.communication_us is None
    assert rank.memory.rss_peak is not None
    assert rank.memory.allocated_peak is None
    json.dumps(found.tree(), allow_nan=False)
    assert "sequence 3, micro-batch 5, effective batch 10" in "\n".join(measurement_lines(found))
    state = next(event for event in events if event["ev"] == "end")["state"]
    assert set(state) == {"optimizer/0/2.weight/momentum_buffer", "optimizer/0/2.bias/momentum_buffer"}
