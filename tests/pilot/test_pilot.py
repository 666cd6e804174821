"""The reference pilot: its configuration alone decides every bit, and resuming leaves no trace."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest

pytestmark = pytest.mark.torch

SOURCE = Path(__file__).parents[2] / "examples" / "pilot"
SMALL = ("model.width=48", "model.layers=2", "model.heads=3", "model.context=32")
STEP = re.compile(r"step (\d+)/20  epoch (\d+)  loss \S+ = (\S+)  norm (\S+)")
VALIDATION = re.compile(r"step (\d+)/20  validation \S+ = (\S+)")


@dataclass(frozen=True)
class Ran:
    folder: Path
    losses: dict[int, str]
    epochs: dict[int, int]
    validations: dict[int, str]
    weights: str

    @property
    def state(self) -> Path:
        return self.folder / "out" / "checkpoint" / "state.pt"


def start(folder: Path, ranks: int, *settings: str, resume: bool = False) -> subprocess.CompletedProcess[str]:
    launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"]
    argv = [sys.executable, *(launcher if ranks > 1 else []), "train.py", "--config", "configs/pilot.yaml"]
    for setting in (*SMALL, *settings):
        argv += ["--set", setting]
    if resume:
        argv += ["--resume", "out/checkpoint"]
    environment = {
        "CUDA_VISIBLE_DEVICES": "",
        "HOME": str(folder),
        "OMP_NUM_THREADS": "1",
        "PATH": os.environ["PATH"],
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    return subprocess.run(argv, cwd=folder, env=environment, capture_output=True, text=True, timeout=300)


def run(folder: Path, ranks: int = 1, *settings: str, resume: bool = False) -> Ran:
    done = start(folder, ranks, *settings, resume=resume)
    assert done.returncode == 0, done.stderr
    steps = [STEP.match(line) for line in done.stdout.splitlines()]
    validations = [VALIDATION.match(line) for line in done.stdout.splitlines()]
    return Ran(
        folder=folder,
        losses={int(step[1]): step[3] for step in steps if step},
        epochs={int(step[1]): int(step[2]) for step in steps if step},
        validations={int(found[1]): found[2] for found in validations if found},
        weights=done.stdout.splitlines()[-1].removeprefix("weights "),
    )


def project(folder: Path) -> Path:
    """A copy of the pilot's files, and nothing that it wrote."""
    for name in ("train.py", "configs/pilot.yaml", "data/corpus.txt"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(SOURCE / name, folder / name)
    return folder


def after_checkpoint(values: dict[int, str]) -> dict[int, str]:
    return {step: value for step, value in values.items() if step > 10}


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """Two ranks, never stopped."""
    return run(project(tmp_path_factory.mktemp("two")), 2)


@pytest.fixture(scope="module")
def one(tmp_path_factory: pytest.TempPathFactory) -> Ran:
    """A world of one, without torchrun."""
    return run(project(tmp_path_factory.mktemp("one")))


@pytest.fixture(scope="module")
def train() -> ModuleType:
    """The script as a module; importing it changes nothing."""
    spec = importlib.util.spec_from_file_location("pilot_train", SOURCE / "train.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_takes_its_steps_and_learns(two: Ran) -> None:
    assert list(two.losses) == list(range(1, 21))
    assert list(two.validations) == [5, 10, 15, 20]
    assert float.fromhex(two.losses[20]) < float.fromhex(two.losses[1]) - 0.2


def test_epochs_end_within_and_between_steps(two: Ran) -> None:
    ends = [step for step in range(2, 21) if two.epochs[step] != two.epochs[step - 1]]
    assert ends == [7, 14, 20]


def test_again_is_bitwise_the_same(two: Ran, tmp_path: Path) -> None:
    again = run(project(tmp_path), 2)
    assert (again.losses, again.validations, again.weights) == (two.losses, two.validations, two.weights)
    assert again.state.read_bytes() == two.state.read_bytes()


def test_resumed_is_bitwise_the_uninterrupted(two: Ran) -> None:
    saved = two.state.read_bytes()
    resumed = run(two.folder, 2, resume=True)
    assert resumed.losses == after_checkpoint(two.losses)
    assert resumed.epochs == {step: epoch for step, epoch in two.epochs.items() if step > 10}
    assert resumed.validations == after_checkpoint(two.validations)
    assert resumed.weights == two.weights
    assert two.state.read_bytes() == saved
    assert [path.name for path in two.state.parent.iterdir()] == ["state.pt"]


@pytest.mark.slow
def test_resumed_is_bitwise_the_uninterrupted_on_three_ranks(tmp_path: Path) -> None:
    full = run(project(tmp_path), 3, "data.samples_per_epoch=78")
    resumed = run(tmp_path, 3, "data.samples_per_epoch=78", resume=True)
    assert (resumed.losses, resumed.weights) == (after_checkpoint(full.losses), full.weights)


def test_checkpoint_is_whole_and_loads_safely(two: Ran) -> None:
    import torch

    state = torch.load(two.state, weights_only=True)
    assert state["step"] == 10
    assert state["data"] == {"epoch": 1, "used": 7}
    assert state["scheduler"]["last_epoch"] == 10
    assert state["scaler"] is None
    assert state["config"]["seed"] == 20261130
    assert set(state["optimizer"]["state"]) == set(range(len(state["model"])))
    first, second = state["rng"]
    assert set(first) == set(second) == {"python", "numpy", "torch", "device"}
    assert not torch.equal(first["torch"], second["torch"])


def test_resume_refuses_another_world(two: Ran) -> None:
    done = start(two.folder, 1, resume=True)
    assert done.returncode == 1
    assert "saved by 2 ranks; this is a world of 1" in done.stderr


def test_resume_refuses_other_settings(one: Ran) -> None:
    done = start(one.folder, 1, "optimizer.lr=1e-3", "steps=30", resume=True)
    assert done.returncode == 1
    assert "saved with other settings of: steps, optimizer" in done.stderr


@pytest.mark.parametrize(
    "setting", ["optimizer.rate=1", "steps=many", "model=3", "activation_checkpointing=1"]
)
def test_refuses_settings_it_does_not_have(train: ModuleType, setting: str) -> None:
    with pytest.raises(SystemExit, match=f"--set {setting}: .* has no such setting, or none of this type"):
        train.read_config(SOURCE / "configs" / "pilot.yaml", [setting])


def test_settings_keep_their_type(train: ModuleType) -> None:
    settings = ["optimizer.lr=1e-3", "optimizer.betas=[0.8, 0.9]", "steps=3"]
    config = train.read_config(SOURCE / "configs" / "pilot.yaml", settings)
    assert config["optimizer"]["lr"] == 0.001
    assert config["optimizer"]["betas"] == [0.8, 0.9]
    assert config["steps"] == 3


def test_another_seed_is_another_run(one: Ran, tmp_path: Path) -> None:
    other = run(project(tmp_path), 1, "seed=1")
    assert not set(other.losses.values()) & set(one.losses.values())


def test_activation_checkpointing_changes_no_bit(one: Ran, tmp_path: Path) -> None:
    again = run(project(tmp_path), 1, "activation_checkpointing=true")
    assert (again.losses, again.weights) == (one.losses, one.weights)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
def test_lower_precision_stays_near_and_resumes(one: Ran, tmp_path: Path, precision: str) -> None:
    lower = run(project(tmp_path), 1, f"precision={precision}")
    assert lower.losses != one.losses
    for step, loss in lower.losses.items():
        assert float.fromhex(loss) == pytest.approx(float.fromhex(one.losses[step]), rel=0.02)
    resumed = run(tmp_path, 1, f"precision={precision}", resume=True)
    assert (resumed.losses, resumed.weights) == (after_checkpoint(lower.losses), lower.weights)
