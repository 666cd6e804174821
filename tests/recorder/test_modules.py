"""Module calls as they are recorded: nothing is changed by it, and the module that was changed is named."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from repro.compare import localise
from tests.recorder.recorder_world import (
    PROGRAMS,
    bare_environment,
    events,
    of_kind,
    recorded_environment,
    run,
)

pytestmark = pytest.mark.torch

FAULTS = ("none", "gelu", "dropout", "eps", "own", "backward", "token", "weight", "decay")


@dataclass(frozen=True)
class Trained:
    """One folder with the outcome of each fault, and its traces where it was recorded."""

    folder: Path

    def state(self, fault: str) -> str:
        """Digest of weights and generator."""
        return str(self._result(fault)["state"])

    def calls(self, fault: str, step: int | None = None) -> list[dict[str, Any]]:
        """Module events, of one step or of all."""
        (path,) = (self.folder / "trace").glob(f"proc-*-{self._result(fault)['pid']}.jsonl")
        found = events(path)
        assert not of_kind(found, "err")
        return [dict(event) for event in of_kind(found, "mod") if step in (None, event["step"])]

    def _result(self, fault: str) -> dict[str, Any]:
        return json.loads((self.folder / f"{fault}.json").read_text())  # type: ignore[no-any-return]


def train(folder: Path, *faults: str, **settings: str) -> Trained:
    folder.mkdir(parents=True)
    environment = recorded_environment(folder / "trace", **settings) if settings else bare_environment()
    run([PROGRAMS / "blocks.py", folder, *faults], environment, options=["-W", "ignore"])
    return Trained(folder)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Trained:
    return train(tmp_path_factory.mktemp("modules") / "run", *FAULTS, REPRO_MODULES="1,2")


def test_recording_module_calls_changes_nothing(trained: Trained, tmp_path: Path) -> None:
    assert train(tmp_path / "bare", "none").state("none") == trained.state("none")


def test_every_call_of_the_steps_that_were_asked_for_is_there(trained: Trained, tmp_path: Path) -> None:
    assert {event["step"] for event in trained.calls("none")} == {1, 2}
    first = trained.calls("none", 1)
    assert [event["seq"] for event in first] == list(range(len(first)))
    forward = [event["name"] for event in first if event["dir"] == "f"]
    parts = [f"blocks.{number}.{name}" for number in range(3) for name in ("norm", "fc", "act", "drop", "")]
    assert forward == ["embed", *(part.rstrip(".") for part in parts), "head", ""]
    assert Counter(event["dir"] for event in first) == {"f": len(forward), "b": len(forward)}
    assert train(tmp_path / "unasked", "none", REPRO_EVERY="4").calls("none") == []


@pytest.mark.parametrize(
    ("fault", "step", "module", "direction", "own"),
    [
        ("gelu", 1, "blocks.2.act", "forward", False),
        ("dropout", 1, "blocks.1.drop", "forward", False),
        ("eps", 1, "blocks.1.norm", "forward", False),
        ("own", 1, "blocks.0", "forward", True),
        ("backward", 1, "blocks.1.fc", "backward", False),
        ("token", 2, "embed", "forward", False),
        ("weight", 2, "blocks.0.fc", "forward", False),
    ],
)
def test_the_module_that_was_changed_is_named(
    trained: Trained, fault: str, step: int, module: str, direction: str, own: bool
) -> None:
    if step == 2:
        assert localise(trained.calls("none", 1), trained.calls(fault, 1)) is None
    found = localise(trained.calls("none", step), trained.calls(fault, step))
    assert found is not None
    assert (found.module, found.direction, found.step, found.own_code) == (module, direction, step, own)


def test_another_weight_decay_shows_in_no_module_of_its_first_step(trained: Trained) -> None:
    assert localise(trained.calls("none", 1), trained.calls("decay", 1)) is None
    assert localise(trained.calls("none", 2), trained.calls("decay", 2)) is not None
