"""Libraries of others verify what we sign: `@sigstore/verify` of npm, and securesystemslib of Python."""

from __future__ import annotations

import base64
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
from securesystemslib.dsse import Envelope
from securesystemslib.exceptions import VerificationError
from securesystemslib.signer import Key, SSlibKey

from tests.attest.attest_world import World, public_pem

SCRIPT = Path(__file__).parent / "interop.mjs"
MODULES = Path(__file__).parents[2] / ".cache" / "interop" / "npm"


def tampered(bundle: Path, folder: Path) -> Path:
    """The same bundle around another payload."""
    tree = json.loads(bundle.read_bytes())
    payload = base64.b64decode(tree["dsseEnvelope"]["payload"]).replace(b"repro", b"other")
    tree["dsseEnvelope"]["payload"] = base64.b64encode(payload).decode()
    path = folder / "tampered.json"
    path.write_text(json.dumps(tree))
    return path


@pytest.fixture(scope="session")
def modules() -> Path:
    """Where npm put `@sigstore/verify`, once."""
    if not all(map(shutil.which, ("node", "npm"))):
        pytest.skip("needs node and npm")
    if not (MODULES / "node_modules" / "@sigstore" / "verify").exists():
        MODULES.mkdir(parents=True, exist_ok=True)
        wanted = ("@sigstore/verify@3", "@sigstore/bundle@4")
        command = ["npm", "install", "--no-audit", "--no-fund", "--silent", *wanted]
        try:
            subprocess.run(command, cwd=MODULES, check=True, capture_output=True, timeout=120)
        except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
            pytest.skip(f"npm could not install @sigstore/verify: {type(error).__name__}")
    return MODULES


@pytest.mark.interop
@pytest.mark.parametrize("signer", ["train", "lab"])
def test_sigstore_js(world: World, modules: Path, tmp_path: Path, signer: str) -> None:
    key = tmp_path / "key.pub"
    key.write_bytes(public_pem(world.signers[signer]))
    own, other = world.sign(signer), world.sign("stranger")
    command = ["node", SCRIPT, modules, key, own, tampered(own, tmp_path), other]
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    assert [line.partition(" ")[0] for line in done.stdout.splitlines()] == ["ok", "no", "no"]


def library_key(world: World, name: str) -> Key:
    """A key without an id, as our envelopes name it."""
    known = SSlibKey.from_crypto(world.signers[name].public.handle)
    return SSlibKey("", known.keytype, known.scheme, known.keyval)


def envelope(bundle: Path) -> Envelope:
    tree: dict[str, Any] = json.loads(bundle.read_bytes())["dsseEnvelope"]
    return Envelope.from_dict(tree)


@pytest.mark.parametrize("signer", ["train", "lab", "auditor"])
def test_securesystemslib(world: World, tmp_path: Path, signer: str) -> None:
    bundle = world.replay() if signer == "auditor" else world.sign(signer)
    key, stranger = library_key(world, signer), library_key(world, "stranger")
    assert envelope(bundle).verify([key], 1)
    for keys, path in (([key], tampered(bundle, tmp_path)), ([stranger], bundle)):
        with pytest.raises(VerificationError):
            envelope(path).verify(keys, 1)
