"""Write the signed run that later versions must still verify.

    python -m tests.attest.goldens

A folder that belongs to a released version is never written again: change
VERSION with the format.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, derive_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from repro.adapters.keys import FileSigner
from repro.attest.publickey import public_key
from tests.attest.attest_world import World

VERSION = "v1"
FOLDER = Path(__file__).parent / "goldens" / VERSION


def signers() -> dict[str, FileSigner]:
    """Keys that everybody knows, so that nobody may trust them."""
    p256 = {name: derive_private_key(number, SECP256R1()) for number, name in ((1, "train"), (2, "auditor"))}
    keys: dict[str, Any] = {**p256, "lab": Ed25519PrivateKey.from_private_bytes(b"\1" * 32)}
    return {
        name: FileSigner(key, public_key(key.public_key(), where=name), None) for name, key in keys.items()
    }


def world(root: Path) -> World:
    made = World(root, signers())
    for entry in made.policy["keys"]:
        del entry["notBefore"], entry["notAfter"]
    del made.policy["expires"]
    made.policy["rules"][0]["threshold"] = 2
    made.demand_replay()
    return made


def main() -> None:
    shutil.rmtree(FOLDER, ignore_errors=True)
    made = world(FOLDER)
    made.sign("train")
    made.sign("lab")
    made.replay()
    made.write_policy()


if __name__ == "__main__":
    main()
