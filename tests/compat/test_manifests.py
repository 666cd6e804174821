"""Signed runs that the project keeps must verify, with every later version."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from repro.cli import cli

MANIFESTS = Path(__file__).parents[2] / "manifests"
RUNS = sorted(path.parent for path in MANIFESTS.glob("*/manifest.json"))


def test_the_reference_pilot_is_kept() -> None:
    assert [run.name for run in RUNS] == ["pilot.cpu"]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_kept_run_verifies(run: Path) -> None:
    arguments = ["verify", str(run), "--trust", str(MANIFESTS / "trust.yaml"), "--strict", "--json"]
    result = CliRunner().invoke(cli, arguments, standalone_mode=False)
    answer = json.loads(result.output)
    assert answer["verdict"] == "VERIFIED", answer
    assert answer["unsigned"] == []


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_a_kept_run_repeated_itself_and_resumed_exactly(run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text(encoding="utf-8"))
    assert manifest["reproduced_itself"]["outcome"] == "BITWISE"
    assert manifest["resumed_exactly"]["outcome"] == "BITWISE"
