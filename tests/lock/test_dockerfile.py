"""Which images a Dockerfile names."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.errors import LockError
from repro.resolve.dockerfile import check_dockerfile, read_dockerfile

Case = Callable[[str], Path]
PINNED = "one.example/tool@sha256:" + "1" * 64


def test_case_c09_every_form_of_reference(case: Case) -> None:
    folder = case("C09")
    expected = json.loads((folder / "expected.json").read_text())
    read = read_dockerfile((folder / "Dockerfile").read_text(), where="Dockerfile", arguments={})
    assert [read.frontend, *read.images] == expected["images"]
    assert list(read.stages) == expected["stages"]
    with pytest.raises(LockError, match=expected["missing_arg"]) as caught:
        read_dockerfile((folder / "Dockerfile.missing-arg").read_text(), where="Dockerfile", arguments={})
    assert caught.value.kind == "dockerfile-argument-missing"
    assert caught.value.where == "Dockerfile:2"


@pytest.mark.parametrize(
    ("line", "image"),
    [
        ("ARG T=1\nFROM a:${T}", "a:1"),
        ('ARG T="1"\nFROM a:$T', "a:1"),
        ("ARG T\nFROM a:${T:-2}", "a:2"),
        ("ARG T=\nFROM a:${T:-2}", "a:2"),
        ("ARG T=3\nFROM a:${T:+x}", "a:x"),
        ("ARG A=1 B=2\nFROM a:${A}.${B}", "a:1.2"),
        ("from a:1 as B", "a:1"),
        ("FROM \\\n  --platform=linux/amd64 \\\n  a:1", "a:1"),
        ("FROM scratch\nRUN --mount=type=bind,from=a:1,target=/x true", "a:1"),
        ("FROM scratch\nCOPY --chown=1:1 --from=a:1 / /", "a:1"),
    ],
)
def test_forms(line: str, image: str) -> None:
    assert read_dockerfile(line, where="Dockerfile", arguments={}).images == (image,)


def test_given_arguments_go_before_defaults() -> None:
    read = read_dockerfile("ARG BASE=a:1\nFROM ${BASE}\n", where="Dockerfile", arguments={"BASE": "b:2"})
    assert read.images == ("b:2",)


def test_what_only_looks_like_a_reference_is_none() -> None:
    text = (
        "FROM a:1 AS first\n# FROM b:1\nRUN <<EOF\nFROM c:1\nEOF\nCOPY --from=FIRST / /\nCOPY --from=0 / /\n"
        "RUN echo FROM d:1\n"
    )
    assert read_dockerfile(text, where="Dockerfile", arguments={}).images == ("a:1",)


def test_our_own_dockerfiles_stand_on_the_base_alone() -> None:
    for path in sorted(Path(__file__).parents[2].glob("Dockerfile.*")):
        check_dockerfile(path.read_text(), where=path.name, base="base:1")


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("FROM base:1\n", None),
        ("ARG BASE\nFROM ${BASE}\nCOPY --from=" + PINNED + " / /\n", None),
        ("FROM other:1\n", "base-unused"),
        ("ARG BASE\nFROM ${BASE}\nCOPY --from=tool:1 / /\n", "image-unpinned"),
        ("# syntax=docker/dockerfile:1\nARG BASE\nFROM ${BASE}\n", "image-unpinned"),
    ],
)
def test_nothing_a_dockerfile_takes_from_may_move(text: str, kind: str | None) -> None:
    if kind is None:
        check_dockerfile(text, where="Dockerfile", base="base:1")
        return
    with pytest.raises(LockError) as caught:
        check_dockerfile(text, where="Dockerfile", base="base:1")
    assert caught.value.kind == kind
