"""Laws of the comparison, on random pairs of runs, and agreement with the plain reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.compare import compare
from repro.tolerance import ToleranceSpec
from repro.trace import Trace, encode_sketch, hexed, is_deterministic
from repro.verdict import Outcome
from tests.compare.reference import judge
from tests.compare.tracegen import Config, Events, edited, fp, step_event, trace_of

BASE = Config(steps=6, every=2, eval_every=2)
BITWISE = ToleranceSpec()
RESULTS = ("loss", "grad_norm", "grads", "params", "eval")

quick = settings(deadline=None, max_examples=60)


def bounded(rtol: float) -> ToleranceSpec:
    return ToleranceSpec.parse({"same": {name: {"rtol": rtol, "atol": 0} for name in RESULTS}})


def _nudge(text: str, by: float) -> str:
    value = float.fromhex(text) * (1 + by)
    return hexed(value)


Edit = Callable[[list[Events]], None]


KINDS = (
    "lr,rng,inputs,shape,loss,norm,grad,extra,dtype,params,drop,cut,"
    "eval,eval gone,save,end,end rng,row,before"
)


@st.composite
def edits(draw: st.DrawFn) -> Edit:
    """One change somewhere in a run."""
    rank, step = draw(st.integers(0, 1)), draw(st.integers(1, 6))
    by = draw(st.sampled_from([1e-9, 1e-5, 1e-3, 0.1]))
    what = draw(st.sampled_from(KINDS.split(",")))

    return lambda ranks: change(ranks[rank], what, rank=rank, step=step, by=by)


def change(events: Events, what: str, *, rank: int, step: int, by: float) -> None:
    """Change one thing in the events of one rank."""
    if what in ("eval", "eval gone", "save"):
        event = next((e for e in events if e["ev"] == what.split()[0] and e["after"] >= step), None)
        if event is None:
            return
        if what == "eval":
            event["outputs"][0][2] = "0" * 32
            event["sk"] = encode_sketch([by] * 16)
        elif what == "save":
            event["tensors"]["model/head.weight"][2] = "0" * 32
        else:
            events.remove(event)
    elif what in ("end", "end rng"):
        end = events[-1]
        if end["ev"] != "end":
            return
        if what == "end rng":
            end["rng"]["torch"] = "0" * 32
        else:
            old = end["params"]["head.weight"]
            end["params"]["head.weight"] = {**old, "dg": "0" * 32, "l2": _nudge(old["l2"], by)}
    elif what == "row":
        events[1]["rows"][1][2][0][1] = "other"
        events[1]["tree"] = "0" * 32
    elif what == "before":
        events[1]["params"]["head.weight"] = fp([by] * 5, replica=rank > 0)
    else:
        event = next((e for e in events if e["ev"] == "step" and e["step"] == step), None)
        if event is not None:
            _edit_step(events, event, what, by, replica=rank > 0)


def _edit_step(events: Events, event: dict[str, Any], what: str, by: float, *, replica: bool) -> None:
    group = event["optimizers"][0]["hyper"][0]
    if what == "lr":
        group["lr"] = _nudge(group["lr"], by)
    elif what == "rng":
        event["rng"]["torch"] = "0" * 32
    elif what == "inputs":
        event["inputs"][0][2] = "0" * 32
    elif what == "shape":
        event["inputs"][0][0] = [1, 4]
    elif what == "loss":
        event["loss"][0]["bits"] = _nudge(event["loss"][0]["bits"], by)
    elif what == "norm":
        event["grad_norm"] = _nudge(event["grad_norm"], by)
    elif what == "grad":
        event["grads"]["head.weight"] = fp(
            [by] * 5, full="dg" in event["grads"]["head.weight"], replica=replica
        )
    elif what == "extra":
        event["grads"]["more"] = fp([1.0])
    elif what == "dtype":
        event["grads"]["head.weight"]["dtype"] = "bfloat16"
    elif what == "params" and "params" in event:
        event["params"]["blocks.1.bias"] = fp([by] * 4, replica=replica)
    elif what == "drop":
        events.remove(event)
    elif what == "cut":
        del events[events.index(event) :]


@st.composite
def runs(draw: st.DrawFn) -> Trace:
    """A run that differs from the base in up to three places, and perhaps by noise everywhere."""
    noise = draw(st.sampled_from([0.0, 0.0, 1e-7, 1e-2]))
    changes = draw(st.lists(edits(), max_size=3))

    def edit(ranks: list[Events]) -> None:
        for change in changes:
            change(ranks)

    return edited(replace(BASE, noise=noise, noise_seed=draw(st.integers(0, 3))), edit)


def place(verdict: Any) -> tuple[str, str, int | None, int | None]:
    first = verdict.first_divergence if verdict.outcome == Outcome.DIVERGED else None
    return verdict.outcome, verdict.kind, first.step if first else None, first.rank if first else None


@quick
@given(runs(), runs(), st.sampled_from([None, 1e-6, 1e-4, 0.5]))
def test_agrees_with_the_reference(target: Trace, candidate: Trace, rtol: float | None) -> None:
    verdict = compare(target, candidate, tolerance=BITWISE if rtol is None else bounded(rtol))
    if verdict.outcome == Outcome.INCOMPARABLE:
        assert verdict.kind in ("did-not-run", "target-did-not-run")
        return
    assert place(verdict) == judge(target, candidate, bound=rtol)


@pytest.mark.parametrize("gone", ["target", "candidate"])
@pytest.mark.parametrize(
    ("what", "gone_step", "kind", "step"),
    [
        ("row", 1, "modules-differ", 0),
        ("before", 1, "weights-before-differ", 0),
        ("eval", 5, "evaluation-differs", 4),
    ],
)
def test_what_came_before_a_missing_step_is_compared(
    what: str, gone_step: int, kind: str, step: int, gone: str
) -> None:
    changed = edited(BASE, lambda ranks: change(ranks[0], what, rank=0, step=4, by=0.1))
    shorter = edited(BASE, lambda ranks: change(ranks[0], "drop", rank=0, step=gone_step, by=0.1))
    sides = (shorter, changed) if gone == "target" else (changed, shorter)
    verdict = compare(*sides, tolerance=BITWISE)
    assert place(verdict) == (Outcome.DIVERGED, kind, step, 0) == judge(*sides, bound=None)


@quick
@given(runs())
def test_reflexive(run: Trace) -> None:
    verdict = compare(run, run, tolerance=BITWISE)
    assert verdict.outcome == Outcome.BITWISE or verdict.kind == "target-did-not-run"


@quick
@given(runs(), runs(), st.sampled_from([None, 1e-6, 1e-4, 0.5]))
def test_the_outcome_is_symmetric(one: Trace, other: Trace, rtol: float | None) -> None:
    """Except for who did not run, and who has a step more, both directions say the same."""
    spec = BITWISE if rtol is None else bounded(rtol)
    there, back = compare(one, other, tolerance=spec), compare(other, one, tolerance=spec)
    assert there.outcome == back.outcome
    if there.kind not in ("steps-missing", "steps-extra", "did-not-run", "target-did-not-run"):
        assert place(there) == place(back)


@quick
@given(runs(), runs(), st.floats(0, 1), st.floats(0, 1))
def test_monotone_in_tolerance(target: Trace, candidate: Trace, one: float, other: float) -> None:
    small, large = sorted((one, other))
    outcomes = [
        compare(target, candidate, tolerance=bounded(rtol)).outcome == Outcome.DIVERGED
        for rtol in (small, large)
    ]
    assert outcomes[0] >= outcomes[1]


@quick
@given(runs(), st.randoms(use_true_random=False))
def test_volatile_lines_and_order_inside_a_step_do_not_count(candidate: Trace, draw: Any) -> None:
    """Drop some volatile lines, and turn round what lies between two steps."""
    phase = candidate.phases[0]
    files = []
    for file in phase.ranks:
        lines = [
            line
            for line in file.lines()
            if is_deterministic(line) or b'"head"' in line or draw.random() < 0.5
        ]
        between: list[bytes] = []
        out: list[bytes] = []
        for line in lines:
            if b'"ev":"eval"' in line or b'"ev":"save"' in line:
                between.insert(0, line)
                continue
            out += [*between, line]
            between = []
        out += between
        files.append(replace(file, lines=lambda out=out: iter(out)))  # type: ignore[misc]
    shuffled = Trace(phases=(replace(phase, ranks=tuple(files)),))
    target = trace_of(BASE)
    assert compare(target, shuffled, tolerance=BITWISE) == compare(target, candidate, tolerance=BITWISE)


@quick
@given(runs())
def test_ranks_can_be_exchanged(candidate: Trace) -> None:
    """Exchanging both ranks on both sides leaves outcome, kind and step of what decides as they are."""

    def exchanged(trace: Trace) -> Trace:
        phase = trace.phases[0]
        files = tuple(replace(file, rank=rank) for rank, file in enumerate(reversed(phase.ranks)))
        return Trace(phases=(replace(phase, ranks=files),))

    target = trace_of(BASE)
    there = compare(target, candidate, tolerance=BITWISE)
    back = compare(exchanged(target), exchanged(candidate), tolerance=BITWISE)
    assert (there.outcome, there.layer) == (back.outcome, back.layer)
    if there.first_divergence is not None and back.first_divergence is not None:
        assert there.first_divergence.step == back.first_divergence.step


def test_the_reference_is_not_blind() -> None:
    changed = edited(
        BASE, lambda ranks: step_event(ranks[1], 3)["loss"][0].update(bits="0x1.8000000000000p+2")
    )
    assert judge(trace_of(BASE), changed, bound=None) == ("DIVERGED", "loss-differs", 3, 1)
    assert judge(trace_of(BASE), trace_of(BASE), bound=None) == ("BITWISE", "equal", None, None)
