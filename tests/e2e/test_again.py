"""A replay that differs although nothing recorded does is run once more, and its spread is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.e2e.e2e_world import Signed, replace_once, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch]


def test_hidden_non_determinism_is_measured(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    noise = " + int.from_bytes(os.urandom(1)) * 1e-6"
    replace_once(
        project / "train.py",
        "self.loss(next(self.stream)) / parts",
        f"self.loss(next(self.stream)) / parts{noise}",
    )
    text = (project / "repro.yaml").read_text()
    text = text.replace("record: {every: 1}", "record: {every: 1, modules: [1]}")
    (project / "repro.yaml").write_text(re.sub(r"\n  (resume|checkpoint):[^\n]*", "", text))
    succeed("lock", "-C", project)
    succeed("capture", "-C", project, "--key", signed.key, "--out", tmp_path / "runs")
    run = tmp_path / "runs" / "pilot.cpu"
    result = repro("replay", run, "--trust", signed.trust, "-C", project, "--localize", "--json")
    verdict = json.loads(result.stdout)["verdict"]
    assert (result.returncode, verdict["outcome"], verdict["explanations"]) == (3, "DIVERGED", [])
    (note,) = (note for note in verdict["notes"] if note.startswith("Hidden non-determinism"))
    assert "the candidate differs from itself: the loss by up to " in note
    assert verdict["notes"][0].startswith("In step 1 every module returns the same")
