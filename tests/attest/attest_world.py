"""A small run, its signers and an auditor, made from nothing for each test."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from repro.adapters.keys import FileSigner
from repro.adapters.runfolder import DiskRunFolder
from repro.attest.outcome import Verification
from repro.attest.publickey import public_key
from repro.attest.sign import run_payload, sign
from repro.attest.verify import Demands, verify
from repro.cli.verifying import read_trust
from repro.digest import Digest, canonical_json, digest_bytes, digest_json, pretty_json
from repro.spec import Spec
from repro.statement import (
    Comparison,
    ReplayEnvironment,
    Replayer,
    ReplayPredicate,
    Tool,
    parse_run_statement,
    replay_statement,
    sha256_of,
)
from repro.strictyaml import load, validate

NOW = datetime(2026, 12, 1, 12, tzinfo=UTC)
ACCELERATOR = "cpu"
RECORDER = digest_bytes(b"recorder")
BASE = digest_bytes(b"base config")
CORPUS = {"path": "data/corpus.txt", "size": 6, "digest": digest_bytes(b"corpus")}
SPEC = b"""# a pilot
version: 1
name: pilot
pilot:
  command: [python, train.py]
  source: [train.py]
  steps: 2
seed: 7
datasets:
  - {name: corpus, path: data/corpus.txt}
accelerators:
  cpu: {dockerfile: Dockerfile.cpu, base: "base:1", requirements: [requirements.in]}
"""
IMAGE_IDENTITY: dict[str, Any] = {
    "config_digest": digest_bytes(b"config"),
    "manifest_digest": digest_bytes(b"manifest"),
    "diff_ids": [digest_bytes(b"layer")],
    "layer_sizes": [5],
    "os": "linux",
    "architecture": "amd64",
    "size": 5,
}


def new_signer(kind: str = "ecdsa-p256") -> FileSigner:
    key: Any = Ed25519PrivateKey.generate() if kind == "ed25519" else generate_private_key(SECP256R1())
    return FileSigner(key, public_key(key.public_key(), where="test"), None)


def public_pem(signer: FileSigner) -> bytes:
    pem: bytes = signer.public.handle.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def file_lock(path: str, data: bytes) -> dict[str, Any]:
    return {"path": path, "size": len(data), "digest": digest_bytes(data)}


def make_lock(requirements: bytes, pylock: bytes, data: bytes = SPEC, models: Any = ()) -> bytes:
    spec = validate(load(data, where="repro.yaml"), Spec, where="repro.yaml")

    def package(name: str, version: str) -> dict[str, Any]:
        return {
            "name": name,
            "version": version,
            "filename": f"{name}-{version}-py3-none-any.whl",
            "size": 1,
            "digest": digest_bytes(name.encode()),
            "index": "default",
            "hash_source": "published",
        }

    return pretty_json(
        {
            "version": 1,
            "name": "pilot",
            "spec_digest": spec.meaning(),
            "asked": {},
            "ignored": [],
            "seed": 7,
            "determinism": "strict",
            "source": {"files": [file_lock("train.py", b"train")]},
            **({"models": list(models)} if models else {}),
            "datasets": [
                {
                    "name": "corpus",
                    "kind": "path",
                    "requested": "data/corpus.txt",
                    "target": "data/corpus.txt",
                    "files": [CORPUS],
                    "total_bytes": 6,
                }
            ],
            "accelerators": {
                ACCELERATOR: {
                    "spec_digest": spec.accelerator_meaning(ACCELERATOR),
                    "asked": {},
                    "dockerfile": file_lock("Dockerfile.cpu", b"FROM base"),
                    "base": {
                        "requested": "base:1",
                        "source": "engine",
                        "config_digest": BASE,
                        "diff_ids": [],
                        "os": "linux",
                        "architecture": "amd64",
                    },
                    "packages": {
                        "platform": {"python": "3.11", "os": "linux", "architecture": "x86_64"},
                        "requirements": digest_bytes(requirements),
                        "pylock": digest_bytes(pylock),
                        "compiled": digest_bytes(b"compiled"),
                        "inputs": [],
                        "resolver": {},
                        "pip": package("pip", "26.3"),
                        "files": [package("torch", "2.13.0")],
                    },
                }
            },
        }
    )


def make_trace(rank: int = 0) -> bytes:
    events = [
        {
            "ev": "head",
            "format": "repro-trace/1",
            "rank": rank,
            "world": 1,
            "recorder": RECORDER,
            "torch": {"version": "2.13.0+cpu"},
        },
        {"ev": "step", "step": 1, "loss": [{"bits": "0x1.8p+0", "dtype": "float32"}]},
        {"ev": "step", "step": 2, "loss": [{"bits": "0x1.0p+0", "dtype": "float32"}]},
    ]
    return b"".join(canonical_json(event) + b"\n" for event in events)


class World:
    """One run folder, one trust folder, and the keys of everybody."""

    def __init__(self, root: Path, signers: dict[str, FileSigner] | None = None) -> None:
        self.run, self.trust = root / "run", root / "trust"
        self.signers = signers or {
            "train": new_signer(),
            "lab": new_signer("ed25519"),
            "auditor": new_signer(),
            "stranger": new_signer(),
        }
        self.files: dict[str, bytes] = {}
        self.models: list[dict[str, Any]] = []
        """Models as a lock names them."""
        self.policy: dict[str, Any] = {
            "schema": "https://repro-manifest/trust/v1",
            "version": 1,
            "expires": "2027-06-30T00:00:00Z",
            "keys": [self.entry(name) for name in ("train", "lab", "auditor")],
            "rules": [
                {
                    "predicateType": "https://repro-manifest/run/v1",
                    "threshold": 1,
                    "principals": ["train", "lab"],
                }
            ],
        }
        self.write_run()

    def spec(self) -> bytes:
        named = "".join(f"  - {{name: {m['name']}, path: {m['requested']}}}\n" for m in self.models)
        return SPEC.replace(b"datasets:", f"models:\n{named}datasets:".encode()) if self.models else SPEC

    def entry(self, name: str, **more: Any) -> dict[str, Any]:
        return {
            "file": f"keys/{name}.pub",
            "fingerprint": self.signers[name].fingerprint,
            "principal": name,
            "notBefore": "2026-01-01T00:00:00Z",
            "notAfter": "2027-01-01T00:00:00Z",
            **more,
        }

    def manifest_tree(self, **changes: Any) -> dict[str, Any]:
        files = self.files
        trace = file_lock("trace/full/rank-0.jsonl", files["trace/full/rank-0.jsonl"])
        others = [file_lock(name, files[name]) for name in sorted(files) if name.startswith("locks/")]
        dataset = {
            "kind": "dataset",
            "name": "corpus",
            "requested": "data/corpus.txt",
            "digest": digest_json([CORPUS]),
        }
        models = [
            {
                "kind": "model",
                "name": model["name"],
                "requested": model["requested"],
                "digest": digest_json(model["files"]),
            }
            for model in self.models
        ]
        base = {"kind": "base", "name": "base", "requested": "base:1", "digest": BASE}
        return {
            "schema": "https://repro-manifest/manifest/v1",
            "project": "pilot",
            "run_id": "00112233445566778899aabbccddeeff",
            "sequence": 7,
            "created_at": "2026-11-30T10:00:00Z",
            "tool": {"name": "repro", "version": "0.1.0", "recorder": RECORDER},
            "accelerator": ACCELERATOR,
            "runtime": "image",
            "image": {
                "identity": IMAGE_IDENTITY,
                "plan_digest": digest_bytes(b"plan"),
                "base_layers": 1,
                "builder": {
                    "engine": "docker",
                    "version": "1",
                    "store": "overlay2",
                    "raw_id": "x",
                    "raw_diff_ids": [],
                },
                "rules": "1",
            },
            "spec": file_lock("repro.yaml", files["repro.yaml"]),
            "lock": file_lock("repro.lock", files["repro.lock"]),
            "files": [*others, trace],
            "inputs": [base, *models, dataset],
            "seed": 7,
            "determinism": "strict",
            "environment": {},
            "limits": {},
            "host": {},
            "phases": [
                {
                    "name": "full",
                    "command": ["python", "train.py"],
                    "started_at": "2026-11-30T09:00:00Z",
                    "milliseconds": 1000,
                    "exit_code": 0,
                    "first_step": 0,
                    "steps": 2,
                    "world_size": 1,
                    "trace": [trace],
                }
            ],
            "checkpoint": None,
            "reproduced_itself": None,
            "resumed_exactly": None,
            "tolerance": {},
            "redaction": "repro-redaction/1",
            **changes,
        }

    def write_run(self, **changes: Any) -> None:
        requirements, pylock = b"torch==2.13.0\n", b'lock-version = "1.0"\n'
        self.files = {
            "repro.yaml": self.spec(),
            "repro.lock": make_lock(requirements, pylock, self.spec(), self.models),
            "locks/requirements.cpu.txt": requirements,
            "locks/pylock.cpu.toml": pylock,
            "trace/full/rank-0.jsonl": make_trace(),
        }
        self.files["manifest.json"] = pretty_json(self.manifest_tree(**changes))
        for name, data in self.files.items():
            place = self.run / name
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(data)

    def payload(self) -> bytes:
        return run_payload((self.run / "manifest.json").read_bytes())

    def sign(self, name: str = "train", payload: bytes | None = None, *, bundle: str | None = None) -> Path:
        place = self.run / (bundle or f"{name}.sigstore.json")
        place.parent.mkdir(exist_ok=True)
        place.write_bytes(sign(self.payload() if payload is None else payload, self.signers[name]))
        return place

    def sign_tree(self, tree: Any, name: str = "train") -> Path:
        return self.sign(name, canonical_json(tree))

    def statement(self) -> Any:
        return json.loads(self.payload())

    def replay(
        self,
        name: str = "auditor",
        *,
        payload: bytes | None = None,
        bundle: str | None = None,
        **changes: Any,
    ) -> Path:
        """Sign a replay statement; `changes` are members of the predicate in Python's spelling."""
        run = self.payload() if payload is None else payload
        statement = parse_run_statement(run, where="test")
        subjects = {subject.name: Digest(f"sha256:{subject.digest.sha256}") for subject in statement.subject}
        members: dict[str, Any] = {
            "result": "PASSED",
            "replayer": Replayer(id="https://auditor.example", tool=Tool(name="repro", version="0.1.0")),
            "started_at": "2026-11-30T17:00:00Z",
            "time_created": "2026-11-30T18:00:00Z",
            "run": {"payload_digest": sha256_of(digest_bytes(run)), "verified_signers": ()},
            "comparison": comparison(),
            "environment": ReplayEnvironment(
                gpu=None, driver=None, rocm=None, cuda=None, image_digest=None, deviations=()
            ),
            "policy": {"digest": sha256_of(digest_bytes(b"policy"))},
            **changes,
        }
        image = statement.predicate.image
        signed = replay_statement(
            ReplayPredicate(**members),
            manifest_digest=subjects["manifest.json"],
            image=(image.name, subjects[image.name]) if image else None,
        )
        return self.sign(name, signed, bundle=bundle or f"replays/{name}.sigstore.json")

    def demand_replay(
        self, threshold: int = 1, principals: tuple[str, ...] = ("auditor",), **more: Any
    ) -> None:
        rule = {
            "predicateType": "https://repro-manifest/replay/v1",
            "threshold": threshold,
            "principals": list(principals),
            **more,
        }
        self.policy["rules"] = [self.policy["rules"][0], rule]

    def write_policy(self) -> Path:
        (self.trust / "keys").mkdir(parents=True, exist_ok=True)
        for name, signer in self.signers.items():
            (self.trust / "keys" / f"{name}.pub").write_bytes(public_pem(signer))
        path = self.trust / "trust.yaml"
        path.write_bytes(pretty_json(self.policy))
        return path

    def verify(self, now: datetime = NOW, **demands: Any) -> Verification:
        trust = read_trust(self.write_policy())
        return verify(DiskRunFolder(self.run), trust, now=now, demands=Demands(**demands))


def comparison(compared: int = 2, matched: int = 2) -> Comparison:
    return Comparison(
        mode="bitwise",
        tolerance=None,
        steps_compared=compared,
        steps_matched=matched,
        first_mismatch=None,
        outputs_digest=None,
    )


__all__ = ["NOW", "World", "comparison", "new_signer", "public_pem"]
