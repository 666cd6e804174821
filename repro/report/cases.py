"""Checks and verdicts as tests that pass or fail, for whoever thinks in tests."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from repro.attest.outcome import Check
from repro.compare.repeat import DEVIATIONS
from repro.image import ImageRecord, LayerCheck
from repro.report.verdict import distance_text, value_text, where
from repro.report.words import printable, short
from repro.verdict import Deviation, Outcome, Verdict

__all__ = ["Case", "build_cases", "check_case", "verdict_cases"]

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
class Case:
    """One test."""

    group: str
    name: str
    state: Literal["passed", "failure", "error", "skipped"] = "passed"
    """`error`: it could not be told; `skipped`: nobody asked, or nobody knows."""
    kind: str = ""
    message: str = ""
    detail: str = ""


def check_case(check: Check) -> Case:
    """One numbered check."""
    name = f"{check.number:02} {check.name}"
    if check.state == "passed":
        return Case("verify", name)
    if not check.wanted:
        return Case("verify", name, "skipped", message=check.detail)
    state: Literal["failure", "error"] = "failure" if check.state == "failed" else "error"
    return Case("verify", name, state, check.code or check.state, check.detail)


def build_cases(first: ImageRecord, again: ImageRecord, check: LayerCheck) -> Iterator[Case]:
    """Whether two builds are one image; then the packages, and each file of them that nothing explains."""
    one, other = first.identity, again.identity
    if one == other:
        yield Case("build", "image is the same")
    else:
        message = f"{short(one.config_digest)} was rebuilt as {short(other.config_digest)}"
        layers = zip_longest(one.diff_ids, other.diff_ids)
        detail = "\n".join(f"layer {n}: {a}, then {b}" for n, (a, b) in enumerate(layers, 1) if a != b)
        yield Case("build", "image is the same", "failure", "image-differs", message, detail)
    if check.explained:
        yield Case("build.packages", "files are those of the wheels")
    for file in check.differences:
        if file.reason == "unexplained":
            message = f"expected {file.expected}, found {file.found}"
            yield Case("build.packages", f"{file.path}: {file.aspect}", "failure", file.reason, message)


def _observable(deviation: Deviation) -> str:
    return _OBSERVABLES.get(deviation.kind, deviation.observable)


def _detail(deviations: Iterable[Deviation]) -> str:
    lines = (
        f"{where(one)}: signed {value_text(one.target)}, now {value_text(one.candidate)}{distance_text(one)}"
        for one in deviations
    )
    return "\n".join(printable(line) for line in lines)


def _judged(group: str, name: str, found: list[Deviation], verdict: Verdict) -> Case:
    """One observable of one phase, by what the verdict kept of it."""
    if name in verdict.compared.not_enforced:
        return Case(group, name, "skipped", message="not asked for: the target did not repeat it either")
    if found and verdict.outcome is Outcome.DIVERGED:
        return Case(group, name, "failure", found[0].kind, where(found[0]), _detail(found))
    if verdict.outcome is Outcome.INCOMPARABLE:
        return Case(group, name, "skipped", message="could not be told")
    if verdict.outcome is Outcome.DIVERGED and len(verdict.deviations) >= DEVIATIONS:
        return Case(
            group, name, "skipped", message=f"unknown: only the first {DEVIATIONS} differences are kept"
        )
    return Case(group, name)


def verdict_cases(verdict: Verdict, group: str) -> Iterator[Case]:
    """The verdict itself, then each observable of each phase."""
    states: dict[Outcome, Literal["failure", "error"]] = {
        Outcome.DIVERGED: "failure",
        Outcome.INCOMPARABLE: "error",
    }
    if verdict.reproduced:
        yield Case(group, "verdict")
    else:
        yield Case(group, "verdict", states[verdict.outcome], verdict.kind, verdict.sentence)
    for phase in verdict.compared.phases:
        here = [one for one in verdict.deviations if one.phase == phase]
        names = dict.fromkeys([*verdict.compared.observables, *(_observable(one) for one in here)])
        for name in names:
            yield _judged(
                f"{group}.{phase}", name, [one for one in here if _observable(one) == name], verdict
            )
