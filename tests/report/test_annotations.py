"""Annotations: what a runner reads of them is what was meant, whatever stands in the text."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import Flaw, LockError, SpecError
from repro.image import FileDifference, LayerCheck
from repro.report.annotations import (
    Annotation,
    Place,
    build_annotations,
    error_annotations,
    github_line,
    verdict_annotations,
    verification_annotations,
)
from repro.report.words import printable
from repro.verdict import Outcome
from tests.report.report_world import image, sha, verdict, verification

HERE = Place(file="repro.yaml", line=8, column=3)
TEXT = st.text(st.characters(codec="utf-8"), min_size=1)


def read(line: str) -> tuple[str, dict[str, str], str]:
    """Read a workflow command as GitHub's runner does: command, properties, message.

    Its rules: `::` begins, the next `::` ends the properties, which are split at commas and at their first
    `=`; then escapes are decoded, `%25` last.
    """
    match = re.fullmatch(r"::([a-z]+)(?: (.*?))?::(.*)", line)
    assert match is not None, line
    properties = dict(pair.split("=", 1) for pair in (match[2] or "").split(","))
    decoded = {}
    for name, value in properties.items():
        for escape, char in (("%0D", "\r"), ("%0A", "\n"), ("%3A", ":"), ("%2C", ","), ("%25", "%")):
            value = value.replace(escape, char)
        decoded[name] = value
    message = match[3].replace("%0D", "\r").replace("%0A", "\n").replace("%25", "%")
    return match[1], decoded, message


def meant(text: str) -> str:
    return "".join(char if char in "\r\n" else printable(char) for char in text)


@given(title=TEXT, message=TEXT, file=TEXT)
def test_a_runner_reads_what_was_meant(title: str, message: str, file: str) -> None:
    line = github_line(Annotation(title=title, message=message, place=Place(file=file, line=2, column=1)))
    assert line.splitlines() == [line]
    properties = {"file": meant(file), "line": "2", "col": "1", "title": meant(title)}
    assert read(line) == ("error", properties, meant(message))


def test_a_line_as_it_is_written() -> None:
    one = Annotation(title="a: b, 5%", message="50% of a:b,\r\nc", place=Place(file="x,y:z.py", line=3))
    assert github_line(one) == ("::error file=x%2Cy%3Az.py,line=3,title=a%3A b%2C 5%25::50%25 of a:b,%0D%0Ac")


def test_what_has_no_place_has_no_file() -> None:
    assert github_line(Annotation(title="t", message="m")) == "::error title=t::m"


def test_every_flaw_stands_at_its_own_line() -> None:
    flaws = [
        Flaw(path="seed", line=3, column=1, message="one"),
        Flaw(path="", line=0, column=0, message="two"),
    ]
    error = SpecError("spec-invalid", "one", remedy="mend it", flaws=flaws)
    found = list(error_annotations(error, Place(file="repro.yaml")))
    assert [one.place for one in found] == [
        Place(file="repro.yaml", line=3, column=1),
        Place(file="repro.yaml"),
    ]
    assert [one.message for one in found] == ["one\nWhat to do: mend it", "two\nWhat to do: mend it"]


def test_an_error_says_where_in_words_if_it_is_no_file() -> None:
    error = LockError("base-absent", "it is nowhere", where="some/image:1")
    (found,) = error_annotations(error, Place())
    assert found == Annotation(title="repro: base-absent", message="some/image:1: it is nowhere")
    (found,) = error_annotations(error, HERE)
    assert found.message == "it is nowhere"


def test_only_checks_that_were_wanted_and_failed() -> None:
    (found,) = verification_annotations(verification("REJECTED"), HERE)
    assert found.title == "repro verify: REJECTED"
    assert found.message == "check 2, signature (E_SIG): 1 of 1"
    assert list(verification_annotations(verification("VERIFIED"), HERE)) == []


@pytest.mark.parametrize("outcome", [Outcome.BITWISE, Outcome.WITHIN_TOLERANCE])
def test_a_reproduction_says_nothing(outcome: Outcome) -> None:
    assert list(verdict_annotations(verdict(outcome), HERE)) == []


def test_a_verdict_says_its_first_place() -> None:
    (found,) = verdict_annotations(verdict(), HERE)
    sentence, first, *_ = found.message.split("\n")
    assert found.title == "repro replay: DIVERGED"
    assert sentence == verdict().sentence
    assert first.startswith("first at full, step 7, rank 1: grads of blocks.0.weight: signed 1, now 1.5")


def check(number: int) -> LayerCheck:
    def one(index: int, reason: str) -> FileDifference:
        members = {"path": f"opt/{index}.py", "aspect": "content", "expected": "a", "found": "b"}
        return FileDifference.parse({**members, "reason": reason})

    differences = (one(0, "installer"), *(one(index, "unexplained") for index in range(1, number + 1)))
    return LayerCheck(
        image=sha("config"),
        layer=sha("l"),
        assembled=sha("a"),
        files=99,
        identical=9,
        differences=differences,
    )


def test_a_rebuild_says_files_up_to_what_is_shown() -> None:
    same = image()
    assert list(build_annotations(same, same, check(0), HERE)) == []
    assert len(list(build_annotations(same, same, check(9), HERE))) == 9
    found = list(build_annotations(same, same, check(12), HERE))
    assert len(found) == 10
    assert found[0].message == "opt/1.py: content, expected a, found b"
    assert found[-1].message == "and 3 more differences that nothing explains"


def test_a_rebuild_says_that_the_image_is_another() -> None:
    first = image()
    identity = first.identity.model_copy(update={"config_digest": sha("other")})
    again = first.model_copy(update={"identity": identity})
    (found,) = build_annotations(first, again, check(0), HERE)
    assert "was rebuilt as" in found.message
    assert replace(found, message="") == Annotation(
        title="repro build --check: differs", message="", place=HERE
    )
