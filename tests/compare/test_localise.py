"""The module that was changed is the module that is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from repro.compare import localise
from tests.compare.tracegen import fp

FORWARD = [
    ("embed", "Embedding"),
    ("blocks.0.norm", "LayerNorm"),
    ("blocks.0.fc", "Linear"),
    ("blocks.0.act", "GELU"),
    ("blocks.0", "Block"),
    ("blocks.1.norm", "LayerNorm"),
    ("blocks.1.fc", "Linear"),
    ("blocks.1.act", "GELU"),
    ("blocks.1", "Block"),
    ("head", "Linear"),
    ("", "Model"),
]
LEAVES = [name for name, cls in FORWARD if cls not in ("Block", "Model")]
CLASSES = dict(FORWARD)


def play(
    *, forward: str | None = None, backward: str | None = None, own: str | None = None, by: float = 1e-3
) -> Any:
    """Record one step in which an output, a backward pass, or a parent's own code is off by `by`."""
    events: list[dict[str, Any]] = []
    off = False

    def add(direction: str, name: str, value: float) -> None:
        event = {"ev": "mod", "step": 2, "seq": len(events), "dir": direction, "name": name, "call": 0}
        events.append({**event, "cls": CLASSES[name], "out": [fp([value, 1.0])]})

    for name, _ in FORWARD:
        off = off or name in (forward, own)
        add("f", name, 1 + by if off else 1.0)
    wrong = off
    for name in reversed(LEAVES):
        add("b", name, 2 + by if wrong else 2.0)
        wrong = wrong or name == backward  # its own output's gradient is right, what it passes on is not
    return events


@pytest.mark.parametrize("name", LEAVES)
def test_forward(name: str) -> None:
    found = localise(play(), play(forward=name))
    assert found is not None
    assert (found.module, found.direction, found.own_code) == (name, "forward", False)
    words = f"In step 2, the output of {name} ({CLASSES[name]}) departs first (relative "
    assert found.sentence.startswith(words)


@pytest.mark.parametrize("name", ["blocks.0", "blocks.1", ""])
def test_code_between_children(name: str) -> None:
    found = localise(play(), play(own=name))
    assert found is not None
    assert (found.module, found.own_code) == (name, True)


@pytest.mark.parametrize("name", LEAVES[1:])
def test_backward(name: str) -> None:
    found = localise(play(), play(backward=name))
    assert found is not None
    assert (found.module, found.direction) == (name, "backward")


def test_equal_steps_and_order() -> None:
    assert localise(play(), play()) is None
    assert localise(play()[::-1], play(forward="head")[::-1]) == localise(play(), play(forward="head"))


def test_calls_that_are_missing_or_have_another_shape() -> None:
    without = [event for event in play() if event["name"] != "blocks.0.act"]
    found = localise(play(), without)
    assert found is not None
    assert found.sentence == "In step 2, the output of blocks.0.act (GELU) is not called."
    other = play()
    other[3]["out"] = [fp([1.0, 1.0, 1.0])]
    found = localise(play(), other)
    assert found is not None
    assert (found.module, found.relative) == ("blocks.0.act", None)


def test_harmless_runs_say_how_far_a_module_may_be() -> None:
    calm: Sequence[Any] = [play(forward="embed", by=1e-6)]
    assert localise(play(), play(forward="embed", by=2e-6), harmless=calm) is None
    found = localise(play(), play(forward="blocks.1.fc", by=1e-4), harmless=calm)
    assert found is not None
    assert found.module == "blocks.1.fc"
