"""What a checkpoint holds is recorded, by whichever function it is written or read."""

from __future__ import annotations

import importlib.util
import math
from pathlib import Path
from typing import Any

import pytest
import torch

from repro.recorder.content import rest_digest, tensors_in, walk
from tests.recorder.recorder_world import of_kind, only_trace, recorded_environment, run

pytestmark = pytest.mark.torch


def rest(value: Any) -> str:
    return rest_digest(walk(value)[1])


class Config:
    def __init__(self, lr: float) -> None:
        self.lr = lr
        self.itself = self


def test_tensors_are_found_by_their_path() -> None:
    a, b, c = torch.zeros(1), torch.ones(2), torch.ones(3)
    found, _ = walk({"model": {"w": a}, "groups": [{"lr": 1.0, "x": (b,)}], 3: c})
    assert {path: value is not None for path, value in found.items()} == dict.fromkeys(
        ["model/w", "groups/0/x/0", "3"], True
    )
    assert found["groups/0/x/0"] is b
    assert walk(a)[0] == {".": a}


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"lr": 0.1}, {"lr": math.nextafter(0.1, 1)}),
        ({"step": 1}, {"step": 2}),
        ({"step": 1}, {"step": 1.0}),
        ({"step": 1}, {"step": True}),
        ({1: "a"}, {"1": "a"}),
        ([1, 2], (1, 2)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (b"a", b"b"),
        (Config(0.1), Config(0.2)),
        ({1, 2}, {1, 3}),
        (None, "None"),
    ],
)
def test_what_is_no_tensor_counts_too(one: Any, other: Any) -> None:
    assert rest(one) == rest(one)
    assert rest(one) != rest(other)


def test_a_module_is_its_parameters_and_buffers() -> None:
    deep = torch.nn.Sequential(*[torch.nn.Linear(1, 1)])
    for _ in range(30):
        deep = torch.nn.Sequential(deep)
    found, _ = walk({"model": deep})
    assert sorted(found) == ["model/" + "0." * 31 + kind for kind in ("bias", "weight")]


def test_tensors_in_outputs() -> None:
    a, b = torch.zeros(1), torch.ones(1)
    assert [t is a or t is b for t in tensors_in(({"x": a}, [b, None, 3]))] == [True, True]


PROGRAM = """
import sys
import torch
import torch.distributed.checkpoint as dcp

class App:
    '''Has its state resolved by the writer.'''
    def __init__(self):
        self.model = torch.nn.Linear(2, 2)
    def state_dict(self):
        return {"model": self.model.state_dict(), "note": 3}
    def load_state_dict(self, state):
        self.model.load_state_dict(state["model"])

app = App()
with torch.no_grad():
    app.model.weight.fill_(1.5)
dcp.save({"app": app}, checkpoint_id="dcp")
other = App()
dcp.load({"app": other}, checkpoint_id="dcp")
assert torch.equal(other.model.weight, app.model.weight)
torch.serialization.save(app.model.state_dict(), "plain.pt")
if sys.argv[1] == "safetensors":
    from safetensors.torch import load_file, save_file
    save_file(app.model.state_dict(), "model.safetensors")
    load_file("model.safetensors")
"""


def test_every_way_to_write_a_checkpoint_is_seen(tmp_path: Path) -> None:
    has = "safetensors" if importlib.util.find_spec("safetensors") else "none"
    environment = recorded_environment(tmp_path / "trace")
    run(["-W", "ignore", "-c", PROGRAM, has], environment, cwd=tmp_path)
    found = only_trace(tmp_path / "trace")
    assert not of_kind(found, "err")
    events = [event for event in found if event["ev"] in ("save", "load")]
    seen = {(event["ev"], event["api"]): event for event in events}
    assert len(seen) == len(events), "what one writer does by means of another is seen once"
    distributed = "torch.distributed.checkpoint."
    save, load = seen["save", distributed + "save"], seen["load", distributed + "load"]
    assert save["tensors"] == load["tensors"]
    assert set(save["tensors"]) == {"app/model/weight", "app/model/bias"}
    digest = save["tensors"]["app/model/weight"]
    assert seen["save", "torch.save"]["tensors"]["weight"] == digest
    if has == "safetensors":
        for key in (("save", "safetensors.torch.save_file"), ("load", "safetensors.torch.load_file")):
            assert seen[key]["tensors"]["weight"] == digest
            assert seen[key]["bytes"] == (tmp_path / "model.safetensors").stat().st_size


def test_a_stop_waits_for_what_is_written_in_the_background(tmp_path: Path) -> None:
    program = """
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
model = torch.nn.Linear(1000, 1000)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
model(torch.zeros(1, 1000)).sum().backward()
optimizer.step()
dcp.async_save({"model": model.state_dict()}, checkpoint_id="dcp")
model(torch.zeros(1, 1000))
raise SystemExit("not reached")
"""
    environment = recorded_environment(tmp_path / "trace", REPRO_STOP_AFTER="1")
    run(["-W", "ignore", "-c", program], environment, cwd=tmp_path)
    found = only_trace(tmp_path / "trace")
    (save,) = of_kind(found, "save")
    assert (save["after"], save["api"]) == (1, "torch.distributed.checkpoint.async_save")
    assert (tmp_path / "dcp" / ".metadata").exists()
    assert found[-1]["stopped"] is True
