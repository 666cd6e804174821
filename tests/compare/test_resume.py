"""A checkpoint that does not bring everything back is found out, and what was lost is named."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.compare import compare_resume
from repro.compare.resumed import diagnose
from repro.errors import CompareError
from repro.trace import PhaseTrace, hexed
from repro.verdict import Outcome
from tests.compare.tracegen import Config, Events, digest, fp, phase_of, ranks_of, step_event

CASES = Path(__file__).parents[3] / "shared" / "cases"
BASE = Config(steps=12, every=2, eval_every=4)
AT = 4


def cut(ranks: list[Events], at: int) -> list[Events]:
    """What a new process records that goes on exactly from step `at`."""
    resumed = []
    for events in copy.deepcopy(ranks):
        kept = [events[0], events[1]]
        kept[1]["params"] = step_event(events, at)["params"]
        loaded = next(event for event in events if event["ev"] == "save" and event["after"] == at)
        kept.append({**loaded, "ev": "load", "after": 0})
        for event in events[2:]:
            key = "step" if "step" in event else "after"
            number = event[key] - at
            if number > 0:
                event[key] = number
                if event["ev"] == "step":
                    event["optimizers"][0]["k"] = number - 1
                kept.append(event)
        resumed.append(kept)
    return resumed


def pair(edit: Callable[[Events, int], None] = lambda events, rank: None) -> tuple[PhaseTrace, PhaseTrace]:
    ranks = ranks_of(BASE)
    resumed = cut(ranks, AT)
    for rank, events in enumerate(resumed):
        edit(events, rank)
    return phase_of(ranks), phase_of(resumed, name="resumed", first_step=AT)


def other(event: dict[str, Any], *names: str) -> None:
    """Make members of a step differ from the uninterrupted run."""
    for name in names:
        if name == "loss":
            event["loss"][0]["bits"] = "0x1.8000000000000p+1"
        elif name == "grads":
            event["grads"] = {
                key: fp([0.5] * value["n"], full="dg" in value) for key, value in event["grads"].items()
            }
        elif name == "params" and "params" in event:
            event["params"] = {key: fp([0.5] * value["n"]) for key, value in event["params"].items()}
        elif name == "inputs":
            event["inputs"][0][2] = "0" * 32
        elif name == "rng":
            event["rng"]["torch"] = "0" * 32
        elif name == "lr":
            event["optimizers"][0]["hyper"][0]["lr"] = hexed(0.5)


def steps_from(events: Events, first: int) -> Events:
    return [event for event in events if event["ev"] == "step" and event["step"] >= first]


def test_exact_resume() -> None:
    verdict = compare_resume(*pair())
    assert (verdict.outcome, verdict.notes) == (Outcome.BITWISE, ())
    assert (
        verdict.sentence == "Resumed exactly: steps 5 to 12 equal those of the uninterrupted run to the bit."
    )


@pytest.mark.parametrize(
    ("first", "later", "kind", "step"),
    [
        (["loss", "rng", "grads", "params"], ["loss", "rng", "grads", "params"], "rng-not-restored", 5),
        (["params"], ["loss", "grads", "params"], "optimizer-not-restored", 6),
        (["params", "lr"], ["loss", "grads", "params", "lr"], "optimizer-not-restored", 5),
        ([], ["lr", "params"], "scheduler-not-restored", 6),
        (
            ["inputs", "loss", "grads", "params"],
            ["inputs", "loss", "grads", "params"],
            "data-position-lost",
            5,
        ),
        (["inputs", "loss", "rng", "grads"], ["inputs", "loss", "rng", "grads"], "data-position-lost", 5),
        (["loss", "grads", "params"], ["loss", "grads", "params"], "weights-not-restored", 5),
    ],
)
def test_signatures(first: list[str], later: list[str], kind: str, step: int) -> None:
    """`first` differs in the first resumed step, `later` in all after it; step 5 has no fingerprints."""

    def edit(events: Events, rank: int) -> None:
        other(steps_from(events, 1)[0], *first)
        for event in steps_from(events, 2):
            other(event, *later)

    verdict = compare_resume(*pair(edit))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, kind)
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == step
    assert verdict.sentence.startswith(f"Not resumed exactly at step {step}, rank 0, phase resumed: ")
    assert "; it looks as if " in verdict.sentence


def test_weights_are_compared_right_after_the_load() -> None:
    def edit(events: Events, rank: int) -> None:
        events[1]["params"] = {name: fp([0.25] * value["n"]) for name, value in events[1]["params"].items()}

    verdict = compare_resume(*pair(edit))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "weights-not-restored")
    assert verdict.sentence.startswith(
        "Not resumed exactly before step 5, rank 0, phase resumed: 3 of 3 initial"
    )


def test_what_was_loaded_is_what_was_saved() -> None:
    def edit(events: Events, rank: int) -> None:
        events[2]["tensors"]["model/head.weight"][2] = "0" * 32

    verdict = compare_resume(*pair(edit))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "checkpoint-differs")


def test_what_does_not_repeat_itself_is_not_asked_for() -> None:
    def unseeded(events: Events, text: str) -> None:
        for event in steps_from(events, 1):
            event["rng"]["python"] = digest(text)

    full, resumed = pair(lambda events, rank: unseeded(events, "resumed"))
    assert compare_resume(full, resumed).kind == "rng-not-restored"
    again = ranks_of(Config(steps=12, every=2, eval_every=4, stop_after=AT))
    for events in again:
        unseeded(events, "again")
    verdict = compare_resume(full, resumed, again=phase_of(again, name="interrupted"))
    assert verdict.outcome == Outcome.BITWISE
    assert verdict.compared.not_enforced == ("rng.python",)


def test_a_resumed_run_that_ends_early_is_not_exact() -> None:
    full, _ = pair()
    short = cut(ranks_of(BASE), AT)
    for events in short:
        del events[events.index(step_event(events, 2)) :]
    verdict = compare_resume(full, phase_of(short, name="resumed", first_step=AT))
    assert (verdict.outcome, verdict.kind) == (Outcome.DIVERGED, "steps-missing")
    assert "Fewer than two steps" in verdict.notes[0]
    for events in short:
        del events[events.index(step_event(events, 1)) :]
    verdict = compare_resume(full, phase_of(short, name="resumed", first_step=AT))
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "did-not-run")


def test_layouts_and_offsets() -> None:
    full, resumed = pair()
    single = phase_of(ranks_of(Config(world=1)))
    assert compare_resume(single, resumed).kind == "world-size-differs"
    with pytest.raises(CompareError) as caught:
        compare_resume(full, full)
    assert caught.value.kind == "resume-too-early"


def test_nothing_lost_has_no_name() -> None:
    assert diagnose({}, 5) is None
    assert diagnose({"eval": 8}, 5) is None
    assert diagnose({"loss": 9, "grads": 9}, 5) is None


def test_augmentation_after_resume() -> None:
    """A public report: random augmentation differs from the first resumed step on."""
    folder = CASES / "E01"
    if not folder.is_dir():
        pytest.skip("the shared case E01 is not here")
    expected = json.loads((folder / "expected.json").read_text())
    after = json.loads((folder / "note.json").read_text())["resumed_after_step"]

    def events(name: str, begin: int) -> Events:
        rows = [json.loads(line) for line in (folder / name).read_text().splitlines()]
        return [
            {
                "ev": "step",
                "step": row["step"] - begin,
                "loss": [{"bits": hexed(row["loss"]), "dtype": "float64"}],
            }
            for row in rows
            if row["step"] > begin
        ]

    full = phase_of([events("full.jsonl", 0)])
    verdict = compare_resume(
        full, phase_of([events("resumed.jsonl", after)], name="resumed", first_step=after)
    )
    assert verdict.outcome == Outcome.DIVERGED
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == expected["first_bad_step"]
    largest = max(float.fromhex(one.abs_diff) for one in verdict.deviations if one.abs_diff is not None)
    assert largest == pytest.approx(expected["max_abs_diff"])
