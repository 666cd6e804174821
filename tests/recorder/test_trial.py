"""Recording changes nothing, shown by running twice; and the fp32 probe is a second, short recording."""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from repro.compare.proof import prove
from repro.errors import CompareError, RunError
from repro.report.proof import proof_lines
from repro.run.merge import merge
from repro.trace import PhaseTrace, RankFile, write_line
from tests.recorder.recorder_world import recorded_environment, run

PRINT = {"shape": [2], "dtype": "float32", "n": 2, "off": 0, "dg": "0" * 32}
END: dict[str, Any] = {
    "ev": "end",
    "step": 3,
    "params": {"w": {**PRINT, "l2": "0x1.0p+0"}},
    "state": {"optimizer/0/w/exp_avg": [[2], "float32", "a"]},
    "rng": {"torch": "a", "python": "b"},
}


def phase(end: dict[str, Any] | None) -> PhaseTrace:
    lines = [write_line({"ev": "head", "format": "repro-trace/1"}), *([write_line(end)] if end else [])]
    file = RankFile(rank=0, path="rank-0.jsonl", digest="", size=0, lines=lambda: lines)
    return PhaseTrace(name="bare", first_step=0, world_size=1, ranks=(file,))


def changed(change: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    end = copy.deepcopy(END)
    change(end)
    return end


def test_the_same_end_is_a_proof() -> None:
    other = changed(lambda end: end["params"]["w"].update(l2="0x1.1p+0"))
    proof = prove(phase({**END, "step": None}), phase(other), files={"a": ("1", "1"), "b": ("1", None)})
    assert proof.proven is True
    assert proof.compared == {"parameters": 1, "buffers and optimizer state": 1, "generators": 2}
    assert (proof.files, proof.files_differing) == (1, ("b",))
    assert "recording changed nothing" in "\n".join(proof_lines(proof))


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda end: end["params"]["w"].update(dg="1" * 32), "rank 0: params w"),
        (lambda end: end["params"].update(v=PRINT), "rank 0: params v"),
        (lambda end: end["rng"].update(torch="c"), "rank 0: rng torch"),
        (lambda end: end["state"].clear(), "rank 0: state optimizer/0/w/exp_avg"),
    ],
)
def test_one_bit_more_is_none(change: Callable[[dict[str, Any]], object], what: str) -> None:
    proof = prove(phase(END), phase(changed(change)), files={})
    assert proof.proven is False
    assert proof.differing == (what,)
    assert what in "\n".join(proof_lines(proof))


def test_what_was_gone_is_not_taken_for_equal() -> None:
    proof = prove(phase(END), phase(changed(lambda end: end.pop("state"))), files={})
    assert proof.proven is None
    assert proof.unknown == ("rank 0: buffers and optimizer state",)


def test_a_run_without_an_end_is_an_error() -> None:
    with pytest.raises(CompareError) as error:
        prove(phase(None), phase(END), files={})
    assert error.value.kind == "end-absent"


PROGRAM = """
import torch
from torch import nn
model = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(), nn.Linear(4, 2))
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(6):
    optimizer.zero_grad()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = model(torch.randn(8, 4)).float().square().mean()
    loss.backward()
    optimizer.step()
"""


def record(folder: Path, name: str, program: str = PROGRAM, **settings: str) -> PhaseTrace:
    raw = folder / "raw" / name
    environment = recorded_environment(raw, REPRO_SEED="1", **settings)
    run(["-c", program], environment, cwd=folder)
    only_end = settings.get("REPRO_RECORD") == "end"
    (kept,), _, world = merge(folder, name, "nonce", only_end=only_end)
    lines = partial(lambda path: path.read_bytes().splitlines(keepends=True), folder / kept.path)
    file = RankFile(rank=0, path=kept.path, digest="", size=0, lines=lines)
    return PhaseTrace(name=name, first_step=0, world_size=world, ranks=(file,))


@pytest.mark.torch
def test_a_real_program_is_proven_and_a_change_is_seen(tmp_path: Path) -> None:
    bare = record(tmp_path, "bare", REPRO_RECORD="end")
    proof = prove(bare, record(tmp_path, "full"), files={})
    assert proof.proven is True, proof
    assert proof.compared["parameters"] == 6
    assert proof.compared["buffers and optimizer state"] == 3 + 3 * 6
    assert proof.compared["generators"] >= 2
    disturbed = record(tmp_path, "disturbed", PROGRAM + "torch.rand(1)")
    assert prove(bare, disturbed, files={}).differing == ("rank 0: rng torch",)


@pytest.mark.torch
def test_the_probe_is_short_and_in_float32(tmp_path: Path) -> None:
    probe = record(tmp_path, "probe/full", REPRO_PROBE="fp32", REPRO_STOP_AFTER="4")
    steps = [event for event in probe.ranks[0].events() if event["ev"] == "step"]
    assert [step["step"] for step in steps] == [1, 2, 3, 4]
    assert probe.ranks[0].path == "trace/probe/full/rank-0.jsonl"
    full = record(tmp_path, "full")
    losses = [
        next(e["loss"][0]["bits"] for e in p.ranks[0].events() if e["ev"] == "step") for p in (probe, full)
    ]
    assert losses[0] != losses[1], "the full run is in bfloat16"


@pytest.mark.torch
@pytest.mark.parametrize("option", ["-I", "-E", "-S", "-sE"])
def test_a_python_that_ignores_us_is_named(tmp_path: Path, option: str) -> None:
    raw = tmp_path / "raw" / "full"
    run(["-c", "pass"], recorded_environment(raw), options=[option])
    command = [Path(sys.executable).name, option, "train.py"]
    with pytest.raises(RunError, match="the recorder did not load") as error:
        merge(tmp_path, "full", "nonce", command=command)
    assert error.value.kind == "recorder-absent"
    assert option in error.value.message


SABOTAGE = """
import sys, torch
prefix = "_repro_recorder."
inner = {name[len(prefix):]: module for name, module in sys.modules.items() if name.startswith(prefix)}
def broken(*_, **__):
    raise RuntimeError("sabotaged")
owner, _, name = sys.argv[1].rpartition(".")
module, _, kind = owner.partition(".")
target = getattr(inner[module], kind) if kind else inner[module]
setattr(target, name, broken)
torch.manual_seed(0)
"""
FINISH = """
model.eval()
with torch.no_grad():
    model(torch.ones(2, 4))
torch.save(model.state_dict(), "model.pt")
print(float(loss).hex(), float(model[0].weight.sum()).hex(), float(torch.rand(1)).hex())
"""


@pytest.mark.torch
def test_no_fault_of_ours_reaches_the_program(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(FORKS.format(sabotage=SABOTAGE, body=PROGRAM + FINISH))
    places = FAULTS.split()
    done = run([program, "nothing", *places], recorded_environment(tmp_path / "trace"), cwd=tmp_path)
    lines = done.stdout.splitlines()
    assert len(lines) == len(places) + 1
    assert len(set(lines)) == 1, dict(zip(["nothing", *places], lines, strict=True))
    for place in places:
        pid = (tmp_path / f"{place}.pid").read_text()
        (path,) = (tmp_path / "trace").glob(f"proc-*-{pid}.jsonl")
        if place == "emit.Writer._append":
            continue  # nothing can be written down where nothing can be written
        with path.open("rb") as stream:
            assert any(b"sabotaged" in line and b'"ev":"err"' in line for line in stream), place


FAULTS = """
steps.rng weights.fingerprints weights.short_forms session.short_forms session.root_form session.walk
clock.memory clock.Clock.start clock.Clock.fed clock.Clock.step evaluation.short_forms weights.ModelView
optimizers.Known.take optimizers.Known.watch ending.rng session.facts.head
session.Evaluation.add emit.Writer._append
"""

FORKS = """
import os, sys, traceback
import torch, torch._dynamo
def run():
    sabotage = {sabotage!r}
    body = {body!r}
    scope = {{}}
    if sys.argv[1] != "nothing":
        exec(sabotage, scope)
    torch.manual_seed(0)
    exec(body, scope)
for place in sys.argv[1:]:
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        sys.argv = [sys.argv[0], place]
        open(place + ".pid", "w").write(str(os.getpid()))
        try:
            run()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        sys.stdout.flush()
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0, place
"""
