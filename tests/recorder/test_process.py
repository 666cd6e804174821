"""How the recorder gets into a process, stays out of its way, and leaves."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.recorder.recorder_world import (
    all_files,
    bare_environment,
    events,
    of_kind,
    only_trace,
    recorded_environment,
    run,
)

pytestmark = pytest.mark.torch

LOOP = """
import torch
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def step():
    optimizer.zero_grad()
    model(torch.randn(3, 4)).square().sum().backward()
    optimizer.step()
"""


def record(tmp_path: Path, program: str, *, code: int = 0, **settings: str) -> list[dict[str, Any]]:
    trace = tmp_path / "trace"
    environment = recorded_environment(trace, **settings)
    run(["-c", LOOP + program], environment, cwd=tmp_path, code=code)
    return only_trace(trace)


@pytest.mark.parametrize("option", ["-E", "-I", "-S"])
def test_an_interpreter_that_ignores_us_leaves_no_head(tmp_path: Path, option: str) -> None:
    trace = tmp_path / "trace"
    environment = recorded_environment(trace)
    run(["-c", "print(1)"], environment, options=[option])
    assert list(all_files(trace)) == []


def test_a_head_says_who_and_on_what(tmp_path: Path) -> None:
    from repro import recorder

    found = record(tmp_path, "step()", REPRO_SEED="7", REPRO_DETERMINISM="off")
    first, second = of_kind(found, "head")
    assert found[0] is first
    kinds = [event["ev"] for event in found]
    assert found[kinds.index("model") - 1] is second
    assert first["nonce"] == "nonce"
    assert first["recorder"] == recorder.digest()
    assert (first["rank"], first["world"], first["seed"], first["every"]) == (0, 1, 7, 4)
    assert first["knobs"]["torch.get_num_threads"] == "1"
    assert first["knobs"]["OMP_NUM_THREADS"] == "1"
    assert first["knobs"]["NCCL_ALGO"] is None
    assert set(first["rng_probe"]) == {"cpu"}


def test_the_sitecustomize_it_hides_runs_and_may_fail(tmp_path: Path) -> None:
    hidden = tmp_path / "site"
    hidden.mkdir()
    (hidden / "sitecustomize.py").write_text(
        "import builtins; builtins.hidden = 1\nraise RuntimeError('mine')\n"
    )
    environment = recorded_environment(tmp_path / "trace")
    environment["PYTHONPATH"] += os.pathsep + str(hidden)
    done = run(["-c", LOOP + "step(); print(hidden)"], environment)
    assert done.stdout == "1\n"
    assert "RuntimeError('mine')" in done.stderr
    assert len(of_kind(only_trace(tmp_path / "trace"), "step")) == 1


def test_the_program_sees_the_torch_it_would_see_without(tmp_path: Path) -> None:
    program = (
        "import sys, torch, importlib.util, inspect\n"
        "print(torch.__spec__.loader, type(torch.__loader__), torch.__file__, sys.argv, __name__)\n"
        "print(importlib.util.find_spec('torch').loader)\n"
        "print(inspect.signature(torch.save), inspect.signature(torch.autograd.backward))\n"
        "print([name for name in sys.modules if 'dynamo' in name and not name.startswith('torch._C')])\n"
    )
    bare = run(["-c", program, "a"], bare_environment()).stdout
    recorded = run(["-c", program, "a"], recorded_environment(tmp_path / "trace")).stdout

    def without_addresses(text: str) -> str:
        return " ".join(word for word in text.split() if not word.startswith("0x"))

    assert without_addresses(recorded) == without_addresses(bare)


def test_it_stops_where_the_next_step_would_begin(tmp_path: Path) -> None:
    program = """
for at in range(1, 6):
    step()
    if at == 2:
        torch.save(model.state_dict(), "checkpoint.pt")
        with torch.no_grad():
            model(torch.zeros(1, 4))
raise SystemExit("not reached")
"""
    found = record(tmp_path, program, REPRO_STOP_AFTER="2", REPRO_STEPS="5")
    kinds = [event["ev"] for event in found if event["ev"] in ("step", "save", "eval", "end")]
    assert kinds == ["step", "step", "save", "eval", "end"]
    assert found[-1]["stopped"] is True
    assert (tmp_path / "checkpoint.pt").exists()


@pytest.mark.parametrize(
    "next_step",
    [
        "optimizer.step()",
        "sum(p.square().sum() for p in model.parameters()).backward()",
        "optimizer.step(lambda: model(torch.zeros(1, 4)).sum().backward())",
    ],
)
def test_it_stops_whatever_begins_the_next_step(tmp_path: Path, next_step: str) -> None:
    found = record(tmp_path, f"step()\n{next_step}\nraise SystemExit(3)", REPRO_STOP_AFTER="1")
    assert [event["ev"] for event in found if event["ev"] in ("step", "end")] == ["step", "end"]


def test_a_run_that_ends_by_itself_was_not_stopped(tmp_path: Path) -> None:
    found = record(tmp_path, "step()", REPRO_STOP_AFTER="1")
    assert "stopped" not in found[-1]


@pytest.mark.parametrize("leave", ["raise SystemExit(7)", "import os; os._exit(7)"])
def test_a_program_that_fails_still_leaves_its_end_and_its_code(tmp_path: Path, leave: str) -> None:
    found = record(tmp_path, f"step()\n{leave}", code=7)
    assert [event["ev"] for event in found if event["ev"] in ("step", "end")] == ["step", "end"]


def test_a_killed_program_leaves_whole_lines(tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    program = LOOP + "while True:\n    step()\n"
    with subprocess.Popen([sys.executable, "-c", program], env=recorded_environment(trace)) as process:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not any(p.stat().st_size > 50_000 for p in all_files(trace)):
            time.sleep(0.05)
        process.send_signal(signal.SIGKILL)
    found = only_trace(trace)
    steps = [event["step"] for event in of_kind(found, "step")]
    assert steps == list(range(1, len(steps) + 1))
    assert len(steps) > 3
    assert not of_kind(found, "end")


def test_a_trace_that_cannot_be_written_does_not_stop_the_program(tmp_path: Path) -> None:
    done = run(
        ["-c", LOOP + "step(); print('done')"],
        recorded_environment(tmp_path / "trace", REPRO_TRACE="/nowhere"),
    )
    assert done.stdout == "done\n"
    assert "repro:" in done.stderr


def test_its_own_failure_is_recorded_and_the_program_goes_on(tmp_path: Path) -> None:
    program = """
class Odd(str):
    def __repr__(self):
        raise OSError("no such thing")
model.odd = Odd()
step(); step()
print("done")
"""
    found = record(tmp_path, program)
    errors = of_kind(found, "err")
    assert "before_step" in {event["where"] for event in errors}
    assert all("OSError: no such thing" in event["message"] for event in errors)


def test_each_process_has_its_own_file(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(
        LOOP
        + """
import os
import torch.multiprocessing as mp
def work(rank):
    for _ in range(rank + 1):
        step()
    if rank:
        os._exit(3)
if __name__ == "__main__":
    for start in ("fork", "spawn"):
        children = [mp.get_context(start).Process(target=work, args=(rank,)) for rank in range(2)]
        [child.start() for child in children]
        [child.join() for child in children]
        assert [child.exitcode for child in children] == [0, 3]
    step()
"""
    )
    trace = tmp_path / "trace"
    run([program], recorded_environment(trace))
    counts = []
    for path in all_files(trace):
        found = events(path)
        assert found[0]["ev"] == "head"
        assert str(found[0]["pid"]) in path.name
        steps = [event["step"] for event in of_kind(found, "step")]
        assert steps == list(range(1, len(steps) + 1))
        assert not steps or found[-1]["ev"] == "end"
        counts.append(len(steps))
    assert sorted(count for count in counts if count) == [1, 1, 1, 2, 2]


def test_observe_is_there_without_an_install(tmp_path: Path) -> None:
    program = """
from repro.recorder import observe
step()
observe("hidden", torch.full((2, 3), 2.0))
observe("nothing", None)
import sys
assert "repro.trace" not in sys.modules
"""
    found = record(tmp_path, program)
    (event,) = of_kind(found, "observe")
    assert (event["name"], event["after"], event["fp"]["shape"]) == ("hidden", 1, [2, 3])
    assert {"dg", "sk", "l2"} <= set(event["fp"])


def test_observe_does_nothing_where_nothing_records() -> None:
    from repro.recorder import observe

    observe("name", object())


def test_seed_reaches_every_generator_but_not_over_the_program(tmp_path: Path) -> None:
    program = "import random; a = random.random()\nimport numpy as np; b = np.random.rand()\nimport torch\n"
    program += "print(a, b, float(torch.rand(1)))\nrandom.seed(5); import torch.nn; print(random.random())"
    settings = {"REPRO_SEED": "11"}
    first = run(["-c", program], recorded_environment(tmp_path / "a", **settings)).stdout
    second = run(["-c", program], recorded_environment(tmp_path / "b", **settings)).stdout
    other = run(["-c", program], recorded_environment(tmp_path / "c", REPRO_SEED="12")).stdout
    assert first == second
    assert first.split()[:3] != other.split()[:3]
    assert first.split()[3] == other.split()[3]


def test_strict_sets_what_makes_runs_repeat(tmp_path: Path) -> None:
    found = record(tmp_path, "step()", REPRO_DETERMINISM="strict")
    knobs = of_kind(found, "head")[-1]["knobs"]
    assert knobs["torch.are_deterministic_algorithms_enabled"] == "True"
    assert knobs["torch.is_deterministic_algorithms_warn_only_enabled"] == "False"
    assert knobs["torch.backends.cudnn.deterministic"] == "True"
    assert knobs["torch.backends.cudnn.benchmark"] == "False"
    assert knobs["torch.backends.mkldnn.deterministic"] == "True"
    assert knobs["torch.utils.deterministic.fill_uninitialized_memory"] == "False"
    assert knobs["torch._inductor.config.deterministic"] == "True"


@pytest.mark.parametrize(("level", "code"), [("strict", 1), ("warn", 0)])
def test_an_operation_that_cannot_repeat_is_named(tmp_path: Path, level: str, code: int) -> None:
    program = "step()\ntorch.zeros(3).put_(torch.tensor([0, 0]), torch.ones(2))"
    found = record(tmp_path, program, code=code, REPRO_DETERMINISM=level)
    (event,) = of_kind(found, "err")
    assert event["where"] == "determinism"
    assert "put_" in event["message"]
    assert len(of_kind(found, "step")) == 1


@pytest.mark.parametrize("level", ["strict", "warn"])
def test_a_setting_that_the_program_takes_back_is_named(tmp_path: Path, level: str) -> None:
    program = "torch.use_deterministic_algorithms(False)\ntorch.backends.cudnn.benchmark = True\nstep()"
    errors = of_kind(record(tmp_path, program, REPRO_DETERMINISM=level), "err")
    assert {event["where"] for event in errors} == {"determinism"}
    assert [event["message"].split()[0] for event in errors] == [
        "torch.are_deterministic_algorithms_enabled",
        "torch.backends.cudnn.benchmark",
    ]


WORKERS = """
import numpy as np
from torch.utils.data import DataLoader, Dataset, Subset
class Crops(Dataset):
    def __init__(self):
        self.rng = np.random.default_rng(0)
    def __len__(self):
        return 4
    def __getitem__(self, i):
        return int(self.rng.integers(1 << 30))
for _ in range(2):
    print(sorted(int(x) for x in DataLoader(Subset(Crops(), range(4)), num_workers=2, {init})))
"""


@pytest.mark.parametrize("init", ["", "worker_init_fn=lambda worker: None"])
def test_workers_that_draw_the_same_numbers_are_named(tmp_path: Path, init: str) -> None:
    trace = tmp_path / "trace"
    program = WORKERS.replace("{init}", init)
    done = run(["-W", "ignore", "-c", "import torch\n" + program], recorded_environment(trace), cwd=tmp_path)
    first, second = (line.strip("[]").split(", ") for line in done.stdout.splitlines())
    assert first == second, "the same numbers in every epoch"
    assert len(set(first)) == 2, "and in both workers"
    found = [event for path in all_files(trace) for event in of_kind(events(path), "err")]
    assert [(event["where"], event["message"].split()[-1]) for event in found] == (
        [] if init else [("data", "dataset.dataset.rng")]
    )


def test_off_changes_nothing(tmp_path: Path) -> None:
    found = record(tmp_path, "step()", REPRO_DETERMINISM="off")
    knobs = of_kind(found, "head")[-1]["knobs"]
    assert knobs["torch.are_deterministic_algorithms_enabled"] == "False"
    assert knobs["torch.backends.mkldnn.deterministic"] == "False"


MIXED = """
scaler = torch.amp.GradScaler("cpu")
for _ in range(2):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.ones(3, 4)).square().sum()
    print(loss.dtype, scaler.is_enabled())
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
"""


def test_the_probe_runs_a_mixed_program_in_float32(tmp_path: Path) -> None:
    plain = (
        "for _ in range(2):\n    optimizer.zero_grad(); model(torch.ones(3, 4)).square().sum().backward()\n"
    )
    plain += "    optimizer.step()\n"
    ends = {}
    for name, program, probe in (("mixed", MIXED, ""), ("probe", MIXED, "fp32"), ("plain", plain, "")):
        found = record(tmp_path / name, program, REPRO_PROBE=probe, REPRO_SEED="3")
        ends[name] = {tensor: entry["dg"] for tensor, entry in of_kind(found, "end")[0]["params"].items()}
        assert of_kind(found, "head")[0]["probe"] == (probe or None)
        assert all(("scaler" in step) is (name == "mixed") for step in of_kind(found, "step"))
    assert ends["probe"] == ends["plain"] != ends["mixed"]


def test_only_the_end_can_be_recorded(tmp_path: Path) -> None:
    program = "def main():\n    from torch import nn\n    step(); step()\nmain()"
    found = record(tmp_path / "end", program, REPRO_RECORD="end", REPRO_SEED="3")
    assert [event["ev"] for event in found] == ["head", "time", "end"]
    whole = record(tmp_path / "all", program, REPRO_SEED="3")[-1]
    assert found[-1]["params"] == whole["params"]
    assert found[-1]["rng"] == whole["rng"]
    assert (found[-1]["step"], whole["step"]) == (None, 2)


@pytest.mark.slow
@pytest.mark.parametrize("what", ["model", "step", "both"])
def test_compiled_programs_are_seen_and_unchanged(tmp_path: Path, what: str) -> None:
    program = LOOP.replace(
        "torch.nn.Linear(4, 2)", "torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Linear(8, 2))"
    )
    program = program.replace("import torch\n", "import warnings, torch\nwarnings.simplefilter('error')\n")
    program += """
import sys, hashlib
torch.manual_seed(0)
warnings.filterwarnings("ignore", module="torch")
if sys.argv[1] != "step":
    model = torch.compile(model)
if sys.argv[1] != "model":
    optimizer.step = torch.compile(optimizer.step)
warnings.filterwarnings("error", message=".*global hooks.*")
for _ in range(4):
    step()
tensors = [*model.parameters(), torch.get_rng_state()]
print(hashlib.sha256(b"".join(t.detach().numpy().tobytes() for t in tensors)).hexdigest())
"""
    seeded = program.replace("model = torch.nn.Seq", "torch.manual_seed(1)\nmodel = torch.nn.Seq")
    bare = run(["-c", seeded, what], bare_environment()).stdout
    recorded = run(["-c", seeded, what], recorded_environment(tmp_path / "trace")).stdout
    assert bare == recorded
    found = only_trace(tmp_path / "trace")
    steps = of_kind(found, "step")
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert all(("boundary" in step) is (what != "model") for step in steps)
    assert len({step["params"]["0.weight"]["dg"] for step in steps[:3]}) == 3
    assert not of_kind(found, "err")


def test_the_communication_library_is_named_only_where_an_accelerator_was_started(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    facts = pytest.importorskip("repro.recorder.facts")
    torch = facts.torch
    assert facts._nccl() is None
    monkeypatch.setattr(facts, "accelerator", lambda: torch.cuda)
    monkeypatch.setattr(torch.cuda.nccl, "version", lambda: (2, 27, 5))
    assert facts._nccl() == "2.27.5"
