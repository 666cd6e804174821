"""Checks and replays as JUnit XML, which CI systems show test by test."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Literal
from xml.etree.ElementTree import Element, SubElement, indent, tostring

from repro.attest.outcome import Check, Verification
from repro.compare.repeat import DEVIATIONS
from repro.report.replayed import Replayed
from repro.report.verdict import distance_text, value_text, where
from repro.report.words import clipped, printable
from repro.verdict import Deviation, Outcome, Verdict

__all__ = ["junit_xml"]

_OBSERVABLES = {
    "end-differs": "params",
    "evaluation-differs": "eval",
    "gradient-norm-differs": "grad_norm",
    "gradients-differ": "grads",
    "hyper-parameters-differ": "hyper-parameters",
    "inputs-differ": "inputs",
    "loss-differs": "loss",
    "modules-differ": "modules",
    "observation-differs": "observe",
    "optimizers-differ": "hyper-parameters",
    "rng-differs": "rng",
    "scaler-differs": "scaler",
    "update-differs": "params",
    "weights-before-differ": "weights before",
}
"""Kind of a deviation to the name that `Compared.observables` gives to what differs."""


@dataclass(frozen=True, slots=True)
class _Case:
    """One test: `error` is for what could not be told."""

    group: str
    name: str
    state: Literal["passed", "failure", "error", "skipped"] = "passed"
    kind: str = ""
    message: str = ""
    detail: str = ""


def _check(check: Check) -> _Case:
    name = f"{check.number:02} {check.name}"
    if check.state == "passed":
        return _Case("verify", name)
    if not check.wanted:
        return _Case("verify", name, "skipped", message=check.detail)
    state: Literal["failure", "error"] = "failure" if check.state == "failed" else "error"
    return _Case("verify", name, state, check.code or check.state, check.detail)


def _observable(deviation: Deviation) -> str:
    return _OBSERVABLES.get(deviation.kind, deviation.observable)


def _detail(deviations: Iterable[Deviation]) -> str:
    lines = (
        f"{where(one)}: signed {value_text(one.target)}, now {value_text(one.candidate)}{distance_text(one)}"
        for one in deviations
    )
    return "\n".join(printable(line) for line in lines)


def _judged(group: str, name: str, found: list[Deviation], verdict: Verdict) -> _Case:
    """One observable of one phase, by what the verdict kept of it."""
    if name in verdict.compared.not_enforced:
        return _Case(group, name, "skipped", message="not asked for: the target did not repeat it either")
    if found and verdict.outcome is Outcome.DIVERGED:
        return _Case(group, name, "failure", found[0].kind, where(found[0]), _detail(found))
    if verdict.outcome is Outcome.INCOMPARABLE:
        return _Case(group, name, "skipped", message="could not be told")
    if verdict.outcome is Outcome.DIVERGED and len(verdict.deviations) >= DEVIATIONS:
        return _Case(
            group, name, "skipped", message=f"unknown: only the first {DEVIATIONS} differences are kept"
        )
    return _Case(group, name)


def _replay(replay: Replayed) -> Iterator[_Case]:
    """The verdict itself, then each observable of each phase."""
    verdict, group = replay.verdict, f"replay.{replay.name}"
    states: dict[Outcome, Literal["failure", "error"]] = {
        Outcome.DIVERGED: "failure",
        Outcome.INCOMPARABLE: "error",
    }
    if verdict.reproduced:
        yield _Case(group, "verdict")
    else:
        yield _Case(group, "verdict", states[verdict.outcome], verdict.kind, verdict.sentence)
    for phase in verdict.compared.phases:
        here = [one for one in verdict.deviations if one.phase == phase]
        names = dict.fromkeys([*verdict.compared.observables, *(_observable(one) for one in here)])
        for name in names:
            yield _judged(
                f"{group}.{phase}", name, [one for one in here if _observable(one) == name], verdict
            )


def _suite(root: Element, name: str, cases: Iterable[_Case]) -> None:
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
        _suite(root, "verify", (_check(check) for check in verification.checks))
    for replay in replays:
        _suite(root, f"replay {replay.name}", _replay(replay))
    indent(root)
    return tostring(root, encoding="unicode", xml_declaration=True) + "\n"
