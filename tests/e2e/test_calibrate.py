"""A calibrated capture tells a harmless change of the computation from a real one, end to end."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from repro.adapters.tracefiles import open_trace
from repro.compare import compare
from repro.manifest import Manifest, PhaseRecord, parse_manifest
from repro.tolerance import ToleranceSpec
from repro.trace import Trace
from repro.verdict import Comparability, Outcome, Verdict
from tests.e2e.e2e_world import make_keys, replace_once, succeed
from tests.faults.faults_world import SPEC

pytestmark = [pytest.mark.network, pytest.mark.torch]

TRAIN = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(7)
layers = [nn.Linear(24, 32), nn.GELU(), nn.Dropout(0.1), nn.Linear(32, 32), nn.GELU(), nn.Linear(32, 4)]
model = nn.Sequential(*layers)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
inputs = torch.randn(96, 24, generator=torch.Generator().manual_seed(1))
data = TensorDataset(inputs, inputs.abs().sum(1).long() % 4)
loader = DataLoader(data, batch_size=8, shuffle=True, generator=torch.Generator().manual_seed(2))
scale = 1.0
for values, labels in loader:
    loss = nn.functional.cross_entropy(model(values) * scale, labels)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
STEPS = 12
ACROSS = Comparability(relation="across", reasons=("another processor",))


@dataclass(frozen=True, slots=True)
class Calibrated:
    project: Path
    run: Path
    trust: Path
    manifest: Manifest
    target: Trace

    def verdict(self, folder: Path, old: str, new: str) -> Verdict:
        """Change the program, run it, and judge it by the calibration as a run on another stack."""
        changed = folder / "changed"
        shutil.copytree(self.project, changed, ignore=shutil.ignore_patterns("manifests"))
        replace_once(changed / "train.py", old, new)
        succeed("lock", "-C", changed)
        succeed("run", "-C", changed, "--runtime", "host", "--keep", folder / "kept")
        phases = json.loads((folder / "kept" / "phases.json").read_text())
        candidate = open_trace(folder / "kept", [PhaseRecord.parse(phase) for phase in phases])
        return compare(self.target, candidate, tolerance=ToleranceSpec(), environment=ACROSS)


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Calibrated:
    folder = tmp_path_factory.mktemp("calibrated")
    project = folder / "project"
    project.mkdir()
    spec = SPEC.partition("datasets:")[0] + SPEC[SPEC.index("accelerators:") :]
    spec = spec.replace("steps: 4", f"steps: {STEPS}")
    spec = "".join(line for line in spec.splitlines(keepends=True) if "checkpoint" not in line)
    (project / "repro.yaml").write_text(spec)
    (project / "train.py").write_text(TRAIN)
    (project / "requirements.in").write_text("torch==2.13.0\n")
    (project / "Dockerfile.cpu").write_text("FROM repro-base:bookworm\n")
    key, trust = make_keys(folder)
    succeed("lock", "-C", project)
    succeed("capture", "-C", project, "--key", key, "--runtime", "host", "--calibrate", "7")
    run = project / "manifests" / "tiny.cpu"
    manifest = parse_manifest((run / "manifest.json").read_bytes(), where="manifest.json")
    return Calibrated(project, run, trust, manifest, open_trace(run, manifest.phases))


def test_the_signed_manifest_states_the_calibration(calibrated: Calibrated) -> None:
    manifest = calibrated.manifest
    assert manifest.calibration is not None
    assert (manifest.calibration.runs, manifest.calibration.controls) == (7, 2)
    assert manifest.calibration.without_effect == ()
    asked = {phase.name: phase.perturbation for phase in manifest.phases}
    assert asked["full"] == {}
    assert asked["calibration/threads-1"] == {"OMP_NUM_THREADS": "2"}
    assert asked["calibration/weights-2"] == {"REPRO_PERTURB": "weights-2"}
    assert asked["control/data-1"] == {"REPRO_PERTURB": "data-1"}
    assert [phase.name for phase in manifest.ordinary] == ["full"]
    succeed("verify", calibrated.run, "--trust", calibrated.trust)


def test_every_perturbation_but_that_of_threads_changes_bits(calibrated: Calibrated) -> None:
    digests = {phase.name: [file.digest for file in phase.trace] for phase in calibrated.manifest.phases}
    others = [name for name in digests if "threads" not in name]
    assert len({tuple(digests[name]) for name in others}) == len(others) == 9


def test_another_order_of_the_same_sums_is_within_tolerance(calibrated: Calibrated, tmp_path: Path) -> None:
    verdict = calibrated.verdict(tmp_path, "model(values) * scale", "(model(values) / 3) * (3 * scale)")
    assert verdict.outcome == Outcome.WITHIN_TOLERANCE, verdict.sentence
    assert verdict.kind == "within-envelope"


def test_a_scale_off_by_a_thousandth_is_not(calibrated: Calibrated, tmp_path: Path) -> None:
    verdict = calibrated.verdict(tmp_path, "scale = 1.0", "scale = 1.001")
    assert verdict.outcome == Outcome.DIVERGED, verdict.sentence
    assert verdict.kind == "envelope-exceeded"
