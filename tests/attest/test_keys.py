from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed448, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from repro.adapters.cosignkey import open_cosign_key, seal_cosign_key
from repro.adapters.keys import (
    PASSPHRASE_VARIABLE,
    export_cosign,
    load_signer,
    new_key,
    passphrase_source,
    show_key,
)
from repro.adapters.secretbox import open_box, seal_box
from repro.attest.publickey import KeyKind
from repro.errors import FileError, TrustError


def never() -> bytes:
    raise AssertionError("asked for a passphrase that is not needed")


@pytest.mark.parametrize("kind", ["ecdsa-p256", "ed25519"])
def test_a_new_pair(tmp_path: Path, kind: KeyKind) -> None:
    made = new_key(tmp_path / "keys", "train", kind=kind, passphrase=b"secret")
    assert (made.private.name, made.public.name) == ("train.key", "train.pub")
    assert stat.S_IMODE(made.private.stat().st_mode) == 0o600
    assert made.private.read_text().startswith("-----BEGIN ENCRYPTED PRIVATE KEY-----")
    assert made.public.read_text().startswith("-----BEGIN PUBLIC KEY-----")
    signer = load_signer(made.private, lambda: b"secret")
    assert signer.fingerprint == made.key.fingerprint
    assert made.key.verifies(signer.sign(b"m"), b"m")
    assert not made.key.verifies(signer.sign(b"m"), b"n")
    assert show_key(made.public, never) == (made.key, "public")
    assert show_key(made.private, lambda: b"secret") == (made.key, "private")
    assert sorted(path.name for path in made.private.parent.iterdir()) == ["train.key", "train.pub"]


def test_a_pair_without_a_passphrase(tmp_path: Path) -> None:
    made = new_key(tmp_path, "ci", passphrase=None)
    assert load_signer(made.private, never).fingerprint == made.key.fingerprint
    assert stat.S_IMODE(made.private.stat().st_mode) == 0o600


@pytest.mark.parametrize("there", ["train.key", "train.pub"])
def test_nothing_is_overwritten(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("mine")
    with pytest.raises(FileError) as caught:
        new_key(tmp_path, "train", passphrase=b"x")
    assert caught.value.kind == "file-exists"
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "mine"


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "train.key").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(FileError):
        new_key(tmp_path, "train", passphrase=b"x")
    assert not (tmp_path / "elsewhere").exists()


def test_a_wrong_passphrase_is_said_to_be_wrong(tmp_path: Path) -> None:
    made = new_key(tmp_path, "train", passphrase=b"secret")
    with pytest.raises(TrustError, match="passphrase does not open") as caught:
        load_signer(made.private, lambda: b"guess")
    assert caught.value.kind == "E_KEY"
    assert "guess" not in str(caught.value)


def test_crlf_line_ends(tmp_path: Path) -> None:
    made = new_key(tmp_path, "train", passphrase=b"secret")
    for path in (made.private, made.public):
        path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert load_signer(made.private, lambda: b"secret").fingerprint == made.key.fingerprint
    assert show_key(made.public, never)[0] == made.key


def test_other_kinds_are_named(tmp_path: Path) -> None:
    path = tmp_path / "k.key"
    for name, key in (
        ("RSA-2048", rsa.generate_private_key(65537, 2048)),
        ("ECDSA secp384r1", ec.generate_private_key(ec.SECP384R1())),
        ("Ed448", ed448.Ed448PrivateKey.generate()),
    ):
        path.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        with pytest.raises(TrustError, match=name):
            load_signer(path, never)


def test_a_public_key_cannot_sign(tmp_path: Path) -> None:
    made = new_key(tmp_path, "train", passphrase=b"secret")
    with pytest.raises(TrustError, match="this is a public key"):
        load_signer(made.public, never)


@pytest.mark.parametrize(
    "data", [b"", b"junk", b"-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n"]
)
def test_what_is_no_private_key(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "k").write_bytes(data)
    with pytest.raises(TrustError) as caught:
        load_signer(tmp_path / "k", never)
    assert caught.value.kind == "E_KEY"


def test_keys_that_openssl_makes(tmp_path: Path) -> None:
    path = tmp_path / "k.pem"
    for command in (
        ["openssl", "ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", str(path)],
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", str(path)],
    ):
        subprocess.run(command, check=True, capture_output=True)
        assert load_signer(path, never).sign(b"m")


# ---- passphrases ----


def test_where_a_passphrase_comes_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    (tmp_path / "p").write_bytes(b"from file \n")
    assert passphrase_source(file=None, prompt=lambda: "typed é")() == "typed é".encode()
    monkeypatch.setenv(PASSPHRASE_VARIABLE, "from environment")
    assert passphrase_source(file=None, prompt=lambda: "typed")() == b"from environment"
    assert passphrase_source(file=tmp_path / "p", prompt=None)() == b"from file "
    (tmp_path / "p").write_bytes(b"dos\r\n")
    assert passphrase_source(file=tmp_path / "p", prompt=None)() == b"dos"


def test_no_passphrase_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PASSPHRASE_VARIABLE, raising=False)
    for ask in (passphrase_source(file=None, prompt=None), passphrase_source(file=None, prompt=lambda: "")):
        with pytest.raises(TrustError) as caught:
            ask()
        assert caught.value.kind == "passphrase-missing"


# ---- cosign's own format ----


def test_secretbox_known_answer() -> None:
    """The test of `crypto_secretbox` in NaCl (tests/secretbox.c)."""
    key = bytes.fromhex("1b27556473e985d462cd51197a9a46c76009549eac6474f206c4ee0844f68389")
    nonce = bytes.fromhex("69696ee955b62b73cd62bda875fc73d68219e0036b7a0b37")
    message = bytes.fromhex(
        "be075fc53c81f2d5cf141316ebeb0c7b5228c52a4c62cbd44b66849b64244ffce5ecbaaf33bd751a1ac728d45e6c61296c"
        "dc3c01233561f41db66cce314adb310e3be8250c46f06dceea3a7fa1348057e2f6556ad6b1318a024a838f21af1fde0489"
        "77eb48f59ffd4924ca1c60902e52f0a089bc76897040e082f937763848645e0705"
    )
    box = seal_box(key, nonce, message)
    assert box.hex() == (
        "f3ffc7703f9400e52a7dfb4b3d3305d98e993b9f48681273c29650ba32fc76ce48332ea7164d96a4476fb8c531a1186ac0"
        "dfc17c98dce87b4da7f011ec48c97271d2c20f9b928fe2270d6fb863d51738b48eeee314a7cc8ab932164548e526ae9022"
        "4368517acfeabd6bb3732bc0e9da99832b61ca01b6de56244a9e88d5f9b37973f622a43d14a6599b1f654cb45a74e355a5"
    )
    assert open_box(key, nonce, box, where="x") == message
    with pytest.raises(TrustError, match="passphrase"):
        open_box(key, nonce, bytes([box[0] ^ 1]) + box[1:], where="x")


def test_export_and_read_back(tmp_path: Path) -> None:
    made = new_key(tmp_path, "train", passphrase=b"secret")
    exported = export_cosign(made.private, lambda: b"secret", tmp_path / "cosign.key", b"other")
    assert exported == made.key
    assert stat.S_IMODE((tmp_path / "cosign.key").stat().st_mode) == 0o600
    assert load_signer(tmp_path / "cosign.key", lambda: b"other").fingerprint == made.key.fingerprint
    with pytest.raises(FileError):
        export_cosign(made.private, lambda: b"secret", tmp_path / "cosign.key", b"other")


def boxed(**changes: object) -> bytes:
    """A cosign key whose JSON was edited."""
    sealed = seal_cosign_key(b"x", b"p").decode()
    box = json.loads(base64.b64decode("".join(sealed.splitlines()[1:-1])))
    box["kdf"]["params"].update({name: value for name, value in changes.items() if len(name) == 1})
    box["kdf"].update({name: value for name, value in changes.items() if len(name) > 1})
    body = base64.b64encode(json.dumps(box).encode()).decode()
    name = "ENCRYPTED SIGSTORE PRIVATE KEY"
    return f"-----BEGIN {name}-----\n{body}\n-----END {name}-----\n".encode()


@pytest.mark.parametrize(
    ("pem", "says"),
    [
        (boxed(N=1 << 40), "which no real key does"),
        (boxed(N=65537), "which no real key does"),
        (boxed(r=1 << 20), "which no real key does"),
        (boxed(p=1000), "which no real key does"),
        (boxed(N=0), "which no real key does"),
        (boxed(name="argon2"), "unknown way"),
        (boxed(salt=None), "cannot be read"),
        (boxed(params=[]), "cannot be read"),
        (b"-----BEGIN ENCRYPTED SIGSTORE PRIVATE KEY-----\nAAAA\n", "cannot be read"),
    ],
)
def test_a_hostile_cosign_key_costs_nothing(pem: bytes, says: str) -> None:
    with pytest.raises(TrustError, match=says) as caught:
        open_cosign_key(pem, b"p", where="x")
    assert caught.value.kind == "E_KEY"


def test_the_older_name_of_cosign_keys() -> None:
    pem = seal_cosign_key(b"der", b"p").replace(b"SIGSTORE", b"COSIGN")
    assert open_cosign_key(pem, b"p", where="x") == b"der"


def test_umask_does_not_open_private_keys(tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        made = new_key(tmp_path, "train", passphrase=None)
    finally:
        os.umask(before)
    assert stat.S_IMODE(made.private.stat().st_mode) == 0o600
