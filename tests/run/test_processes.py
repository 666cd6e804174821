"""One process for each accelerator a pilot sees, or a refusal that says both numbers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import RunError
from repro.run.processes import processes_of, require_one_process_each, visible


@pytest.mark.parametrize(
    ("command", "started"),
    [
        ("torchrun --standalone --nproc-per-node=8 train.py", 8),
        ("/opt/venv/bin/torchrun --nproc_per_node 4 train.py --nproc-per-node=9", 4),
        ("torchrun --nproc-per-node=gpu train.py", "each"),
        ("torchrun --nproc-per-node auto train.py", "each"),
        ("torchrun train.py", 1),
        ("torchrun --nproc-per-node=cpu train.py", None),
        ("torchrun --nproc-per-node", None),
        ("python -m torch.distributed.run --nproc-per-node=2 train.py", 2),
        ("accelerate launch --num_processes 2 train.py", 2),
        ("accelerate launch -n 3 train.py", 3),
        ("accelerate launch --num-processes=5 train.py", 5),
        ("python train.py", 1),
        ("python3.11 -u train.py", 1),
        ("bash run.sh", None),
        ("deepspeed train.py", None),
    ],
)
def test_a_launcher_says_how_many_it_starts(command: str, started: int | str | None) -> None:
    assert processes_of(command.split()) == started


@given(st.integers(1, 64), st.integers(1, 64), st.sampled_from(["cuda", "rocm"]))
def test_it_is_refused_just_where_the_numbers_differ(processes: int, devices: int, accelerator: str) -> None:
    command = ["torchrun", f"--nproc-per-node={processes}", "train.py"]
    if processes == devices:
        require_one_process_each(command, accelerator, devices, {})
        return
    with pytest.raises(RunError) as differ:
        require_one_process_each(command, accelerator, devices, {})
    assert differ.value.kind == "processes-differ"
    assert f"starts {processes} process" in differ.value.message
    assert f"has {devices} accelerator" in differ.value.message
    require_one_process_each(command, "cpu", devices, {})
    require_one_process_each(command, accelerator, 0, {})
    require_one_process_each(["torchrun", "--nproc-per-node=gpu", "x"], accelerator, devices, {})


@pytest.mark.parametrize(
    ("accelerator", "environment", "seen"),
    [
        ("cuda", {}, 8),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "0,3"}, 2),
        ("cuda", {"CUDA_VISIBLE_DEVICES": ""}, 0),
        ("cuda", {"CUDA_VISIBLE_DEVICES": "-1"}, 0),
        ("cuda", {"HIP_VISIBLE_DEVICES": "0"}, 8),
        ("rocm", {"HIP_VISIBLE_DEVICES": "0,1,2"}, 3),
        ("rocm", {"ROCR_VISIBLE_DEVICES": "0", "HIP_VISIBLE_DEVICES": "0,1,2"}, 1),
        ("cpu", {"CUDA_VISIBLE_DEVICES": "0"}, 8),
    ],
)
def test_variables_hide_devices(accelerator: str, environment: dict[str, str], seen: int) -> None:
    assert visible(accelerator, 8, environment) == seen


def test_what_hides_devices_makes_numbers_agree_and_is_said_where_they_do_not() -> None:
    command = ["torchrun", "--nproc-per-node=2", "train.py"]
    require_one_process_each(command, "cuda", 8, {"CUDA_VISIBLE_DEVICES": "0,1"})
    with pytest.raises(RunError) as differ:
        require_one_process_each(command, "cuda", 8, {"CUDA_VISIBLE_DEVICES": "0,1,2"})
    assert "of which it sees 3" in differ.value.message
    assert differ.value.remedy is not None
    assert "CUDA_VISIBLE_DEVICES: '0,1'" in differ.value.remedy
