"""Programs written for accelerate, Transformers and Lightning are recorded unchanged."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from tests.recorder.recorder_world import PROGRAMS, Pair, bare_environment, of_kind, recorded_environment, run

pytestmark = [pytest.mark.torch, pytest.mark.slow]

EXPECTED = {"accelerate": (4, 2), "transformers": (4, 2), "lightning": (3, 2)}
"""Steps, and losses in each."""


@pytest.fixture
def pair(tmp_path: Path, request: pytest.FixtureRequest) -> Pair:
    name = request.param
    if importlib.util.find_spec(name) is None:
        pytest.skip(f"{name} is not installed")
    pair = Pair(tmp_path / "bare", tmp_path / "recorded", tmp_path / "trace")
    for place, environment in (
        (pair.bare, bare_environment()),
        (pair.recorded, recorded_environment(pair.trace)),
    ):
        place.mkdir()
        run([PROGRAMS / "frameworks.py", place, name], environment, options=["-W", "ignore"])
    return pair


@pytest.mark.parametrize(("pair", "name"), [(name, name) for name in EXPECTED], indirect=["pair"])
def test_nothing_changes_and_every_step_is_seen(pair: Pair, name: str) -> None:
    assert pair.same(name)
    found = pair.events(name)
    assert not of_kind(found, "err")
    steps = of_kind(found, "step")
    count, losses = EXPECTED[name]
    assert [step["step"] for step in steps] == list(range(1, count + 1))
    assert [len(step["loss"]) for step in steps] == [losses] * count
    assert all(len(step["inputs"]) >= losses for step in steps)
    if name == "transformers":
        assert [loss["bits"] == "nan" for loss in steps[3]["loss"]] == [True, True]
        assert [event["after"] for event in of_kind(found, "eval")] == [2, 4]
        assert {event["after"] for event in of_kind(found, "save")} == {2, 4}
    if name == "lightning":
        assert sum(event["forwards"] for event in of_kind(found, "eval")) >= 2
