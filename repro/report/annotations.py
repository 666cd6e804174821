"""Findings as annotations: one line each, which a CI system shows beside the line of the file it is about.

The format is that of GitHub's workflow commands. Their runner decodes `%25`, `%0D` and `%0A` in a message,
and `%3A` and `%2C` too in a property; whatever else stands in the text is shown as it is.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from repro.attest.outcome import Verification
from repro.errors import ReproError, SpecError
from repro.image import ImageRecord, LayerCheck
from repro.report.verdict import distance_text, value_text, where
from repro.report.words import count, printable, short
from repro.verdict import Verdict

__all__ = [
    "Annotation",
    "Place",
    "build_annotations",
    "error_annotations",
    "github_line",
    "verdict_annotations",
    "verification_annotations",
]

SHOWN = 9
"""Files of an image that get an annotation of their own; GitHub shows ten errors of a step."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a finding belongs: a file as the repository has it, and in it a line and column from 1."""

    file: str | None = None
    line: int | None = None
    column: int | None = None


NOWHERE = Place()


@dataclass(frozen=True, kw_only=True, slots=True)
class Annotation:
    """One finding: always an error, for each of them makes a command end with something else than 0."""

    title: str
    message: str
    place: Place = NOWHERE


def _message(text: str) -> str:
    shown = "".join(char if char in "\r\n" else printable(char) for char in text)
    return shown.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(text: str) -> str:
    return _message(text).replace(":", "%3A").replace(",", "%2C")


def github_line(annotation: Annotation) -> str:
    """Write a workflow command, `::error file=…,line=…,col=…,title=…::message`, without its line end."""
    place = annotation.place
    named = {"file": place.file, "line": place.line, "col": place.column, "title": annotation.title}
    properties = ",".join(f"{name}={_property(str(value))}" for name, value in named.items() if value)
    return f"::error {properties}::{_message(annotation.message)}"


def error_annotations(error: ReproError, place: Place) -> Iterator[Annotation]:
    """What stopped a command: the error, or each flaw of a file at its own line.

    Args:
        place: of the error, as far as it is known.
    """
    title = f"repro: {error.kind}"
    remedy = f"\nWhat to do: {error.remedy}" if error.remedy else ""
    if isinstance(error, SpecError) and error.flaws:
        for flaw in error.flaws:
            here = Place(file=place.file, line=flaw.line or None, column=flaw.column or None)
            yield Annotation(title=title, message=flaw.message + remedy, place=here)
        return
    unplaced = f"{error.where}: " if error.where and place.file is None else ""
    yield Annotation(title=title, message=f"{unplaced}{error.message}{remedy}", place=place)


def verification_annotations(verification: Verification, place: Place) -> Iterator[Annotation]:
    """Each check that was wanted and did not pass."""
    title = f"repro verify: {verification.verdict}"
    for check in verification.checks:
        if check.wanted and check.state != "passed":
            code = f" ({check.code})" if check.code else ""
            message = f"check {check.number}, {check.name}{code}: {check.detail}"
            yield Annotation(title=title, message=message, place=place)


def verdict_annotations(verdict: Verdict, place: Place) -> Iterator[Annotation]:
    """A verdict that is not what was hoped for: its sentence, the first place, and the likeliest cause."""
    if verdict.reproduced:
        return
    lines = [verdict.sentence]
    for one in verdict.deviations[:1]:
        values = f"signed {value_text(one.target)}, now {value_text(one.candidate)}{distance_text(one)}"
        lines.append(f"first at {where(one)}: {values}")
    lines += [explanation.sentence for explanation in verdict.explanations[:1]]
    yield Annotation(title=f"repro replay: {verdict.outcome}", message="\n".join(lines), place=place)


def build_annotations(
    first: ImageRecord, again: ImageRecord, check: LayerCheck, place: Place
) -> Iterator[Annotation]:
    """Two builds that are not one image, and files of the packages that nothing explains."""
    title = "repro build --check: differs"
    if first.identity != again.identity:
        one, other = short(first.identity.config_digest), short(again.identity.config_digest)
        yield Annotation(title=title, message=f"image {one} was rebuilt as {other}", place=place)
    unexplained = [one for one in check.differences if one.reason == "unexplained"]
    for file in unexplained[:SHOWN]:
        values = f"expected {file.expected}, found {file.found}"
        yield Annotation(title=title, message=f"{file.path}: {file.aspect}, {values}", place=place)
    if len(unexplained) > SHOWN:
        more = count(len(unexplained) - SHOWN, "more difference")
        yield Annotation(title=title, message=f"and {more} that nothing explains", place=place)
