"""A replay that diverges names the module in which it does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.e2e_world import Signed, replace_once, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch]


def test_the_first_module_that_departs_is_named(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    norm = "self.forward_norm = nn.LayerNorm(width"
    replace_once(project / "train.py", f"{norm})", f"{norm}, eps=1e-4)")
    succeed("lock", "-C", project)
    code, verdict = signed.replay(project, "--current", "--localize")
    assert (code, verdict["outcome"]) == (3, "DIVERGED")
    located = verdict["located"]
    assert (located["step"], located["direction"]) == (1, "forward")
    assert located["module"] == "blocks.0.forward_norm"
    assert located["sentence"] in verdict["notes"]


@pytest.mark.slow
def test_what_no_module_shows_is_said(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    replace_once(project / "configs" / "pilot.yaml", "  lr: 0.0006", "  lr: 0.00060001")
    succeed("lock", "-C", project)
    code, verdict = signed.replay(project, "--current", "--localize")
    assert (code, verdict["located"]) == (3, None)
    assert verdict["notes"][0].startswith("In step 1 every module returns the same, forward and backward")


@pytest.mark.slow
def test_where_nothing_diverges_nothing_is_run_again(signed: Signed) -> None:
    result = repro(
        "replay", signed.run, "--trust", signed.trust, "-C", signed.project, "--localize", "--json"
    )
    verdict = json.loads(result.stdout)["verdict"]
    assert (result.returncode, verdict["outcome"], verdict["located"]) == (0, "BITWISE", None)
    assert verdict["notes"][0] == "Nothing to localize: the replay does not diverge."
