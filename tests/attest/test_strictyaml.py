from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import Field

from repro.errors import SpecError
from repro.noun import Noun
from repro.strictyaml import MAX_BYTES, MAX_EVENTS, Document, load, path_text, validate


def read(text: str) -> Any:
    return load(text.encode(), where="f.yaml").value


def flaws(text: str | bytes) -> list[tuple[int, int, str]]:
    data = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
    with pytest.raises(SpecError) as caught:
        load(data, where="f.yaml")
    assert caught.value.kind == "yaml-invalid"
    return [(flaw.line, flaw.column, flaw.message) for flaw in caught.value.flaws]


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("10m", "10m"),
        ("main", "main"),
        ("2.10", "2.10"),
        ("1e5", "1e5"),
        ("12345e10", "12345e10"),
        (".nan", ".nan"),
        ("no", "no"),
        ("True", "True"),
        ("012", "012"),
        ("0x1F", "0x1F"),
        ("1_000", "1_000"),
        ("+5", "+5"),
        ("-0", "-0"),
        ("2026-01-01", "2026-01-01"),
        ("1" * 40, "1" * 40),
        ('"7"', "7"),
        ("'true'", "true"),
        ("7", 7),
        ("-3", -3),
        ("0", 0),
        ("true", True),
        ("false", False),
        ("null", None),
        ("~", None),
        ("", None),
    ],
)
def test_a_scalar_is_typed_only_where_nobody_can_read_it_otherwise(written: str, value: Any) -> None:
    got = read(f"a: {written}\n")["a"]
    assert got == value
    assert type(got) is type(value)


def test_shapes_and_positions() -> None:
    document = load(b"a: 1\nb:\n  - {c: x, d: [y]}\n  - z\n", where="f.yaml")
    assert document.value == {"a": 1, "b": [{"c": "x", "d": ["y"]}, "z"]}
    assert document.positions[()] == (1, 1)
    assert document.positions[("b",)] == (2, 1)
    assert document.positions[("b", 0, "d")] == (3, 12)
    assert document.positions[("b", 0, "d", 0)] == (3, 16)
    assert document.positions[("b", 1)] == (4, 5)
    assert document.place(("b", 1, "absent", 7)) == (4, 5)


@pytest.mark.parametrize(
    ("text", "line", "column", "says"),
    [
        ("a: &x 1\n", 1, 4, "anchors (&x)"),
        ("a: 1\nb: *x\n", 2, 4, "aliases (*x)"),
        ("*x : 1\n", 1, 1, "aliases (*x)"),
        ("b:\n  <<: {a: 1}\n", 2, 3, "merge keys"),
        ("a: !!str x\n", 1, 4, "tags"),
        ("a: ! x\n", 1, 4, "tags"),
        ("a: !!python/object:os.system x\n", 1, 4, "tags"),
        ("a: !!binary aGk=\n", 1, 4, "tags"),
        ("a: !mine {b: 1}\n", 1, 4, "tags"),
        ("!!str a: 1\n", 1, 1, "tags"),
        ("%YAML 1.1\n---\na: 1\n", 1, 1, "directives"),
        ("# why\n%FOO bar\n---\na: 1\n", 2, 1, "directives"),
        ("a: 1\n---\nb: 2\n", 2, 1, "second document"),
        ("a: 1\na: 2\n", 2, 1, "stands twice, first in line 1"),
        ('1: x\n"1": y\n', 2, 1, "stands twice"),
        ("[x]: 1\n", 1, 1, "a key must be plain text"),
        ("? {a: 1}\n: 1\n", 1, 3, "a key must be plain text"),
        (": 1\n", 1, 1, "a key is empty"),
        ("", 0, 0, "empty"),
        ("# only a comment\n", 0, 0, "empty"),
        ("a: [1, 2\n", 2, 1, "not YAML"),
        ("a: 1\n\tb: 2\n", 2, 1, "not YAML"),
        ("a: 1 # \u202e\n", 1, 8, "U+202E"),
        ("a: x\u200by\n", 1, 5, "U+200B"),
        ("a: x\x00y\n", 1, 5, "U+0000"),
        ("a: 1\u2028b: 2\n", 1, 5, "U+2028"),
        ('a: "\\0"\n', 1, 4, "U+0000"),
        ('a: "\\ud800"\n', 1, 4, "U+D800"),
        ('"\\u202e": 1\n', 1, 1, "U+202E"),
        ('a: "\\U00110000"\n', 0, 0, "names no character"),
        ('a: "\\UFFFFFFFF"\n', 0, 0, "names no character"),
        ("a: e\u0301\n", 1, 4, "normal form C"),
        ("\ufeffa: 1\n", 1, 1, "byte order mark"),
        ("a: " + "[" * 40, 1, 35, "deeper than 32"),
        ("[" * 3000, 1, 33, "deeper than 32"),
    ],
)
def test_what_is_refused_is_named_with_its_place(text: str, line: int, column: int, says: str) -> None:
    assert [(where[0], where[1]) for where in flaws(text) if says in where[2]] == [(line, column)]


def test_bytes_that_are_no_utf8() -> None:
    assert flaws(b"a: 1\nbb: \xff\n") == [(2, 5, "the file is not UTF-8")]
    assert "byte order mark" in flaws("a: 1".encode("utf-16"))[0][2]


def test_sizes_are_bounded() -> None:
    assert "more than" in flaws(b"#" * (MAX_BYTES + 1))[0][2]
    started = time.monotonic()
    assert "parts" in flaws("[" + "1," * MAX_EVENTS + "1]")[0][2]
    assert time.monotonic() - started < 20


def test_every_flaw_comes_at_once_in_order() -> None:
    found = flaws("a: &x 1\na: !!str 2\nb:\n  <<: *x\nc: [1\n")
    assert [line for line, _, _ in found] == [1, 2, 2, 4, 4, 6]


class Inner(Noun):
    steps: int
    name: str = "x"


class Outer(Noun):
    version: int
    inner: Inner
    many: tuple[Inner, ...] = ()
    named: dict[str, Inner] = Field(default_factory=dict)
    perhaps: Inner | None = None


def spec_flaws(text: str) -> list[tuple[str, int, int, str]]:
    document = load(text.encode(), where="f.yaml")
    with pytest.raises(SpecError) as caught:
        validate(document, Outer, where="f.yaml")
    assert caught.value.kind == "spec-invalid"
    return [(flaw.path, flaw.line, flaw.column, flaw.message) for flaw in caught.value.flaws]


def test_a_noun_comes_out() -> None:
    document = load(b"version: 1\ninner: {steps: 2}\nmany: [{steps: 3}]\n", where="f.yaml")
    assert validate(document, Outer, where="f.yaml") == Outer(
        version=1, inner=Inner(steps=2), many=(Inner(steps=3),)
    )


def test_unknown_keys_are_pointed_at_and_the_nearest_known_one_is_named() -> None:
    assert spec_flaws(
        "version: 1\nversoin: 2\ninner:\n  steps: 1\n  stesp: 2\nmany: [{steps: 1, nam: y}]\n"
        "named: {k: {steps: 1, zzzz: 1}}\nperhaps: {step: 1}\n"
    ) == [
        ("versoin", 2, 1, "unknown key 'versoin'; did you mean 'version'?"),
        ("inner.stesp", 5, 3, "unknown key 'stesp'; did you mean 'steps'?"),
        ("many[0].nam", 6, 19, "unknown key 'nam'; did you mean 'name'?"),
        ("named.k.zzzz", 7, 23, "unknown key 'zzzz'; known here: name, steps"),
        ("perhaps", 8, 1, "the key 'steps' is missing"),
        ("perhaps.step", 8, 11, "unknown key 'step'; did you mean 'steps'?"),
    ]


def test_missing_and_mistyped_values() -> None:
    assert spec_flaws("version: 1.0\ninner: {name: 3}\n") == [
        ("version", 1, 1, "version: should be a valid integer"),
        ("inner", 2, 1, "the key 'steps' is missing"),
        ("inner.name", 2, 9, "inner.name: should be a valid string"),
    ]
    assert spec_flaws("- 1\n")[0][:3] == ("", 1, 1)


def test_paths() -> None:
    assert path_text(()) == ""
    assert path_text(("models", 0, "name")) == "models[0].name"
    assert path_text((3, "x")) == "[3].x"


TEXTS = st.text(alphabet=st.sampled_from(list("ab01 \n\t:-?[]{},&*!|>'\"%#\\u.~<é\x00\u202e")), max_size=60)


def read_or_flaws(data: bytes) -> Document | SpecError:
    try:
        return load(data, where="f.yaml")
    except SpecError as error:
        return error


@settings(max_examples=400, deadline=None)
@given(st.one_of(TEXTS.map(str.encode), st.binary(max_size=80)))
def test_anything_gives_a_document_or_flaws(data: bytes) -> None:
    got = read_or_flaws(data)
    if isinstance(got, Document):
        assert () in got.positions
    else:
        assert got.flaws
        assert all(flaw.line >= 0 and flaw.message for flaw in got.flaws)
