"""Adding to a `repro.yaml`: what a person wrote stays to the byte, and what was missing is there."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro import strictyaml
from repro.adapters.specfile import add_missing
from repro.errors import FileError, SpecError

WANTED: dict[str, Any] = {
    "version": 1,
    "name": "of: a, [folder]",
    "pilot": {"command": ["python", "a b.py", "-1", "yes", "true"], "source": ["train.py"], "steps": 20},
    "seed": 0,
    "accelerators": {
        "cpu": {"dockerfile": "Dockerfile.cpu", "base": "example:1", "requirements": ["requirements.in"]},
        "rocm": {"dockerfile": "Dockerfile.rocm", "base": "example:2", "requirements": ["requirements.in"]},
    },
}
PARTS = (
    ("version: 1", "'version':   1  # one", "# nothing"),
    ('name: "mine"', "name:\n    mine # really", "# no name"),
    (
        "pilot:  # what runs\n  # the steps\n  steps: 5   # few\n  outputs:\n  - out",
        "pilot: {steps: 5, # five\n  outputs: [out]}",
        "pilot: {}",
        "pilot:",
        "pilot: # nothing yet",
        "pilot:\n      command: [x]\n      source:\n        - y\n      steps: 3",
        "# no pilot",
    ),
    ("seed: 7", "# no seed"),
    (
        "accelerators:\n  cpu: {base: b}",
        "accelerators: {cpu: {base: b, dockerfile: d, requirements: [r]}, }",
        "accelerators:\n    rocm:\n        # of mine\n        base: 'b'\n    cpu:",
        "",
    ),
    ("tolerance: {same: bitwise}", "determinism: warn", "# the end"),
)


def within(old: str, new: str) -> bool:
    """Whether every character of the old text stands in the new one, in order."""
    rest = iter(new)
    return all(char in rest for char in old)


@given(
    parts=st.tuples(*map(st.sampled_from, PARTS)), end=st.sampled_from(["\n", "\r\n"]), closed=st.booleans()
)
def test_what_is_there_stays_and_what_is_missing_comes(
    parts: tuple[str, ...], end: str, closed: bool
) -> None:
    text = "\n".join(["lead: 1", *parts]).replace("\n", end) + (end if closed else "")
    extended = add_missing(text.encode(), WANTED, where="test")
    new = extended.data.decode()
    before, after = strictyaml.load(text.encode(), where="test"), strictyaml.load(extended.data, where="test")
    assert within(text, new)
    changed = [line for line in text.splitlines() if line not in new.splitlines()]
    assert all("{" in line for line in changed), "only a mapping on one line grows in its line"
    assert ("\r" in new) == (end == "\r\n" or "\r" in text)
    for path in before.positions:
        names = tuple(part for part in path if isinstance(part, str))
        if before.get(names) is not None and not isinstance(before.get(names), dict):
            assert after.get(names) == before.get(names)
    for path in [
        ("version",),
        ("name",),
        ("pilot", "command"),
        ("pilot", "source"),
        ("pilot", "steps"),
        ("seed",),
    ]:
        wanted: Any = WANTED
        for part in path:
            wanted = wanted[part]
        assert after.get(path) == (wanted if before.get(path) is None else before.get(path))
    for name in ("cpu", "rocm"):
        assert set(after.get(("accelerators", name))) == {"dockerfile", "base", "requirements"}
    assert add_missing(extended.data, WANTED, where="test").data == extended.data


def test_it_says_what_it_added_and_what_it_left() -> None:
    text = b"version: 1\nname: mine\npilot: {steps: 5}\nseed: 1\naccelerators: {cpu: {base: b}}\n"
    extended = add_missing(text, WANTED, where="test")
    assert extended.left == ("version", "name", "pilot.steps", "seed", "accelerators.cpu.base")
    assert extended.added == (
        *("pilot.command", "pilot.source", "accelerators.cpu.dockerfile", "accelerators.cpu.requirements"),
        "accelerators.rocm",
    )


def test_keys_keep_the_order_they_are_wanted_in() -> None:
    extended = add_missing(b"version: 1\npilot:\n  # of mine\n  outputs: [o]\n", WANTED, where="test")
    assert [line.split(":")[0] for line in extended.data.decode().splitlines()] == [
        *("version", "pilot", "  command", "  source", "  steps", "  # of mine", "  outputs"),
        *("name", "seed", "accelerators", "  cpu", "  rocm"),
    ]


@pytest.mark.parametrize("text", ["a: 1\n...\n", "--- {a: 1}\n---\n", "pilot: null\nversion: 1\n"])
def test_where_nothing_can_be_added_nothing_is(text: str) -> None:
    with pytest.raises((FileError, SpecError)) as caught:
        add_missing(text.encode(), WANTED, where="repro.yaml")
    assert caught.value.kind in ("spec-not-extended", "yaml-invalid")


def test_a_value_of_another_kind_is_left() -> None:
    extended = add_missing(b"pilot: odd\naccelerators: [cpu]\n", WANTED, where="test")
    assert extended.data.startswith(b"pilot: odd\naccelerators: [cpu]\n")
    assert extended.left == ("pilot", "accelerators")
