"""The calibrated test on real training: harmless replays are accepted, mistakes are not."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro.compare.envelope import MEASURED
from repro.manifest import ErrorRates
from repro.verdict import Outcome, Verdict
from tests.truth.population import PILOTS
from tests.truth.rates import added_up, row, upper_bound
from tests.truth.replays import Judged, judge_population

RESULTS = Path(__file__).parents[2] / "bench" / "results"


@pytest.mark.torch
@pytest.mark.slow
@pytest.mark.parametrize("pilot", ["transformer", "convnet"])
def test_no_verdict_is_wrong(pilot: str, tmp_path: Path) -> None:
    judged = list(judge_population(PILOTS[pilot], tmp_path))
    told = {
        kind: row(pilot, kind, [one for one in judged if one.kind == kind]) for kind in ("harmless", "faulty")
    }
    assert told["harmless"]["of"] >= 50
    assert told["faulty"]["of"] >= 40
    assert {kind: (one["wrong"], one["cannot tell"]) for kind, one in told.items()} == {
        "harmless": ([], []),
        "faulty": ([], []),
    }


@pytest.mark.parametrize(
    ("wrong", "of", "bound"), [(0, 12, 0.2209), (0, 100, 0.0295), (1, 100, 0.0466), (5, 5, 1.0)]
)
def test_bounds_are_those_of_clopper_and_pearson(wrong: int, of: int, bound: float) -> None:
    assert upper_bound(wrong, of) == pytest.approx(bound, abs=5e-5)


def test_what_changes_nothing_is_no_mistake_and_what_cannot_be_told_is_not_right() -> None:
    def judged(name: str, outcome: Outcome, *, changed: bool = True) -> Judged:
        verdict = Verdict(outcome=outcome, layer=None, kind="equal", sentence="")
        return Judged(name, "faulty", verdict, changed)

    told = row(
        "pilot",
        "faulty",
        [
            judged("caught", Outcome.DIVERGED),
            judged("missed", Outcome.WITHIN_TOLERANCE),
            judged("unsure", Outcome.INCOMPARABLE),
            judged("idle", Outcome.BITWISE, changed=False),
        ],
    )
    assert (told["of"], told["right"], told["wrong"]) == (3, 1, ["missed"])
    assert (told["cannot tell"], told["without effect"]) == (["unsure"], ["idle"])
    whole = added_up([told, {**told, "pilot": "other"}], "faulty")
    assert (whole["of"], whole["right"], whole["wrong"]) == (6, 2, ["pilot: missed", "other: missed"])
    assert whole["wrong at most"] == "72.9 %"


def test_what_the_manifest_says_of_error_rates_is_what_was_counted() -> None:
    rows = json.loads((RESULTS / "truth.json").read_text())["rows"]
    harmless, faulty = (one for one in rows if one["pilot"] == "all")
    counted = ErrorRates(
        harmless=harmless["of"],
        harmless_rejected=len(harmless["wrong"]),
        faulty=faulty["of"],
        faulty_accepted=len(faulty["wrong"]),
    )
    assert counted == MEASURED
