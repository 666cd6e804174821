"""Checkpoints of every common form are opened in a process of their own, and what they lack is named."""

from __future__ import annotations

import argparse
import importlib
import json
import random
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest

from repro import recorder
from repro.report.saved import saved_lines
from repro.run.saved import Needed, conclude
from repro.saved import PARTS, SavedState
from tests.recorder.recorder_world import bare_environment, run

torch = pytest.importorskip("torch")
np = pytest.importorskip("numpy")
pytestmark = pytest.mark.torch

STATES = {"python": {"a", "b"}, "numpy": {"a", "b"}, "torch": {"a", "b"}, "cuda:0": {"a", "b"}}
ALL = Needed(scaler=True, rates={b"1", b"2"}, states=STATES, parameters=frozenset({"weight", "bias"}))
EVERYTHING = set(PARTS)


def trained() -> tuple[Any, Any, Any, Any]:
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.AdamW(model.parameters())
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
    scaler = torch.amp.GradScaler("cpu")
    scaler.scale(model(torch.ones(1, 3)).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    schedule.step()
    return model, optimizer, schedule, scaler


def states() -> dict[str, Any]:
    kind, keys, *rest = np.random.get_state()
    return {
        "python": random.getstate(),
        "numpy": (kind, keys.tolist(), *rest),
        "torch": torch.get_rng_state(),
        "device": [torch.zeros(16, dtype=torch.uint8)],
    }


def whole() -> dict[str, Any]:
    model, optimizer, schedule, scaler = trained()
    return {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": schedule.state_dict(),
        "scaler": scaler.state_dict(),
        "step": 7,
        "config": {"lr": 0.1},
        "data": {"epoch": 1, "used": 3},
        "rng": states(),
    }


def opened(root: Path, world_size: int = 1) -> SavedState:
    """As a run does, but in this process."""
    found = importlib.import_module("repro.recorder.inspect.saved").look(root, root.parent)
    return conclude(found, ALL, world_size=world_size)


def opened_elsewhere(root: Path) -> SavedState:
    """As a run does: in another process, which leaves a file."""
    listing = root.parent / "listing.json"
    run(
        [recorder.folder() / "inspect" / "saved.py", root, listing],
        bare_environment(),
        options=["-W", "ignore"],
    )
    return conclude(json.loads(listing.read_text()), ALL, world_size=1)


def named(state: SavedState, status: str) -> set[str]:
    return {part.name for part in state.parts if part.status == status}


def write_file(folder: Path) -> Path:
    torch.save(whole(), folder / "state.pt")
    return folder / "state.pt"


def write_transformers(folder: Path) -> Path:
    state, place = whole(), folder / "checkpoint-7"
    place.mkdir()
    torch.save(state["model"], place / "pytorch_model.bin")
    for name in ("optimizer", "scheduler", "scaler"):
        torch.save(state[name], place / f"{name}.pt")
    rng = {"python": random.getstate(), "numpy": np.random.get_state(), "cpu": torch.get_rng_state()}
    torch.save({**rng, "cuda": torch.zeros(16, dtype=torch.uint8)}, place / "rng_state.pth")
    (place / "trainer_state.json").write_text(json.dumps({"global_step": 7, "epoch": 0.5}))
    torch.save(argparse.Namespace(lr=0.1), place / "training_args.bin")
    return place


def write_distributed(folder: Path) -> Path:
    import torch.distributed.checkpoint as dcp

    with warnings.catch_warnings(action="ignore"):
        dcp.save(whole(), checkpoint_id=folder / "shards", no_dist=True)
    return folder / "shards"


def write_lightning(folder: Path) -> Path:
    state = whole()
    named_as = {
        "state_dict": state["model"],
        "optimizer_states": [state["optimizer"]],
        "lr_schedulers": [state["scheduler"]],
        "MixedPrecision": state["scaler"],
        "global_step": 7,
        "hyper_parameters": {"lr": 0.1},
        "loops": {"fit_loop": {"batch_progress": {"current": 3}}},
        "rng": state["rng"],
    }
    torch.save(named_as, folder / "last.ckpt")
    return folder / "last.ckpt"


def write_accelerate(folder: Path) -> Path:
    state, place = whole(), folder / "checkpoint_0"
    place.mkdir()
    torch.save(state["model"], place / "pytorch_model.bin")
    for name in ("optimizer", "scheduler", "sampler"):
        torch.save(state.get(name, {"epoch": 1}), place / f"{name}.bin")
    torch.save(state["scaler"], place / "scaler.pt")
    random_states = {
        "step": 7,
        "random_state": random.getstate(),
        "numpy_random_seed": np.random.get_state(),
        "torch_manual_seed": torch.get_rng_state(),
        "torch_cuda_manual_seed": [torch.zeros(16, dtype=torch.uint8)],
    }
    torch.save(random_states, place / "random_states_0.pkl")
    (place / "config.json").write_text("{}")
    return place


@pytest.mark.parametrize(
    ("write", "how"),
    [
        (write_file, {"weights_only"}),
        (write_transformers, {"weights_only", "unrestricted", "json"}),
        (write_distributed, {"distributed"}),
        (write_lightning, {"weights_only"}),
        (write_accelerate, {"weights_only", "unrestricted", "json"}),
    ],
)
def test_every_part_is_found(tmp_path: Path, write: Any, how: set[str]) -> None:
    state = opened_elsewhere(write(tmp_path))
    assert [file for file in state.files if file.error] == []
    assert named(state, "present") == EVERYTHING
    assert {file.opened for file in state.files} <= how
    assert not any(part.note for part in state.parts)


@pytest.mark.parametrize(
    "part", ["model", "optimizer", "scheduler", "scaler", "step", "config", "data", "rng"]
)
def test_what_is_left_out_is_absent_and_says_what_follows(tmp_path: Path, part: str) -> None:
    state = whole()
    state[part] = None
    torch.save(state, tmp_path / "state.pt")
    found = opened(tmp_path / "state.pt")
    expected = {
        "config": {"configuration"},
        "data": {"position"},
        "rng": {name for name in PARTS if name.startswith("rng.")},
    }.get(part, {part})
    assert {one.name for one in found.absent} == expected
    assert {one.note for one in found.absent} == {PARTS[one.name] for one in found.absent}
    text = "\n".join(saved_lines(found))
    assert all(PARTS[one.name] in text for one in found.absent)


def test_only_weights() -> None:
    weights = {"files": [], "parts": {"model": ["m.pt"]}, "counts": {"model": 1}, "names": ["weight", "bias"]}
    quiet = Needed(rates={b"1"}, states={"python": {"a"}, "torch": {"a", "b"}}, parameters=ALL.parameters)
    found = conclude(weights, quiet, world_size=1)
    assert named(found, "not-applicable") == {
        "scaler", "scheduler", "rng.python", "rng.numpy", "rng.accelerators"
    }  # fmt: skip
    assert named(found, "absent") == {"optimizer", "step", "configuration", "rng.torch", "position"}


def test_states_of_some_ranks_and_some_weights_are_not_all(tmp_path: Path) -> None:
    state = whole()
    del state["model"]["bias"]
    torch.save(state, tmp_path / "state.pt")
    notes = {part.name: part.note for part in opened(tmp_path / "state.pt", world_size=2).parts if part.note}
    assert notes["model"] == "1 of 2 parameters are not in it: bias"
    assert notes["rng.torch"] == "1 of 2 ranks' states are there: the others draw anew"


def test_wrappers_in_names_do_not_matter(tmp_path: Path) -> None:
    model = torch.nn.Sequential()
    model.add_module("module", trained()[0])
    torch.save(model.state_dict(), tmp_path / "m.pt")
    (part,) = (part for part in opened(tmp_path / "m.pt").parts if part.name == "model")
    assert (part.status, part.note) == ("present", None)


def test_a_file_that_cannot_be_opened_leaves_parts_unknown(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    folder.mkdir()
    (folder / "state.pt").write_bytes(b"not a checkpoint")
    (folder / "model.safetensors").write_bytes(b"\xff" * 64)
    found = opened(folder)
    assert named(found, "unknown") == EVERYTHING
    assert [file.error is not None for file in found.files] == [True, True]
    assert "could not be opened" in "\n".join(saved_lines(found))


def test_it_needs_nothing_of_the_program() -> None:
    source = (recorder.folder() / "inspect" / "saved.py").read_text()
    imported = {
        line.split()[1].partition(".")[0]
        for line in source.splitlines()
        if line.startswith(("import ", "from "))
    }
    assert imported - set(sys.stdlib_module_names) == {"torch"}
