"""repro.yaml: what it may say, and how every flaw is told at once."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro import strictyaml
from repro.errors import SpecError
from repro.spec import Spec, parse_bytes, parse_duration

TEXT = """\
# The pilot of a small language model.
version: 1
name: pilot
pilot:
  command: [torchrun, --standalone, --nproc-per-node=2, train.py, --lr, 1e-3, --layers, 3]
  resume: [torchrun, train.py, --resume, "{checkpoint}"]
  source: [train.py, configs/]
  steps: 20
  checkpoint: {path: out/checkpoint, at_step: 10}
  timeout: 10m
seed: 20261130
datasets:
  - {name: corpus, path: data/corpus.txt}
accelerators:
  cpu: {dockerfile: Dockerfile.cpu, base: "registry.example/debian:12", requirements: [requirements.in]}
"""


def parse(text: str) -> Spec:
    return strictyaml.validate(strictyaml.load(text.encode(), where="repro.yaml"), Spec, where="repro.yaml")


def flaws(text: str) -> list[tuple[int, int, str]]:
    with pytest.raises(SpecError) as caught:
        parse(text)
    return [(flaw.line, flaw.column, flaw.message) for flaw in caught.value.flaws]


def test_a_command_keeps_numbers_as_they_were_written() -> None:
    assert parse(TEXT).pilot.command[-4:] == ("--lr", "1e-3", "--layers", "3")


def test_folders_and_durations_are_normal_forms() -> None:
    pilot = parse(TEXT).pilot
    assert pilot.source == ("train.py", "configs")
    assert pilot.timeout == 600
    assert pilot.outputs == ("out",)


def test_comments_and_layout_have_no_meaning() -> None:
    spec = parse(TEXT)
    again = parse(TEXT.replace("# The pilot", "# Another word on the pilot").replace("10m", "600"))
    assert spec.meaning() == again.meaning()
    assert spec.accelerator_meaning("cpu") == again.accelerator_meaning("cpu")


@pytest.mark.parametrize(
    ("old", "new"),
    [("seed: 20261130", "seed: 1"), ("steps: 20", "steps: 21"), ("path: data/corpus.txt", "path: data/b")],
)
def test_every_value_has_a_meaning(old: str, new: str) -> None:
    assert parse(TEXT).meaning() != parse(TEXT.replace(old, new)).meaning()


def test_an_accelerator_is_a_meaning_of_its_own() -> None:
    changed = parse(TEXT.replace("debian:12", "debian:13"))
    assert parse(TEXT).meaning() == changed.meaning()
    assert parse(TEXT).accelerator_meaning("cpu") != changed.accelerator_meaning("cpu")


def test_every_flaw_comes_at_once_with_its_place() -> None:
    text = TEXT.replace("seed:", "sede:").replace("10m", "ten").replace("Dockerfile.cpu,", "/etc/Dockerfile,")
    assert flaws(text) == [
        (2, 1, "the key 'seed' is missing"),
        (10, 3, "pilot.timeout: write a duration such as 90s, 10m or 2h"),
        (11, 1, "unknown key 'sede'; did you mean 'seed'?"),
        (
            15,
            9,
            "accelerators.cpu.dockerfile: write a path below the folder of repro.yaml, "
            "with forward slashes and without ..",
        ),
    ]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("at_step: 10", "at_step: 20", "before the last step"),
        ("out/checkpoint", "elsewhere/checkpoint", "below one of outputs"),
        ("{checkpoint}", "here", "must contain {checkpoint}"),
        ("path: data/corpus.txt", "path: a, hub: b/c", "exactly one of"),
        ("path: data/corpus.txt", "path: a, revision: main", "revision goes with hub or git"),
        ("  cpu:", "  tpu:", "cpu"),
        ("seed: 20261130", "seed: -1", "greater than or equal to 0"),
        ("version: 1", "version: 2", "1"),
        ("seed: 20261130", "seed: true", "valid integer"),
    ],
)
def test_a_contradiction_is_said(old: str, new: str, said: str) -> None:
    assert any(said in message for _, _, message in flaws(TEXT.replace(old, new)))


def test_two_artifacts_cannot_share_a_name() -> None:
    text = TEXT.replace("datasets:", "models:\n  - {name: corpus, path: model}\ndatasets:")
    assert any("stands twice" in message for _, _, message in flaws(text))


@given(st.integers(1, 10**6), st.sampled_from(["s", "m", "h"]))
def test_durations_scale(number: int, unit: str) -> None:
    assert parse_duration(f"{number}{unit}") == number * {"s": 1, "m": 60, "h": 3600}[unit]


@given(st.integers(1, 10**6), st.sampled_from(["k", "m", "g", "t"]))
def test_sizes_scale(number: int, unit: str) -> None:
    assert parse_bytes(f"{number}{unit}") == parse_bytes(f"{number}{unit.upper()}iB")
    assert parse_bytes(f"{number}{unit}") == number << (10 * " kmgt".index(unit))


@given(st.one_of(st.text(), st.booleans(), st.none(), st.integers(max_value=0)))
def test_nothing_else_is_a_duration(value: Any) -> None:
    text = str(value).strip()
    if text and text.rstrip("smh ").isdecimal() and not isinstance(value, bool):
        return
    with pytest.raises(ValueError, match="duration"):
        parse_duration(value)


def test_limits_are_read_and_those_that_came_later_count_only_where_they_are_set() -> None:
    plain = parse(TEXT)
    assert plain.limits.tree() == {"memory": None, "cpus": None, "shm": 1 << 30, "tmp": 1 << 30}
    text = (
        TEXT
        + "limits: {memory: 8g, open_files: 65536, processes: 4096, locked_memory: unlimited, stack: 64m}\n"
    )
    limits = parse(text).limits
    assert (limits.memory, limits.open_files, limits.processes) == (8 << 30, 65536, 4096)
    assert (limits.locked_memory, limits.stack) == (-1, 64 << 20)
    assert parse(text).meaning() != plain.meaning()
    assert Spec.parse(parse(text).tree()) == parse(text)
    said = flaws(TEXT + "limits: {open_files: 0, locked_memory: everything}\n")
    assert len(said) == 2


def test_a_dotted_key_is_found_as_far_as_it_goes() -> None:
    text = b"models:\n  - {name: a}\n  - {name: v1.5, hub: x}\npilot: {steps: 3}\n"
    document = strictyaml.load(text, where="test")
    assert document.path_of("models.v1.5") == ("models", 1)
    assert document.path_of("models.b") == ("models",)
    assert document.path_of("pilot.steps") == ("pilot", "steps")
    assert document.path_of("pilot.steps.more") == ("pilot", "steps")
    assert document.path_of("Step 3/9: RUN x") == ()
