"""What is there before the first step is told as it was: nothing that a pass or a rehearsal made of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.trace import unhex
from tests.recorder.recorder_world import of_kind, only_trace, recorded_environment, run

pytestmark = pytest.mark.torch

BATCH_NORM = """
import torch
from torch import nn

model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for _ in range(2):
    model(torch.randn(8, 4) + 3).sum().backward()
    optimizer.step()
"""

RESTORED = """
import torch, torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict

def made(seed):
    torch.manual_seed(seed)
    model = nn.Linear(4, 1)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)

import sys
model, optimizer = made(int(sys.argv[2]))
if sys.argv[1] == "load":
    parts = get_state_dict(model, optimizer)
    state = {"model": parts[0], "optimizer": parts[1]}
    dcp.load(state, checkpoint_id=sys.argv[3])
    set_state_dict(model, optimizer, model_state_dict=state["model"], optim_state_dict=state["optimizer"])
for _ in range(2):
    optimizer.zero_grad()
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
if sys.argv[1] == "save":
    parts = get_state_dict(model, optimizer)
    dcp.save({"model": parts[0], "optimizer": parts[1]}, checkpoint_id=sys.argv[3])
"""


def test_buffers_are_those_of_before_the_first_pass(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(BATCH_NORM)
    run([tmp_path / "program.py"], recorded_environment(tmp_path / "trace"))
    (model,) = of_kind(only_trace(tmp_path / "trace"), "model")
    assert unhex(model["buffers"]["1.running_mean"]["l2"]) == 0.0
    assert unhex(model["buffers"]["1.running_var"]["l2"]) == 2.0


def test_the_step_that_makes_room_for_restored_state_is_none(tmp_path: Path) -> None:
    program, place = tmp_path / "program.py", tmp_path / "checkpoint"
    program.write_text(RESTORED)
    found = {}
    for way, seed in (("save", "1"), ("load", "2")):
        command: list[str | Path] = [program, way, seed, place]
        run(command, recorded_environment(tmp_path / way, REPRO_EVERY="1"), options=["-W", "ignore"])
        found[way] = only_trace(tmp_path / way)
    saved, loaded = (of_kind(found[way], "step") for way in ("save", "load"))
    assert [len(saved), len(loaded)] == [2, 2]
    (model,) = of_kind(found["load"], "model")
    assert model["params"]["weight"]["dg"] == saved[-1]["params"]["weight"]["dg"]
