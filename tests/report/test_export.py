from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from repro.cli.export import command
from repro.digest import Digest, digest_bytes, hex_of, pretty_json
from repro.errors import CompareError, LockError, TrustError
from repro.lock import FileLock, Lock
from repro.manifest import Manifest
from repro.report.export.cyclonedx import cyclonedx_json
from repro.report.export.result import result_statement
from repro.report.export.slsa import slsa_statement
from repro.verdict import Compared, Outcome
from tests.report.report_world import HOSTILE, artifact, host, lock, manifest, sha, verdict

GOLDEN = Path(__file__).parent.parent / "attest" / "goldens" / "v1"
DIGEST = Digest(sha("manifest"))


def bom(made: Manifest | None = None, locked: Lock | None = None) -> dict[str, Any]:
    """Write a bill of materials, hold it against the schema, and read it."""
    text = cyclonedx_json(made or manifest(), DIGEST, locked or lock())
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is None
    tree: dict[str, Any] = json.loads(text)
    return tree


def component(tree: dict[str, Any], ref: str) -> dict[str, Any]:
    found: dict[str, Any] = next(one for one in tree["components"] if one["bom-ref"] == ref)
    return found


def test_the_schema_would_notice() -> None:
    text = cyclonedx_json(manifest(), DIGEST, lock()).replace('"library"', '"librarie"')
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(text) is not None


def test_packages_carry_their_wheels_hashes() -> None:
    torch = component(bom(), "package/torch")
    assert torch["hashes"] == [{"alg": "SHA-256", "content": hex_of(sha("torch"))}]
    assert torch["purl"].startswith("pkg:pypi/torch@2.9.0?")


def test_models_and_data_sets_are_components_of_their_own_kind() -> None:
    tree = bom()
    model = component(tree, "machine-learning-model/small")
    assert (model["type"], model["version"]) == ("machine-learning-model", "c" * 40)
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    assert [file["hashes"][0]["content"] for file in model["components"]] == [
        hex_of(sha("small/a.bin")),
        hex_of(sha("small/b.bin")),
    ]
    assert "hashes" not in model, "a digest over a list of files is no hash of bytes"
    assert component(tree, "data/corpus")["type"] == "data"


def test_a_model_of_one_file_has_its_hash_and_hub_models_their_address() -> None:
    one = FileLock(path="w.bin", size=1, digest=sha("w"))
    models = (artifact("org/model", "hub", commit="a" * 40, files=(one,), licence="My own words"),)
    model = component(bom(locked=lock(models=models)), "machine-learning-model/org/model")
    assert model["hashes"][0]["content"] == hex_of(sha("w"))
    assert model["purl"] == f"pkg:huggingface/org/model@{'a' * 40}"
    assert model["licenses"] == [{"license": {"name": "My own words"}}]


def test_the_image_needs_base_and_packages() -> None:
    tree = bom()
    needs = {one["ref"]: one.get("dependsOn", []) for one in tree["dependencies"]}
    assert needs["image"] == ["base", "package/numpy", "package/torch"]
    assert "image" in needs["run"]
    assert component(tree, "image")["hashes"][0]["content"] == hex_of(sha("image manifest"))
    assert component(tree, "driver/nvidia")["version"] == "550.54.15"


def test_without_an_image_the_run_needs_the_packages() -> None:
    tree = bom(manifest(image=None, runtime="host"))
    needs = {one["ref"]: one.get("dependsOn", []) for one in tree["dependencies"]}
    assert {"base", "package/torch"} <= set(needs["run"])


def test_one_run_gives_one_document() -> None:
    assert cyclonedx_json(manifest(), DIGEST, lock()) == cyclonedx_json(manifest(), DIGEST, lock())
    assert bom()["metadata"]["timestamp"] == "2026-11-30T10:05:00+00:00"


def test_a_strangers_names_still_make_a_valid_document() -> None:
    locked = lock(datasets=(artifact(HOSTILE, "path", requested=HOSTILE, licence=HOSTILE),))
    assert bom(manifest(project=HOSTILE, run_id=HOSTILE), locked)["metadata"]["component"]["name"] == HOSTILE


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(TrustError, match="no time"):
        cyclonedx_json(manifest(created_at="yesterday"), DIGEST, lock())


def check_statement(tree: dict[str, Any], predicate_type: str) -> None:
    """What in-toto asks of every statement."""
    assert tree["_type"] == "https://in-toto.io/Statement/v1"
    assert tree["predicateType"] == predicate_type
    names = [subject["name"] for subject in tree["subject"]]
    assert names[0] == "manifest.json"
    assert len(set(names)) == len(names)
    assert all(len(subject["digest"]["sha256"]) == 64 for subject in tree["subject"])


def test_provenance_names_what_was_asked_used_and_made() -> None:
    tree = slsa_statement(manifest(), DIGEST, lock())
    check_statement(tree, "https://slsa.dev/provenance/v1")
    definition, details = tree["predicate"]["buildDefinition"], tree["predicate"]["runDetails"]
    assert set(definition) == {
        "buildType",
        "externalParameters",
        "internalParameters",
        "resolvedDependencies",
    }
    assert definition["buildType"] == "https://repro-manifest/capture/v1"
    assert definition["externalParameters"]["commands"]["full"] == ["torchrun", "train.py"]
    used = definition["resolvedDependencies"]
    assert {"name": "small", "uri": "small", "digest": {"gitCommit": "c" * 40}} in used
    assert {"torch-2.9.0-py3-none-any.whl", "train.py", "base", "corpus/corpus/a.bin"} <= {
        one["name"] for one in used
    }
    assert all(one["digest"] for one in used)
    assert details["builder"]["id"]
    assert details["metadata"] == {
        "invocationId": "0123456789abcdef",
        "startedOn": "2026-11-30T10:00:00Z",
        "finishedOn": "2026-11-30T10:05:00Z",
    }
    made = {subject["name"] for subject in tree["subject"]}
    assert {"pilot-cuda", "trace/full/rank-0.jsonl", "out/checkpoint.pt"} <= made


def test_a_replay_is_a_test_result() -> None:
    tree = result_statement(manifest(), DIGEST, verdict())
    check_statement(tree, "https://in-toto.io/attestation/test-result/v0.1")
    assert tree["predicate"]["result"] == "FAILED"
    assert tree["predicate"]["failedTests"] == ["replay.verdict", "replay.full.grads"]
    assert tree["predicate"]["passedTests"] == ["replay.full.loss"]
    assert [one["name"] for one in tree["predicate"]["configuration"]] == ["repro.yaml", "repro.lock"]


def test_notes_are_warnings_and_what_was_not_asked_is_not_claimed() -> None:
    compared = Compared(
        phases=("full",), ranks=1, steps=1, observables=("loss", "rng"), not_enforced=("rng",)
    )
    same = verdict(Outcome.BITWISE, compared=compared)
    passed = result_statement(manifest(), DIGEST, same)["predicate"]
    assert (passed["result"], passed["passedTests"]) == ("PASSED", ["replay.verdict", "replay.full.loss"])
    noted = same.model_copy(update={"notes": ("rng was not asked for",)})
    warned = result_statement(manifest(), DIGEST, noted)["predicate"]
    assert (warned["result"], warned["warnedTests"]) == ("WARNED", ["replay.verdict"])


def test_what_could_not_be_told_is_no_test_result() -> None:
    with pytest.raises(CompareError) as caught:
        result_statement(manifest(), DIGEST, verdict(Outcome.INCOMPARABLE, kind="did-not-run"))
    assert caught.value.kind == "no-test-result"


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    folder.mkdir()
    data = pretty_json(lock().tree())
    (folder / "repro.lock").write_bytes(data)
    locked = FileLock(path="repro.lock", size=len(data), digest=digest_bytes(data))
    (folder / "manifest.json").write_bytes(pretty_json(manifest(lock=locked).tree()))
    (folder / "verdict.json").write_bytes(pretty_json(verdict().tree()))
    return folder


def export(*arguments: str | Path) -> Result:
    return CliRunner().invoke(command, [str(one) for one in arguments], standalone_mode=False)


def test_the_command_writes_each_format(run: Path, tmp_path: Path) -> None:
    digest = hex_of(digest_bytes((run / "manifest.json").read_bytes()))
    for form, more in (("slsa", ()), ("test-result", ("--replay", run / "verdict.json"))):
        result = export(run, "--format", form, *more)
        assert result.exception is None
        assert json.loads(result.stdout)["subject"][0]["digest"]["sha256"] == digest
    result = export(run, "--format", "cyclonedx", "-o", tmp_path / "bom.json")
    assert result.exception is None
    assert json.loads((tmp_path / "bom.json").read_bytes())["bomFormat"] == "CycloneDX"


def test_a_test_result_needs_a_replay_and_others_have_none(run: Path) -> None:
    for arguments in (("test-result",), ("slsa", "--replay", run / "verdict.json")):
        assert "belong together" in str(export(run, "--format", *arguments).exception)


def test_a_lock_of_another_accelerator_is_refused(run: Path) -> None:
    tree = json.loads((run / "manifest.json").read_bytes())
    (run / "manifest.json").write_bytes(pretty_json({**tree, "accelerator": "rocm"}))
    assert isinstance(export(run, "--format", "slsa").exception, LockError)


@pytest.mark.skipif(not GOLDEN.exists(), reason="the golden run is not there")
def test_with_a_policy_only_a_verified_run_is_handed_on(run: Path) -> None:
    policy = ("--trust", GOLDEN / "trust" / "trust.yaml", "--format", "slsa")
    good = export(GOLDEN / "run", *policy)
    assert good.return_value == 0
    assert json.loads(good.stdout)["subject"]
    bad = export(run, *policy)
    assert bad.return_value == 3
    assert bad.stdout == ""


def test_what_is_unknown_is_left_out() -> None:
    tree = bom(manifest(host=host(driver=host().driver.model_copy(update={"nvidia": None}))))
    assert not [one for one in tree["components"] if one["type"] == "device-driver"]
