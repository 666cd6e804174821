"""Feed mutated run folders to the verifier with atheris: `python tests/fuzz/fuzz_verify.py -runs=1000000`.

Needs the package `atheris`; options are libFuzzer's. The first byte of an input chooses what it becomes:
a bundle, a replay's bundle, a payload that a trusted key signs, a signed manifest, the trust policy or a key.
Whatever arrives, a verdict or a named error must come out. `tests/attest/test_fuzz.py` does the same with
hypothesis, in every run of the tests.
"""

from __future__ import annotations

import hashlib
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import atheris

sys.path.insert(0, str(Path(__file__).parents[2]))
with atheris.instrument_imports(include=["repro"]):
    from repro.attest.envelope import open_bundle, seal
    from repro.attest.publickey import load_public_key
    from repro.attest.verify import verify
    from repro.cli.verifying import read_trust
    from repro.digest import canonical_json
    from repro.errors import ReproError
    from repro.trust import parse_policy

from tests.attest.attest_memory import MemoryFolder
from tests.attest.attest_world import NOW, World

BUNDLE, REPLAY = "train.sigstore.json", "replays/auditor.sigstore.json"


class Target:
    """One signed run, and the ways in which a stranger's bytes reach the verifier."""

    def __init__(self, root: Path) -> None:
        world = World(root)
        world.demand_replay()
        world.sign()
        world.replay()
        self.signer = world.signers["train"]
        self.statement = world.statement()
        self.folder, self.policy = MemoryFolder.of(world.run), world.write_policy()
        self.trust = read_trust(self.policy)
        self.seeds = self._seeds(world)

    def _seeds(self, world: World) -> list[bytes]:
        payload = open_bundle(self.folder.files[BUNDLE], where="seed").payload
        files = self.folder.files
        pem = (world.trust / "keys" / "train.pub").read_bytes()
        signed = (files[BUNDLE], files[REPLAY], payload, files["manifest.json"])
        contents = (*signed, self.policy.read_bytes(), pem)
        return [bytes([kind]) + data for kind, data in enumerate(contents)]

    def settle(self, files: dict[str, bytes]) -> None:
        got = verify(MemoryFolder({**self.folder.files, **files}), self.trust, now=NOW)
        if (got.verdict == "VERIFIED") != (got.manifest is not None):
            raise AssertionError(got)
        if (got.verdict == "REJECTED") != (got.code is not None):
            raise AssertionError(got)
        json.dumps(got.tree())

    def signed(self, payload: bytes) -> bytes:
        from repro.attest.dsse import pae

        message = pae("application/vnd.in-toto+json", payload)
        return seal(payload, self.signer.sign(message), signer="hint")

    def manifest(self, data: bytes) -> None:
        statement: Any = json.loads(canonical_json(self.statement))
        statement["subject"][0]["digest"]["sha256"] = hashlib.sha256(data).hexdigest()
        statement["predicate"]["files"][0]["size"] = len(data)
        self.settle({"manifest.json": data, BUNDLE: self.signed(canonical_json(statement))})

    def __call__(self, data: bytes) -> None:
        kind, data = (data[0] % 6, data[1:]) if data else (0, b"")
        try:
            if kind == 0:
                self.settle({BUNDLE: data})
            elif kind == 1:
                self.settle({REPLAY: data})
            elif kind == 2:
                self.settle({BUNDLE: self.signed(data)})
            elif kind == 3:
                self.manifest(data)
            elif kind == 4:
                parse_policy(data, where="trust.yaml")
            else:
                load_public_key(data, where="key.pub")
        except ReproError:
            pass


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="repro-fuzz-") as name:
        root = Path(name)
        target = Target(root / "world")
        corpus = root / "corpus"
        corpus.mkdir()
        for number, seed in enumerate(target.seeds):
            (corpus / f"seed-{number}").write_bytes(seed)
        atheris.Setup([*sys.argv, str(corpus)], target)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
