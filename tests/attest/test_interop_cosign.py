"""Cosign verifies what we sign, and we verify what cosign signs. Both majors."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from repro.adapters.cosignkey import seal_cosign_key
from repro.adapters.keys import load_signer
from repro.statement import REPLAY_TYPE, RUN_TYPE
from tests.attest.attest_world import World, new_signer, public_pem
from tests.attest.cosign_tool import find_cosign

pytestmark = pytest.mark.interop

EMPTY_ROOT = {"mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1"}


class Cosign:
    def __init__(self, program: Path, folder: Path) -> None:
        self.program, self.folder = program, folder
        (folder / "root.json").write_text(json.dumps(EMPTY_ROOT))
        said = self.run("version").stdout
        found = re.search(r"GitVersion:\s+v?(\d+)", said)
        self.major = int(found[1]) if found else 2

    def run(self, *arguments: object) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(self.folder),
            "COSIGN_PASSWORD": "secret",
            "HTTPS_PROXY": "http://127.0.0.1:9",
            "HTTP_PROXY": "http://127.0.0.1:9",
        }
        command = [str(self.program), *map(str, arguments)]
        return subprocess.run(
            command, cwd=self.folder, env=environment, capture_output=True, text=True, timeout=120
        )

    def verifies(self, key: Path, bundle: Path, blob: Path, kind: str = RUN_TYPE) -> bool:
        """The command of `docs/audit.md`, in the form that both majors take."""
        flags = ("--new-bundle-format", "--trusted-root", "root.json", "--insecure-ignore-tlog")
        done = self.run(
            "verify-blob-attestation", "--key", key, *flags, "--type", kind, "--bundle", bundle, blob
        )
        return done.returncode == 0


@pytest.fixture(scope="module", params=["trixie", "sid"])
def program(request: pytest.FixtureRequest) -> Path:
    found, reason = find_cosign(request.param)
    if found is None:
        pytest.skip(reason)
    return found


@pytest.fixture
def cosign(program: Path, tmp_path: Path) -> Cosign:
    folder = tmp_path / "cosign"
    folder.mkdir()
    return Cosign(program, folder)


@pytest.mark.parametrize("name", ["train", "lab"])
def test_cosign_verifies_our_runs(world: World, cosign: Cosign, tmp_path: Path, name: str) -> None:
    bundle = world.sign(name)
    key = tmp_path / "key.pub"
    key.write_bytes(public_pem(world.signers[name]))
    assert cosign.verifies(key, bundle, world.run / "manifest.json")
    assert cosign.verifies(key, bundle, world.run / "repro.lock")
    key.write_bytes(public_pem(world.signers["stranger"]))
    assert not cosign.verifies(key, bundle, world.run / "manifest.json")


def test_cosign_refuses_what_was_tampered_with(world: World, cosign: Cosign, tmp_path: Path) -> None:
    key = tmp_path / "key.pub"
    key.write_bytes(public_pem(world.signers["train"]))
    manifest = world.run / "manifest.json"
    manifest.write_bytes(manifest.read_bytes() + b"\n")
    assert not cosign.verifies(key, world.run / "train.sigstore.json", manifest)


def test_cosign_verifies_our_replays(world: World, cosign: Cosign, tmp_path: Path) -> None:
    bundle = world.replay()
    key, payload = tmp_path / "key.pub", tmp_path / "run.statement.json"
    key.write_bytes(public_pem(world.signers["auditor"]))
    payload.write_bytes(world.payload())
    assert cosign.verifies(key, bundle, payload, REPLAY_TYPE)
    assert cosign.verifies(key, bundle, world.run / "manifest.json", REPLAY_TYPE)
    if cosign.major >= 3:
        assert not cosign.verifies(key, bundle, payload, RUN_TYPE)


def test_cosign_signs_our_statement_and_we_verify_it(world: World, cosign: Cosign) -> None:
    """The way for keys that only cosign can reach: repro prints the statement, cosign signs it."""
    if cosign.major < 3:
        pytest.skip("cosign 2.5 has no --statement")
    assert cosign.run("generate-key-pair").returncode == 0
    assert cosign.run("signing-config", "create", "--out", "empty.json").returncode == 0
    (cosign.folder / "statement.json").write_bytes(world.payload())
    done = cosign.run(
        *("attest-blob", "--key", "cosign.key", "--statement", "statement.json"),
        *("--signing-config", "empty.json", "--bundle", world.run / "train.sigstore.json", "-y"),
    )
    assert done.returncode == 0, done.stderr
    world.signers["train"] = load_signer(cosign.folder / "cosign.key", lambda: b"secret")
    world.policy["keys"][0] = world.entry("train")
    assert world.verify().verdict == "VERIFIED"


def test_cosign_signs_with_a_key_that_we_export(cosign: Cosign) -> None:
    signer = new_signer()
    der = signer._key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    (cosign.folder / "ours.key").write_bytes(seal_cosign_key(der, b"secret"))
    done = cosign.run("public-key", "--key", "ours.key")
    assert done.returncode == 0, done.stderr
    assert done.stdout.encode().strip() == public_pem(signer).strip()


def test_we_sign_with_a_key_that_cosign_made(world: World, cosign: Cosign) -> None:
    assert cosign.run("generate-key-pair").returncode == 0
    signer = load_signer(cosign.folder / "cosign.key", lambda: b"secret")
    assert (cosign.folder / "cosign.pub").read_bytes().strip() == public_pem(signer).strip()
    world.signers["train"] = signer
    bundle = world.sign("train")
    assert cosign.verifies(cosign.folder / "cosign.pub", bundle, world.run / "manifest.json")
