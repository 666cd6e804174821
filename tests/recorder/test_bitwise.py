"""Recording changes nothing: final weights and random states are the same bits, and every step is seen."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from repro.trace import unhex
from tests.recorder.recorder_world import Pair, of_kind, run_pair

pytestmark = pytest.mark.torch

STEPS = {
    "plain": (6, 1),
    "accumulation": (3, 3),
    "several_optimizers": (4, 1),
    "alternating": (4, 1),
    "in_backward": (3, 1),
    "lbfgs": (2, 3),
    "bf16_scaler": (8, 1),
    "fp16_overflow": (8, 1),
    "fp16_overflow_fused": (8, 1),
    "recompute_reentrant": (3, 1),
    "recompute_early_stop": (3, 1),
    "data_parallel": (3, 1),
    "model_parallel_by_hand": (3, 1),
    "exotic_tensors": (3, 1),
    "broken_step": (3, 1),
    "nan_loss": (3, 1),
}
"""Steps expected, and losses in each."""


@pytest.fixture(scope="module")
def single(tmp_path_factory: pytest.TempPathFactory) -> Pair:
    return run_pair(tmp_path_factory.mktemp("single"), list(STEPS))


@pytest.mark.parametrize("case", STEPS)
def test_nothing_changes_and_every_step_is_seen(single: Pair, case: str) -> None:
    assert single.same(case)
    found = single.events(case)
    assert not of_kind(found, "err")
    steps = of_kind(found, "step")
    count, losses = STEPS[case]
    assert [step["step"] for step in steps] == list(range(1, count + 1))
    assert [len(step["loss"]) for step in steps] == [losses] * count
    assert of_kind(found, "end")[0]["step"] == count


def test_every_tensor_has_its_name(single: Pair) -> None:
    steps = of_kind(single.events("several_optimizers"), "step")
    assert (
        set(steps[0]["grads"])
        == set(steps[0]["params"])
        == set(model(single, "several_optimizers")["params"])
    )
    assert "blocks.1.qkv.weight" in steps[0]["grads"]
    assert [entry["cls"] for entry in steps[0]["optimizers"]] == ["AdamW", "SGD", "Adam"]


def model(pair: Pair, case: str, rank: int = 0) -> Mapping[str, Any]:
    (event,) = of_kind(pair.events(case, rank), "model")
    return event


def test_fingerprints_stand_where_they_were_asked_for(single: Pair) -> None:
    found = single.events("plain")
    for step in of_kind(found, "step"):
        full = step["step"] in (1, 2, 3, 4)
        assert ("params" in step) is full
        assert all(("dg" in entry and "sk" in entry) is full for entry in step["grads"].values())
        assert all("l2" in entry for entry in step["grads"].values())
        assert set(step["rng"]) == {"python", "numpy", "torch"}


def test_the_end_is_what_was_saved_and_loaded(single: Pair) -> None:
    found = single.events("plain")
    (end,), (save,), (load,) = (of_kind(found, kind) for kind in ("end", "save", "load"))
    assert save["tensors"] == load["tensors"]
    assert save["rest"] == load["rest"]
    assert save["bytes"] == load["bytes"] > 0
    for name, entry in end["params"].items():
        assert save["tensors"][f"model/{name}"][2] == entry["dg"]
    assert "optimizer/state/0/exp_avg" in save["tensors"]
    assert (save["after"], save["api"], save["index"]) == (6, "torch.save", 0)


def test_evaluation_is_seen_apart_from_steps(single: Pair) -> None:
    (evaluation,) = of_kind(single.events("plain"), "eval")
    assert evaluation["after"] == 6
    assert evaluation["forwards"] == 2
    assert len(evaluation["scalars"]) == 2
    assert all(1 < unhex(value) < 10 for value in evaluation["scalars"])


def test_learning_rates_follow_the_schedule(single: Pair) -> None:
    steps = of_kind(single.events("plain"), "step")
    rates = [unhex(step["optimizers"][0]["hyper"][0]["lr"]) for step in steps]
    assert rates[0] == 1e-3
    assert rates == sorted(rates, reverse=True)
    assert len(set(rates)) == 6


def test_inputs_are_the_data_and_not_the_results(single: Pair) -> None:
    steps = of_kind(single.events("model_parallel_by_hand"), "step")
    assert [form[:2] for form in steps[0]["inputs"]] == [[[8, 16], "int64"], [[128], "int64"]]
    assert len({form[2] for step in steps for form in step["inputs"]}) == 6


def test_a_step_in_backward_says_so(single: Pair) -> None:
    steps = of_kind(single.events("in_backward"), "step")
    assert all(step["in_backward"] is True for step in steps)
    assert (
        len(steps[0]["optimizers"]) == len(steps[0]["grads"]) == len(model(single, "in_backward")["params"])
    )


@pytest.mark.parametrize("case", ["fp16_overflow", "fp16_overflow_fused"])
def test_skipped_steps_are_seen_as_skipped(single: Pair, case: str) -> None:
    steps = of_kind(single.events(case), "step")
    skipped = [step["scaler"]["skipped"] for step in steps]
    assert True in skipped
    assert False in skipped
    for step, skip in zip(steps, skipped, strict=True):
        assert ("optimizers" in step) is ("grads" in step) is (not skip)
    scales = [unhex(step["scaler"]["scale"]) for step in steps]
    assert scales[0] == 2.0**22
    assert all(
        after < before for before, after, skip in zip(scales, scales[1:], skipped, strict=False) if skip
    )


def test_gradients_are_seen_without_the_loss_scale(single: Pair) -> None:
    plain, fused = (of_kind(single.events(case), "step") for case in ("fp16_overflow", "fp16_overflow_fused"))
    at = next(n for n, step in enumerate(plain) if "grads" in step)
    assert unhex(plain[at]["grad_norm"]) == pytest.approx(unhex(fused[at]["grad_norm"]), rel=1e-3)


def test_nan_is_recorded_and_counted(single: Pair) -> None:
    before, bad, after = of_kind(single.events("nan_loss"), "step")
    assert bad["loss"][0]["bits"] == "nan"
    assert bad["grad_norm"] == "nan"
    assert bad["grads"]["head.weight"]["bad"] == 67 * 32
    assert all("bad" not in entry for entry in before["grads"].values())
    assert after["params"]["head.weight"]["bad"] == 67 * 32


def test_other_kinds_of_tensors(single: Pair) -> None:
    found = single.events("exotic_tensors")
    params = model(single, "exotic_tensors")["params"]
    kinds = {entry["dtype"] for entry in params.values()}
    assert kinds == {"float32", "float64", "complex64", "bfloat16"}
    assert {entry["dtype"] for entry in model(single, "exotic_tensors")["buffers"].values()} == {
        "float32",
        "int64",
    }
    assert any(name.startswith("optimizer.1.0.") for name in params)
    assert all("dg" in entry for entry in of_kind(found, "step")[0]["params"].values())


def test_losses_inside_a_closure_belong_to_its_step(single: Pair) -> None:
    steps = of_kind(single.events("lbfgs"), "step")
    assert all(len(step["inputs"]) == 6 for step in steps)
    assert all(unhex(step["grad_norm"]) > 0 for step in steps)
