"""What released versions wrote is verified for ever, and what we write today does not change unawares."""

from __future__ import annotations

from pathlib import Path

import pytest

from repro.adapters.runfolder import DiskRunFolder
from repro.attest.envelope import open_bundle
from repro.attest.sign import run_payload, sign
from repro.attest.verify import verify
from repro.cli.verifying import read_trust
from tests.attest import goldens
from tests.attest.attest_world import NOW

VERSIONS = sorted(path.name for path in goldens.FOLDER.parent.iterdir())


@pytest.mark.parametrize("version", VERSIONS)
def test_every_version_is_still_verified(version: str) -> None:
    folder = goldens.FOLDER.parent / version
    got = verify(DiskRunFolder(folder / "run"), read_trust(folder / "trust/trust.yaml"), now=NOW)
    assert got.verdict == "VERIFIED", got.checks
    assert got.principals == ("lab", "train")
    assert got.replays[0].counts


def test_this_version_writes_the_same_bytes(tmp_path: Path) -> None:
    """Ed25519 signs one payload to one signature; ECDSA does not, so there the payloads are compared."""
    made = goldens.world(tmp_path)
    run = goldens.FOLDER / "run"
    for name, data in made.files.items():
        assert (run / name).read_bytes() == data, f"{name}: see goldens.py"
    payload = run_payload((run / "manifest.json").read_bytes())
    bundle = (run / "train.sigstore.json").read_bytes()
    assert open_bundle(bundle, where="golden").payload == payload
    assert (run / "lab.sigstore.json").read_bytes() == sign(payload, made.signers["lab"])
