"""Checks, rebuilds and replays as JUnit XML, which CI systems show test by test."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from repro.attest.outcome import Verification
from repro.image import ImageRecord, LayerCheck
from repro.report.cases import Case, build_cases, check_case, verdict_cases
from repro.report.replayed import Replayed
from repro.report.words import clipped, printable

__all__ = ["junit_build_xml", "junit_xml"]


def _suite(root: Element, name: str, cases: Iterable[Case]) -> None:
    suite = SubElement(root, "testsuite", name=printable(name))
    told = {"tests": 0, "failures": 0, "errors": 0, "skipped": 0}
    plural = {"failure": "failures", "error": "errors", "skipped": "skipped"}
    for case in cases:
        told["tests"] += 1
        test = SubElement(suite, "testcase", classname=printable(case.group), name=printable(case.name))
        if case.state == "passed":
            continue
        told[plural[case.state]] += 1
        said = SubElement(test, case.state, message=printable(clipped(case.message, 1000)))
        if case.state != "skipped":
            said.set("type", case.kind)
        said.text = clipped(case.detail, 20_000) or None
    for key, number in told.items():
        suite.set(key, str(number))
        root.set(key, str(int(root.get(key, "0")) + number))


def _text(root: Element) -> str:
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def junit_xml(verification: Verification | None, replays: Sequence[Replayed], *, name: str) -> str:
    """Write one test suite for the checks and one for each replay.

    A check is a test case; so is each observable of each phase of a replay, beside one for the verdict.
    Failures are failures, what could not be told is an error, what nobody asked for is skipped.

    Args:
        verification: what checking the run found; None where nobody checked.
        replays: what replaying it came to.
        name: of the whole, such as the run folder's name.
    """
    root = Element("testsuites", name=printable(name))
    if verification is not None:
        _suite(root, "verify", (check_case(check) for check in verification.checks))
    for replay in replays:
        _suite(root, f"replay {replay.name}", verdict_cases(replay.verdict, f"replay.{replay.name}"))
    return _text(root)


def junit_build_xml(first: ImageRecord, again: ImageRecord, check: LayerCheck, *, name: str) -> str:
    """Write one test suite for a build and its check.

    Args:
        first: the image as it was built, or as the engine held it.
        again: the same, built from nothing.
        check: its packages against the wheels themselves.
        name: of the whole, such as the project's name.
    """
    root = Element("testsuites", name=printable(name))
    _suite(root, "build", build_cases(first, again, check))
    return _text(root)
