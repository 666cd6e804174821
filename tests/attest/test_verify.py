"""The verdict as a value, what it costs, and how it is made without this project."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import repro
from repro.attest.verify import verify
from repro.cli.verifying import read_trust
from repro.digest import Digest, digest_bytes
from repro.manifest import VerifiedManifest
from repro.statement import parse_run_statement, run_statement
from tests.attest.attest_memory import MemoryFolder
from tests.attest.attest_world import NOW, World, public_pem

CHECKS = [
    "trust policy",
    "signatures",
    "signers",
    "statement",
    "roll-back",
    "time",
    "files",
    "manifest",
    "lock",
    "traces",
    "image",
    "models",
    "data sets",
    "unsigned files",
    "replays",
]


def test_every_check_is_said(world: World) -> None:
    got = world.verify()
    assert got.verdict == "VERIFIED"
    assert got.code is None
    assert [check.name for check in got.checks] == CHECKS
    assert [check.number for check in got.checks] == list(range(1, 16))
    unasked = [check.name for check in got.checks if check.state == "not-made"]
    assert unasked == ["image", "models", "data sets", "replays"]
    assert not any(check.wanted for check in got.checks if check.state == "not-made")
    assert (got.project, got.sequence, got.principals) == ("pilot", 7, ("train",))
    assert got.payload_digest == digest_bytes(world.payload())
    assert got.signatures[0].fingerprint == world.signers["train"].fingerprint


def test_what_comes_after_a_failure_is_not_made(world: World) -> None:
    (world.run / "repro.lock").write_bytes(b"{}")
    got = world.verify()
    assert [check.state for check in got.checks[:7]] == ["passed"] * 6 + ["failed"]
    assert {check.state for check in got.checks[7:]} == {"not-made"}
    assert all(check.detail == "check 7 did not pass" for check in got.checks[7:])


def test_the_tree_is_json_and_says_everything(world: World) -> None:
    world.demand_replay()
    world.replay()
    tree = world.verify().tree()
    assert json.loads(json.dumps(tree)) == json.loads(json.dumps(tree))
    assert set(tree) == {
        "verdict",
        "code",
        "checks",
        "signatures",
        "replays",
        "principals",
        "project",
        "run_id",
        "sequence",
        "payload_digest",
        "unsigned",
        "warnings",
    }
    assert tree["checks"][0] == {
        "number": 1,
        "name": "trust policy",
        "state": "passed",
        "detail": "version 1: 1 of train, lab must sign",
        "code": None,
        "wanted": True,
    }


def test_only_verification_makes_a_verified_manifest(world: World) -> None:
    got = world.verify().manifest
    assert got is not None
    assert got.manifest.project == "pilot"
    assert got.principals == ("train",)
    with pytest.raises(TypeError, match="only"):
        VerifiedManifest(got.manifest, got.payload_digest, got.principals, got.folder, object())


def test_co_signers_sign_one_payload(world: World) -> None:
    assert world.payload() == world.payload()
    statement = parse_run_statement(world.payload(), where="x")
    assert [file.role for file in statement.predicate.files] == [
        "manifest",
        "spec",
        "lock",
        "packages",
        "packages",
        "trace",
    ]
    assert {entry.uri for entry in statement.predicate.inputs} == {"docker://base:1", "dataset:corpus"}
    assert (
        world.payload()
        == json.dumps(
            json.loads(world.payload()), sort_keys=True, separators=(",", ":"), ensure_ascii=False
        ).encode()
    )


def test_an_image_has_a_name_and_a_digest_or_neither(world: World) -> None:
    predicate = parse_run_statement(world.payload(), where="x").predicate
    digests = [digest_bytes(b"x")] * len(predicate.files)
    with pytest.raises(ValueError, match="both a name and a digest"):
        run_statement(predicate, digests, None)


def test_13_the_identity_is_the_payload_not_the_bundle(world: World) -> None:
    before = (world.run / "train.sigstore.json").read_bytes()
    identity = world.verify().payload_digest
    world.sign()
    assert (world.run / "train.sigstore.json").read_bytes() != before
    assert world.verify().payload_digest == identity


SCRIPT = """
import sys
from datetime import UTC, datetime
from pathlib import Path
from repro.adapters.runfolder import DiskRunFolder
from repro.attest.verify import verify
from repro.cli.verifying import read_trust
run, trust = (Path(argument) for argument in sys.argv[1:])
got = verify(DiskRunFolder(run), read_trust(trust), now=datetime(2026, 12, 1, tzinfo=UTC))
print(got.verdict, *sorted(sys.modules))
"""


def in_a_fresh_process(world: World, *flags: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, *flags, "-c", SCRIPT, str(world.run), str(world.write_policy())],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(repro.__file__).parents[1])},
    )
    return done.stdout.split()


def test_verifying_imports_no_torch_no_docker_no_network(world: World) -> None:
    verdict, *modules = in_a_fresh_process(world)
    assert verdict == "VERIFIED"
    for heavy in (
        "torch",
        "numpy",
        "docker",
        "requests",
        "urllib3",
        "http.client",
        "ssl",
        "subprocess",
        "asyncio",
        "rfc3161_client",
        "cryptography.x509",
        "repro.recorder",
    ):
        assert heavy not in modules, heavy


@pytest.mark.parametrize("flag", ["-O", "-OO"])
def test_71_no_check_is_an_assertion(world: World, flag: str) -> None:
    assert in_a_fresh_process(world, flag)[0] == "VERIFIED"
    path = world.run / "repro.lock"
    path.write_bytes(path.read_bytes() + b" ")
    assert in_a_fresh_process(world, flag)[0] == "REJECTED"


def test_openssl_alone_can_check_a_signature(world: World, tmp_path: Path) -> None:
    """The way of `docs/audit.md`, with openssl for the signature and a few lines for the encoding."""
    bundle = json.loads((world.run / "train.sigstore.json").read_bytes())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    kind = bundle["dsseEnvelope"]["payloadType"].encode()
    (tmp_path / "pae").write_bytes(b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(bundle["dsseEnvelope"]["signatures"][0]["sig"]))
    (tmp_path / "pub").write_bytes(public_pem(world.signers["train"]))
    command = ["openssl", "dgst", "-sha256", "-verify", "pub", "-signature", "sig", "pae"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "Verified OK"
    (tmp_path / "pae").write_bytes(b"DSSEv1" + payload)
    assert subprocess.run(command, cwd=tmp_path, capture_output=True).returncode == 1


def test_openssl_alone_can_check_an_ed25519_signature(world: World, tmp_path: Path) -> None:
    world.sign("lab")
    bundle = json.loads((world.run / "lab.sigstore.json").read_bytes())
    payload = base64.b64decode(bundle["dsseEnvelope"]["payload"])
    (tmp_path / "pae").write_bytes(b"DSSEv1 28 application/vnd.in-toto+json %d %s" % (len(payload), payload))
    (tmp_path / "sig").write_bytes(base64.b64decode(bundle["dsseEnvelope"]["signatures"][0]["sig"]))
    (tmp_path / "pub").write_bytes(public_pem(world.signers["lab"]))
    done = subprocess.run(
        [
            "openssl",
            "pkeyutl",
            "-verify",
            "-pubin",
            "-inkey",
            "pub",
            "-rawin",
            "-in",
            "pae",
            "-sigfile",
            "sig",
        ],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "Successfully" in done.stdout


def test_now_is_the_callers(world: World) -> None:
    assert world.verify(now=NOW.replace(year=2028)).code == "E_TRUST"


class Changing(MemoryFolder):
    """A folder whose owner changes every file right after it was read."""

    def __init__(self, files: dict[str, bytes]) -> None:
        super().__init__(files)
        self.reads: list[str] = []

    def read(self, name: str, *, limit: int) -> bytes:
        self.reads.append(name)
        data = super().read(name, limit=limit)
        self.files = {**self.files, name: b"changed"}
        return data

    def digest(self, name: str) -> tuple[Digest, int]:
        data = self.files[name]
        return digest_bytes(data), len(data)


def test_39_what_was_hashed_is_what_is_parsed(world: World) -> None:
    folder = Changing(MemoryFolder.of(world.run).files)
    got = verify(folder, read_trust(world.write_policy()), now=NOW)
    assert got.verdict == "VERIFIED"
    assert len(folder.reads) == len(set(folder.reads))
    assert {"manifest.json", "repro.lock", "repro.yaml", "trace/full/rank-0.jsonl"} <= set(folder.reads)
