"""What people forget to save or restore, reproduced one by one: each is found, at its step, by its sign."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.verdict import Outcome
from tests.recorder.resume_world import BUGS, SOUND, judged, record_resumes

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("resume")
    record_resumes(place)
    return place


@pytest.mark.parametrize("way", SOUND)
def test_nothing_lost_is_bitwise(folder: Path, way: str) -> None:
    verdict = judged(folder, way)
    assert (verdict.outcome, verdict.kind) == (Outcome.BITWISE, "equal"), verdict.sentence


@pytest.mark.parametrize("way", BUGS)
def test_what_was_lost_is_found(folder: Path, way: str) -> None:
    kind, observable, step = BUGS[way]
    verdict = judged(folder, way)
    assert verdict.outcome == Outcome.DIVERGED
    first = verdict.first_divergence
    assert first is not None
    assert first.step == step, verdict.sentence
    assert kind in (None, verdict.kind), verdict.sentence
    assert observable in (None, first.observable), verdict.sentence
