"""The commands of `docs/audit.md` that need only openssl, jq and sha256sum, run as they stand there."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.attest.attest_world import World, public_pem

PAGE = Path(__file__).parents[2] / "docs" / "audit.md"

pytestmark = pytest.mark.skipif(
    not all(map(shutil.which, ("jq", "openssl", "sha256sum"))), reason="needs jq, openssl and sha256sum"
)


def audit(world: World, folder: Path, signer: str = "train") -> subprocess.CompletedProcess[str]:
    folder.mkdir(exist_ok=True)
    (folder / "key.pub").write_bytes(public_pem(world.signers[signer]))
    blocks = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    environment = {
        "PATH": "/usr/bin:/bin",
        "RUN": str(world.run),
        "KEY": "key.pub",
        "BUNDLE": str(world.run / "train.sigstore.json"),
    }
    script = "set -euo pipefail\n" + "\n".join(blocks)
    return subprocess.run(["bash", "-c", script], cwd=folder, env=environment, capture_output=True, text=True)


def test_an_honest_run_passes(world: World, tmp_path: Path) -> None:
    done = audit(world, tmp_path / "audit")
    assert done.returncode == 0, done.stderr
    assert world.signers["train"].fingerprint.removeprefix("sha256:") in done.stdout
    assert "Verified OK" in done.stdout
    assert done.stdout.count(": OK") == 6


def test_a_changed_file_fails(world: World, tmp_path: Path) -> None:
    (world.run / "repro.lock").write_bytes(b"{}")
    assert audit(world, tmp_path / "audit").returncode != 0


def test_another_key_fails(world: World, tmp_path: Path) -> None:
    assert audit(world, tmp_path / "audit", "stranger").returncode != 0
