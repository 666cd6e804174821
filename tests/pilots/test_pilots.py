"""Layouts of the example are recorded, restored and replayed to the bit, and agree with a single process."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from repro.trace import PhaseTrace

pytestmark = pytest.mark.torch

ROOT = Path(__file__).parents[2]
CLOSE = 1e-4
"""Relative distance of weights after a few steps, where only the order of sums differs."""
COARSE = 0.1
"""The same with half the bits."""


@pytest.fixture(scope="module")
def pilots() -> ModuleType:
    spec = importlib.util.spec_from_file_location("bench_pilots", ROOT / "bench" / "pilots.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def single(pilots: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> PhaseTrace:
    phases = pilots.Phases(pilots.Pilot("single"), tmp_path_factory.mktemp("single"), 8, 4)
    trace: PhaseTrace = phases.record("full")
    return trace


def holds(found: dict[str, Any], distance: float) -> None:
    assert (found["restored"], found["replayed"], found["recorded"]) == ("BITWISE", "BITWISE", "8 steps"), (
        found
    )
    assert found["weights"] < distance, found
    assert (found["loss"] or 0.0) < distance, found


def test_shards_restored_by_all_ranks_agree_with_one_process(
    pilots: ModuleType, single: PhaseTrace, tmp_path: Path
) -> None:
    found = pilots.row(pilots.Pilot("fsdp2", 2), tmp_path, single)
    assert found["ranks"] == 2
    holds(found, CLOSE)


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_every_pilot(pilots: ModuleType, single: PhaseTrace, tmp_path: Path, number: int) -> None:
    assert len(pilots.MATRIX) == 20
    pilot = pilots.MATRIX[number]
    found = pilots.row(pilot, tmp_path, single)
    assert found["ranks"] == pilot.processes
    if (pilot.config, pilot.processes) == ("ddp", 4):
        assert found["restored"] == "DIVERGED", "buckets are made anew in a new process: other sums"
        found["restored"] = "BITWISE"
    holds(found, CLOSE if "16" not in pilot.config else COARSE)
