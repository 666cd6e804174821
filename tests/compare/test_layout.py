"""Ranks added up: shards are the whole, replicas count once, other layouts are judged by the usual rules."""

from __future__ import annotations

from dataclasses import replace

import pytest

from repro.compare import compare, one_rank
from repro.errors import CompareError
from repro.tolerance import ToleranceSpec
from repro.trace import Trace
from repro.verdict import Outcome
from tests.compare.tracegen import Config, Events, phase_of, ranks_of, trace_of

BASE = Config(world=2)
CLOSE = ToleranceSpec.parse(
    {
        "same": {
            "loss": {"rtol": 1e-6, "atol": 0},
            "grad_norm": {"rtol": 1e-6, "atol": 0},
            "grads": {"rtol": 1e-6, "atol": 0},
            "params": {"rtol": 1e-6, "atol": 0},
        }
    }
)


def single(ranks: list[Events]) -> Trace:
    """What rank 0 holds, as a run of its own that read both halves of the data."""
    return Trace(phases=(phase_of([ranks[0]]),))


def test_replicas_count_once_and_other_data_on_each_rank_do_not_matter() -> None:
    several = trace_of(BASE)
    alone = single(ranks_of(BASE))
    verdict = compare(one_rank(alone), one_rank(several), tolerance=ToleranceSpec())
    assert verdict.outcome == Outcome.BITWISE, verdict.sentence
    assert "inputs" not in verdict.compared.observables
    assert {"grads", "params", "loss", "grad_norm"} <= set(verdict.compared.observables)


def test_runs_of_other_worlds_are_not_compared_without() -> None:
    verdict = compare(single(ranks_of(BASE)), trace_of(BASE), tolerance=ToleranceSpec())
    assert (verdict.outcome, verdict.kind) == (Outcome.INCOMPARABLE, "world-size-differs")


def test_a_changed_update_is_found_in_another_layout() -> None:
    wrong = trace_of(replace(BASE, fault=1e-3, fault_from=4))
    alone = single(ranks_of(BASE))
    verdict = compare(one_rank(alone), one_rank(wrong), tolerance=CLOSE)
    assert verdict.outcome == Outcome.DIVERGED
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == 4


def test_ranks_that_took_different_steps_are_refused() -> None:
    first, second = ranks_of(BASE)
    shorter = [event for event in second if not (event["ev"] == "step" and event["step"] == 3)]
    broken = Trace(phases=(phase_of([first, shorter]),))
    with pytest.raises(CompareError) as caught:
        compare(one_rank(trace_of(BASE)), one_rank(broken), tolerance=ToleranceSpec())
    assert caught.value.kind == "ranks-disagree"
