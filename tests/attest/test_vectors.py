"""Bundles and keys that cosign and others made, and what each implementation did with broken ones.

The vectors are not part of this repository: `../shared/vectors`, or the folder
that REPRO_VECTORS names. Their predicate type is not ours, so a good one is
told by its statement being refused for that, and not before.
"""

from __future__ import annotations

import csv
import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from repro.adapters.keys import load_signer
from repro.attest.envelope import open_bundle
from repro.attest.publickey import PublicKey, load_public_key
from repro.attest.signature import examine_run
from repro.cli.verifying import read_trust
from repro.errors import TrustError
from repro.statement import RUN_TYPE, parse_run_statement
from repro.trust import parse_moment

VECTORS = Path(os.environ.get("REPRO_VECTORS") or Path(__file__).parents[3] / "shared" / "vectors")

pytestmark = pytest.mark.skipif(not VECTORS.is_dir(), reason=f"no vectors at {VECTORS}")


def key(name: str) -> PublicKey:
    return load_public_key((VECTORS / name).read_bytes(), where=name)


def accepts(bundle: bytes, *keys: PublicKey) -> bytes:
    """Return the payload of a bundle that one of the keys signed.

    Raises:
        TrustError: where none did, or the bundle is broken.
    """
    opened = open_bundle(bundle, where="vector")
    if not any(key.verifies(opened.signature, opened.message) for key in keys):
        raise TrustError("E_SIG", "no key made this signature")
    return opened.payload


@pytest.mark.parametrize(
    ("bundle", "public"),
    [
        ("cosign2/predicate.p256.sigstore.json", "keys/cosign2.pub"),
        ("cosign2/predicate.ed25519.sigstore.json", "keys/ed25519.pub"),
        ("cosign3/predicate.p256.sigstore.json", "keys/cosign3.pub"),
        ("cosign3/statement.p256.sigstore.json", "keys/cosign3.pub"),
        ("cosign3/statement.p256.tsa.sigstore.json", "keys/cosign3.pub"),
        ("ours/run.train.sigstore.json", "ours/train.pub"),
        ("ours/run.lab.sigstore.json", "ours/lab.pub"),
        ("ours/replay.auditor.sigstore.json", "ours/auditor.pub"),
    ],
)
def test_signatures_of_others_verify(bundle: str, public: str) -> None:
    payload = accepts((VECTORS / bundle).read_bytes(), key(public))
    with pytest.raises(TrustError) as caught:
        parse_run_statement(payload, where="vector")
    assert caught.value.kind == "E_STMT"


def test_cosign_keeps_a_statement_byte_for_byte() -> None:
    payload = accepts(
        (VECTORS / "cosign3/statement.p256.sigstore.json").read_bytes(), key("keys/cosign3.pub")
    )
    assert payload == (VECTORS / "statement.json").read_bytes()


@pytest.mark.parametrize(
    ("bundle", "public", "code"),
    [
        ("cosign3/statement.ed25519ph.sigstore.json", "keys/ed25519.pub", "E_SIG"),
        ("cosign3/signblob.p256.sigstore.json", "keys/cosign3.pub", "E_BUNDLE"),
        ("cosign2/predicate.p256.legacy-bundle.json", "keys/cosign2.pub", "E_BUNDLE"),
        ("cosign2/predicate.p256.dsse.json", "keys/cosign2.pub", "E_BUNDLE"),
        ("cosign3/statement.p256.sigstore.json", "keys/cosign2.pub", "E_SIG"),
    ],
)
def test_what_must_be_refused(bundle: str, public: str, code: str) -> None:
    with pytest.raises(TrustError) as caught:
        accepts((VECTORS / bundle).read_bytes(), key(public))
    assert caught.value.kind == code


@pytest.mark.parametrize("name", ["cosign2", "cosign3", "ed25519-cosign2", "ed25519-cosign3", "leaf"])
def test_keys_that_cosign_sealed_open(name: str) -> None:
    signer = load_signer(VECTORS / f"keys/{name}.key", lambda: b"test123")
    public = "ed25519.pub" if name.startswith("ed") else f"{name}.pub"
    if name != "leaf":
        assert signer.fingerprint == key(f"keys/{public}").fingerprint
    assert signer.public.verifies(signer.sign(b"message"), b"message")
    with pytest.raises(TrustError, match="passphrase") as caught:
        load_signer(VECTORS / f"keys/{name}.key", lambda: b"test124")
    assert caught.value.kind == "E_KEY"


def expected() -> dict[str, str]:
    if not VECTORS.is_dir():
        return {}
    with (VECTORS / "invalid/expected.tsv").open(newline="") as stream:
        return {row["file"]: row["repro must"] for row in csv.DictReader(stream, delimiter="\t")}


def as_ours(payload: bytes) -> bytes:
    """Give the vectors' statement our own names, so that only its flaw is left."""
    for theirs, ours in (
        (b"https://repro.example/attestation/run/v1", RUN_TYPE.encode()),
        (b'"manifest":"repro.yaml"', b'"manifest":"manifest.json"'),
        (b'"repro.yaml"', b'"manifest.json"'),
        (b'"role":"outputs"', b'"role":"other"'),
        (b'"127.0.0.1:5066/demo/run"', b'"demo:cpu"'),
    ):
        payload = payload.replace(theirs, ours)
    return payload


def judged(name: str) -> Any:
    """Return the code that a vector of `invalid/` is refused with, or None."""
    try:
        payload = accepts((VECTORS / f"invalid/{name}.json").read_bytes(), key("ours/train.pub"))
        parse_run_statement(as_ours(payload), where="vector")
    except TrustError as error:
        return error.kind
    return None


def test_there_are_28_of_them() -> None:
    assert len(expected()) == 28


@pytest.mark.parametrize("name", sorted(expected()))
def test_invalid_vectors(name: str) -> None:
    accepted = expected()[name].startswith("accept")
    assert (judged(name) is None) == accepted


def test_the_statement_without_a_flaw_passes() -> None:
    parse_run_statement(as_ours((VECTORS / "statement.json").read_bytes()), where="vector")


def test_key_kinds_are_named() -> None:
    folder = VECTORS.parent / "cases" / "F05"
    if not folder.is_dir():
        pytest.skip(f"no case at {folder}")
    assert load_public_key((folder / "ed25519.pub").read_bytes(), where="x").kind == "ed25519"
    assert load_public_key((folder / "ed25519-crlf.pub").read_bytes(), where="x").kind == "ed25519"
    assert load_public_key((folder / "ec-p256.pub").read_bytes(), where="x").kind == "ecdsa-p256"
    with pytest.raises(TrustError, match="RSA-2048"):
        load_public_key((folder / "rsa.pub").read_bytes(), where="x")
    with pytest.raises(TrustError, match="cannot be read"):
        load_public_key((folder / "not-a-key.pub").read_bytes(), where="x")


def lab_policy(folder: Path) -> Path:
    """A policy that trusts the authorities of the vectors."""
    for name in ("root", "inter", "tsa"):
        shutil.copy(VECTORS / f"x509/{name}.pem", folder / f"{name}.pem")
    policy = {
        "schema": "https://repro-manifest/trust/v1",
        "version": 1,
        "cas": [
            {
                "name": "lab",
                "roots": ["root.pem"],
                "intermediates": ["inter.pem"],
                "identities": [{"san": "https://lab.example/team/train", "principal": "train"}],
            }
        ],
        "tsas": [{"name": "lab-tsa", "certificate": "tsa.pem", "root": "root.pem"}],
        "rules": [{"predicateType": RUN_TYPE, "threshold": 1, "principals": ["train"]}],
    }
    path = folder / "trust.yaml"
    path.write_text(json.dumps(policy))
    return path


@pytest.mark.parametrize(
    ("now", "time"),
    [("2026-12-01T12:00:00Z", "now"), ("2040-01-01T00:00:00Z", "lab-tsa 2026-12-01T00:33:14Z")],
)
def test_a_certificate_and_a_time_stamp_by_cosign(tmp_path: Path, now: str, time: str) -> None:
    """All that stands against it is the predicate type."""
    trust = read_trust(lab_policy(tmp_path))
    bundle = (VECTORS / "cosign3/statement.cert.tsa.sigstore.json").read_bytes()
    signature, statement = examine_run(bundle, name="cosign", trust=trust, now=parse_moment(now))
    assert (signature.principal, signature.method, signature.time) == ("train", "certificate", time)
    assert (signature.code, statement) == ("E_STMT", None)
