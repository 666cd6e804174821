"""Several ranks: nothing changes, and what the ranks hold adds up to the whole."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from repro.compare import one_rank
from repro.trace import PhaseTrace, RankFile, Trace, decode_sketch, unhex
from tests.recorder.recorder_world import (
    PROGRAMS,
    Pair,
    all_files,
    events,
    of_kind,
    recorded_environment,
    run,
    run_pair,
)

pytestmark = pytest.mark.torch

CASES = {"ddp": 4, "fsdp2": 4, "pipeline": 3}
LAUNCHER = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
MASK = (1 << 64) - 1


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return run_pair(tmp_path_factory.mktemp("ranks"), list(CASES), launcher=LAUNCHER)


@pytest.mark.parametrize("rank", [0, 1])
@pytest.mark.parametrize("case", CASES)
def test_nothing_changes_on_any_rank(pair: Pair, case: str, rank: int) -> None:
    assert pair.same(case, rank)
    found = pair.events(case, rank)
    assert not of_kind(found, "err")
    assert len(of_kind(found, "step")) == CASES[case]
    head = of_kind(found, "head")[-1]
    assert (head["rank"], head["world"]) == (rank, 2)


def test_a_pipeline_is_stopped_on_every_stage(tmp_path: Path) -> None:
    """No stage waits for one that was stopped, or breaks off what another still sends."""
    (tmp_path / "out").mkdir()
    environment = recorded_environment(tmp_path / "trace", REPRO_STOP_AFTER="2")
    run(
        [*LAUNCHER, PROGRAMS / "cases.py", tmp_path / "out", "pipeline"],
        environment,
        options=["-W", "ignore"],
    )
    every = [events(path) for path in all_files(tmp_path / "trace")]
    found = [one for one in every if of_kind(one, "step")]
    assert sorted(of_kind(one, "head")[-1]["rank"] for one in found) == [0, 1]
    for one in found:
        assert [event["step"] for event in of_kind(one, "step")] == [1, 2]
        assert of_kind(one, "end")[0]["stopped"] is True


def test_the_launcher_leaves_only_a_head(pair: Pair) -> None:
    kinds = {path.name: {event["ev"] for event in events(path)} for path in all_files(pair.trace)}
    (launcher,) = (found for name, found in kinds.items() if name.startswith("proc-x-"))
    assert launcher == {"head", "time"}


def test_ranks_of_ddp_hold_the_same(pair: Pair) -> None:
    zero, one = (of_kind(pair.events("ddp", rank), "step") for rank in (0, 1))
    for first, second in zip(zero, one, strict=True):
        assert first["inputs"] != second["inputs"]
        for kind in ("grads", "params"):
            assert set(first[kind]) == set(second[kind])
            for name, entry in first[kind].items():
                assert {**entry, "rep": 1} == second[kind][name]
    assert len(zero[0]["loss"]) == 2


def added(entries: Sequence[dict[str, Any]]) -> tuple[int, int]:
    halves = [[int(entry["dg"][at : at + 16], 16) for at in (0, 16)] for entry in entries]
    first, second = (sum(column) & MASK for column in zip(*halves, strict=True))
    return first, second


def as_phase(pair: Pair, case: str) -> PhaseTrace:
    pids = [pair.result(case, rank, recorded=True)["pid"] for rank in (0, 1)]
    paths = [next(pair.trace.glob(f"proc-*-{pid}.jsonl")) for pid in pids]
    files = [
        RankFile(rank=rank, path=path.name, digest="", size=0, lines=partial(_lines, path))
        for rank, path in enumerate(paths)
    ]
    return PhaseTrace(name="full", first_step=0, world_size=2, ranks=tuple(files))


def _lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


@pytest.mark.parametrize("case", ["ddp", "fsdp2"])
def test_ranks_added_up_are_one_rank_that_holds_the_whole(pair: Pair, case: str) -> None:
    (file,) = one_rank(Trace(phases=(as_phase(pair, case),))).phases[0].ranks
    steps = [event for event in file.events() if event["ev"] == "step"]
    assert len(steps) == CASES[case]
    several = [of_kind(pair.events(case, rank), "step")[-1]["params"] for rank in (0, 1)]
    for name, entry in steps[-1]["params"].items():
        size = math.prod(entry["shape"])
        assert (entry["n"], entry["off"]) == (size, 0)
        parts = [side[name] for side in several if name in side and "rep" not in side[name]]
        assert [int(entry["dg"][at : at + 16], 16) for at in (0, 16)] == list(added(parts))


def test_shards_of_fsdp_add_up_to_the_whole(pair: Pair) -> None:
    import torch

    from repro.recorder import fingerprint

    ends, steps = [], []
    for rank in (0, 1):
        found = pair.events("fsdp2", rank)
        ends.append(of_kind(found, "end")[0]["params"])
        steps.append(of_kind(found, "step")[-1]["params"])
    pid = pair.result("fsdp2", recorded=True)["pid"]
    whole = np.load(Path(pair.recorded) / f"fsdp2-{pid}.npz")
    assert set(whole) == set(ends[0]) == set(steps[1])
    uneven = False
    for name in whole:
        tensor = torch.from_numpy(whole[name]).reshape(-1)
        exact = tuple(int(v) & MASK for v in fingerprint.digest(tensor))
        assert added([end[name] for end in ends]) == exact
        assert added([step[name] for step in steps]) == exact
        sketches = np.array([decode_sketch(step[name]["sk"]) for step in steps])
        expected = fingerprint.sketch(tensor, tensor.numel()).numpy()
        np.testing.assert_allclose(sketches.sum(0), expected, rtol=1e-12, atol=1e-12)
        uneven |= ends[0][name]["n"] != ends[1][name]["n"]
    assert uneven


STOPPED = """
import os
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for at in range(1, 5):
    optimizer.zero_grad()
    model(torch.randn(3, 4)).sum().backward()
    optimizer.step()
    if at == 2:
        if dist.get_rank() == 0:
            torch.save(model.state_dict(), "checkpoint.pt")
        dist.barrier()
raise SystemExit("not reached")
"""


def test_every_rank_stops_after_the_same_step(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(STOPPED)
    environment = recorded_environment(tmp_path / "trace", REPRO_STOP_AFTER="2", REPRO_STEPS="4")
    run([*LAUNCHER, program], environment, options=["-W", "ignore"], cwd=tmp_path)
    assert (tmp_path / "checkpoint.pt").exists()
    for rank in (0, 1):
        (path,) = (tmp_path / "trace").glob(f"proc-{rank}-*.jsonl")
        found = events(path)
        kinds = [event["ev"] for event in found if event["ev"] in ("step", "save", "end")]
        assert kinds == ["step", "step", *["save"][rank:], "end"]
        assert found[-1]["stopped"] is True


def test_a_stage_names_only_what_it_holds(pair: Pair) -> None:
    names = [set(of_kind(pair.events("pipeline", rank), "step")[0]["params"]) for rank in (0, 1)]
    assert names[0]
    assert names[1]
    losses = [[len(step["loss"]) for step in of_kind(pair.events("pipeline", r), "step")] for r in (0, 1)]
    assert losses == [[4, 4, 4]] * 2


@pytest.mark.parametrize("case", ["ddp", "fsdp2"])
def test_the_time_ranks_exchange_data_is_measured_once(pair: Pair, case: str) -> None:
    for rank in (0, 1):
        times = [event for event in of_kind(pair.events(case, rank), "time") if "step" in event]
        told = [event["step"] for event in times if "communication_s" in event]
        assert told == [3]
        assert 0 < unhex(times[2]["communication_s"]) < sum(unhex(event["s"]) for event in times)
