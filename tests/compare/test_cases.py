"""Runs that people could not reproduce, and what has to be said of them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repro.compare import compare
from repro.tolerance import ToleranceSpec
from repro.trace import Trace, hexed
from repro.verdict import Comparability, Outcome
from tests.compare.tracegen import phase_of

CASES = Path(__file__).parents[3] / "shared" / "cases"


def case(name: str) -> Path:
    folder = CASES / name
    if not folder.is_dir():
        pytest.skip(f"the shared case {name} is not here")
    return folder


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def losses(path: Path) -> Trace:
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    events = [
        {"ev": "step", "step": row["step"], "loss": [{"bits": hexed(row["loss"]), "dtype": "float64"}]}
        for row in rows
    ]
    return Trace(phases=(phase_of([[{"ev": "head", "format": "repro-trace/1"}, *events]]),))


def test_equal_then_growing() -> None:
    """One step equal to the bit, then drift inside the written bound: it passes, and the drift is told."""
    folder = case("E05")
    expected, note = read(folder / "expected.json"), read(folder / "note.json")
    spec = ToleranceSpec.parse({"same": {"loss": {"rtol": note["rtol"], "atol": note["atol"]}}})
    verdict = compare(losses(folder / "a.jsonl"), losses(folder / "b.jsonl"), tolerance=spec)
    assert verdict.outcome == Outcome.WITHIN_TOLERANCE
    assert verdict.first_divergence is not None
    assert verdict.first_divergence.step == expected["bitwise_equal_until"] + 1
    largest = max(verdict.deviations, key=lambda one: float.fromhex(one.abs_diff or "0x0.0p+0"))
    assert largest.step == expected["max_abs_diff_step"]
    assert float.fromhex(largest.abs_diff or "") == pytest.approx(expected["max_abs_diff"])
    assert f"closest to its bound at step {largest.step}" in verdict.sentence


def test_across_vendors_only_the_across_rule_counts() -> None:
    folder = case("E11")
    expected, note = read(folder / "expected.json"), read(folder / "note.json")
    spec = ToleranceSpec.parse(
        {"same": {"loss": note["same_vendor"]}, "across": {"loss": note["cross_vendor"]}}
    )
    environment = Comparability(relation="across", reasons=("NVIDIA in the target, AMD in the candidate",))
    target, candidate = losses(folder / "cuda.jsonl"), losses(folder / "rocm.jsonl")
    verdict = compare(target, candidate, tolerance=spec, environment=environment)
    assert (verdict.outcome, verdict.environment) == (Outcome.DIVERGED, "across")
    first = verdict.first_divergence
    assert first is not None
    assert first.step == expected["first_bad_step"]
    assert float.fromhex(first.rel_diff or "") == pytest.approx(expected["rel_diff_step2"], abs=1e-5)
    assert "NVIDIA in the target, AMD in the candidate" in " ".join(verdict.notes)
