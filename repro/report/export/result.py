"""A replay's verdict as an in-toto test result v0.1."""

from __future__ import annotations

from typing import Any, Final

from repro.digest import Digest
from repro.errors import CompareError
from repro.manifest import Manifest
from repro.report.cases import verdict_cases
from repro.report.export.statement import file_descriptor, statement, subjects
from repro.verdict import Outcome, Verdict

__all__ = ["result_statement"]

PREDICATE_TYPE: Final = "https://in-toto.io/attestation/test-result/v0.1"


def result_statement(manifest: Manifest, manifest_digest: Digest, verdict: Verdict) -> dict[str, Any]:
    """Write the verdict as an in-toto statement, not signed: each observable of each phase is a test.

    A reproduction within tolerance that notes limit passes with warnings.

    Args:
        manifest: the signed run.
        manifest_digest: digest of the bytes of `manifest.json`.
        verdict: what replaying the run came to.

    Raises:
        CompareError: `no-test-result` for INCOMPARABLE, which this format has no word for.
    """
    if verdict.outcome is Outcome.INCOMPARABLE:
        raise CompareError(
            "no-test-result",
            "the replay could not be compared, and a test result only knows passed and failed",
            remedy="hand on the verdict itself, or `repro report --format junit`",
        )
    names: dict[str, list[str]] = {"passed": [], "failure": [], "warned": [], "skipped": [], "error": []}
    warned = verdict.reproduced and bool(verdict.notes)
    for case in verdict_cases(verdict, "replay"):
        state = "warned" if warned and case.name == "verdict" else case.state
        names[state].append(f"{case.group}.{case.name}")
    predicate = {
        "result": "WARNED" if warned else "PASSED" if verdict.reproduced else "FAILED",
        "configuration": [file_descriptor(manifest.spec), file_descriptor(manifest.lock)],
        "passedTests": names["passed"],
        "warnedTests": names["warned"],
        "failedTests": names["failure"],
    }
    return statement(subjects(manifest, manifest_digest), PREDICATE_TYPE, predicate)
