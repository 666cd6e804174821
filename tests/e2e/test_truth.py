"""A replay tells the truth: the same is the same, and every change is found and named."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.e2e.e2e_world import Signed, replace_once, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch]


def test_the_run_verifies_and_says_what_was_not_checked(signed: Signed) -> None:
    result = repro("verify", signed.run, "--trust", signed.trust, "--json")
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["verdict"]) == (0, "VERIFIED")
    not_made = [check["name"] for check in answer["checks"] if check["state"] == "not-made"]
    assert not_made == ["image", "models", "data sets", "replays"]


def test_image_and_data_can_be_checked_too(signed: Signed, tmp_path: Path) -> None:
    command = ("verify", signed.run, "--trust", signed.trust, "--image", "engine", "--json", "--datasets")
    answer = json.loads(succeed(*command, signed.project))
    states = {check["name"]: check["state"] for check in answer["checks"]}
    assert (states["image"], states["data sets"]) == ("passed", "passed")
    changed = signed.copy(tmp_path / "changed")
    _flip(changed / "data" / "corpus.txt", 0)
    result = repro(*command, changed)
    answer = json.loads(result.stdout)
    assert (result.returncode, answer["verdict"], answer["code"]) == (3, "REJECTED", "E_INPUT")
    result = repro(*command, tmp_path / "changed" / "configs")
    assert (result.returncode, json.loads(result.stdout)["verdict"]) == (4, "INCOMPLETE")


def test_the_pilot_repeats_itself_and_resumes_exactly(signed: Signed) -> None:
    manifest = json.loads((signed.run / "manifest.json").read_text())
    assert manifest["reproduced_itself"]["outcome"] == "BITWISE"
    assert manifest["resumed_exactly"]["outcome"] == "BITWISE"
    assert [phase["name"] for phase in manifest["phases"]] == ["full", "interrupted", "resumed"]
    assert {phase["world_size"] for phase in manifest["phases"]} == {2}


def test_the_checkpoint_was_opened_elsewhere_and_listed(signed: Signed) -> None:
    manifest = json.loads((signed.run / "manifest.json").read_text())
    saved = manifest["checkpoint"]["saved"]
    assert saved["files"] == [{"path": "state.pt", "opened": "weights_only", "error": None}]
    status = {part["name"]: part["status"] for part in saved["parts"]}
    unneeded = {name for name, value in status.items() if value == "not-applicable"}
    assert unneeded == {"scaler", "rng.accelerators"}
    assert set(status.values()) == {"present", "not-applicable"}
    assert "holds model, optimizer, scheduler, step" in succeed("show", signed.run)


@pytest.mark.slow
def test_recording_is_proven_to_change_nothing_and_the_probe_is_recorded(signed: Signed) -> None:
    answer = json.loads(succeed("run", "-C", signed.project, "--prove", "--fp32-probe", "--json"))
    assert [phase["name"] for phase in answer["phases"]] == ["full", "bare", "probe/full"]
    proof = answer["proof"]
    assert (proof["proven"], proof["ranks"], proof["differing"], proof["unknown"]) == (True, 2, [], [])
    assert set(proof["compared"]) == {"parameters", "buffers and optimizer state", "generators"}
    assert (proof["files"], proof["files_differing"]) == (1, [])
    assert answer["measurements"][2]["ranks"][0]["steps"] == 6


def test_what_was_measured_is_shown(signed: Signed) -> None:
    measured = json.loads(succeed("show", signed.run, "--json"))["measurements"]
    assert [phase["phase"] for phase in measured] == ["full", "interrupted", "resumed"]
    full, _, resumed = measured
    assert full["parameters"] == full["ranks"][0]["parameters"] == full["ranks"][1]["parameters"]
    assert full["effective_batch"] == sum(rank["samples_per_step"] for rank in full["ranks"])
    assert resumed["ranks"][0]["checkpoint_restore_us"] > 0
    assert resumed["ranks"][0]["evaluations"] == 2, "once right after it was restored"


def test_the_same_is_bitwise_and_can_be_signed(signed: Signed, tmp_path: Path) -> None:
    succeed("keys", "new", tmp_path / "lab", "--no-passphrase")
    code, verdict = signed.replay(
        signed.project, "--sign", "--key", tmp_path / "lab.key", "--report", tmp_path / "summary.md"
    )
    assert (code, verdict["outcome"]) == (0, "BITWISE")
    assert "BITWISE" in (tmp_path / "summary.md").read_text()
    assert (signed.run / "replays" / "lab.sigstore.json").exists()


@pytest.mark.parametrize(
    ("old", "new", "kind", "observable"),
    [
        ("  lr: 0.0006", "  lr: 0.00060001", "hyper-parameters-differ", "hyper"),
        ("seed: 20261130", "seed: 20261131", None, None),
    ],
    ids=["learning rate", "seed"],
)
def test_a_changed_setting_is_found(
    signed: Signed, tmp_path: Path, old: str, new: str, kind: str | None, observable: str | None
) -> None:
    project = signed.copy(tmp_path / "changed")
    replace_once(project / "configs" / "pilot.yaml", old, new)
    succeed("lock", "-C", project)
    code, verdict = signed.replay(project, "--current")
    assert (code, verdict["outcome"]) == (3, "DIVERGED")
    first = verdict["first_divergence"]
    assert first["phase"] == "full"
    assert first["step"] <= 1
    if kind and observable:
        assert verdict["kind"] == kind
        assert first["observable"].startswith(observable)
    assert any("configs/pilot.yaml" in one["sentence"] for one in verdict["explanations"])


def test_a_changed_package_is_no_replay_of_what_was_signed(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    locked = json.loads((project / "repro.lock").read_text())
    files = locked["accelerators"]["cpu"]["packages"]["files"]
    signed_version = next(file["version"] for file in files if file["name"] == "pyyaml")
    replace_once(project / "requirements.in", "pyyaml", f"pyyaml!={signed_version}")
    succeed("lock", "-C", project)
    code, verdict = signed.replay(project, "--current")
    assert verdict["outcome"] in ("INCOMPARABLE", "DIVERGED")
    assert code in (3, 4)
    first = verdict["explanations"][0]
    assert (first["category"], first["name"]) == ("packages", "pyyaml")
    assert signed_version in first["target"]


def test_one_changed_byte_of_data_is_refused_before_anything_runs(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    _flip(project / "data" / "corpus.txt", 0)
    result = repro("replay", signed.run, "--trust", signed.trust, "-C", project)
    assert result.returncode == 1
    assert "error[artifact-differs]" in result.stderr
    assert "corpus" in result.stderr


def test_one_changed_byte_of_data_is_found_where_it_was_locked_again(signed: Signed, tmp_path: Path) -> None:
    project = signed.copy(tmp_path / "changed")
    _flip(project / "data" / "corpus.txt", 0)
    succeed("lock", "-C", project)
    code, verdict = signed.replay(project, "--current")
    assert (code, verdict["outcome"]) == (3, "DIVERGED")
    assert verdict["kind"] == "inputs-differ"
    assert verdict["explanations"][0]["category"] == "data"


def _flip(path: Path, at: int) -> None:
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(bytes(data))


@pytest.mark.slow
def test_a_rebuild_from_the_signed_lock_is_the_image_that_was_signed(signed: Signed) -> None:
    command = ("build", "-C", signed.project, "--check", "--against", signed.run, "--trust", signed.trust)
    answer = json.loads(succeed(*command, "--json"))
    assert (answer["same"], answer["holds"], answer["signed"], answer["differences"]) == (
        True,
        True,
        True,
        None,
    )
    assert "as it was signed" in succeed(*command)
