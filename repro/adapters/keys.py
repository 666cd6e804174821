"""Key files: make them, show them, sign with them, hand them to cosign.

A private key is encrypted PKCS#8 in PEM with mode 0600, the public one beside
it SPKI in PEM. Passphrases come from a file, the environment or a prompt,
never from an argument. Nothing is ever overwritten.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from repro.adapters.cosignkey import is_cosign_key, open_cosign_key, seal_cosign_key
from repro.attest.publickey import ALLOWED, KeyKind, PublicKey, load_public_key, public_key
from repro.digest import Digest
from repro.errors import FileError, TrustError

__all__ = [
    "PASSPHRASE_VARIABLE",
    "AskPassphrase",
    "FileSigner",
    "KeyFiles",
    "export_cosign",
    "load_signer",
    "new_key",
    "passphrase_source",
    "show_key",
]

PASSPHRASE_VARIABLE = "REPRO_PASSPHRASE"  # noqa: S105 - the name of a variable
_MAX_BYTES = 64 << 10

AskPassphrase = Callable[[], bytes]
"""Gives the passphrase of a key, when one is needed."""


@dataclass(frozen=True, slots=True)
class KeyFiles:
    """A pair of key files."""

    private: Path
    public: Path
    key: PublicKey


class FileSigner:
    """Fulfils `repro.ports.Signer` with a private key read from a file."""

    def __init__(self, key: Any, opened: PublicKey, certificate: bytes | None) -> None:
        self._key = key
        self.public = opened
        self.fingerprint: Digest = opened.fingerprint
        self.certificate = certificate

    def sign(self, message: bytes) -> bytes:
        """Return the signature: DER for ECDSA P-256 with SHA-256, 64 bytes for Ed25519."""
        signature: bytes
        if self.public.kind == "ed25519":
            signature = self._key.sign(message)
        else:
            from cryptography.hazmat.primitives.asymmetric.ec import ECDSA
            from cryptography.hazmat.primitives.hashes import SHA256

            signature = self._key.sign(message, ECDSA(SHA256()))
        return signature


def passphrase_source(*, file: Path | None, prompt: Callable[[], str] | None) -> AskPassphrase:
    """Say where a passphrase comes from: a file, else the environment, else a prompt.

    One line end at the end of the file does not count.

    Raises (when called):
        TrustError: kind `passphrase-missing` where there is none of the three, or it is empty.
    """

    def ask() -> bytes:
        if file is not None:
            text = file.read_bytes().removesuffix(b"\n").removesuffix(b"\r")
        elif (value := os.environ.get(PASSPHRASE_VARIABLE)) is not None:
            text = value.encode("utf-8", "surrogateescape")
        else:
            text = prompt().encode("utf-8") if prompt else b""
        if not text:
            remedy = f"type one, name a file that holds it, or set {PASSPHRASE_VARIABLE}"
            raise TrustError(
                "passphrase-missing", "the key needs a passphrase, and none is given", remedy=remedy
            )
        return text

    return ask


def new_key(folder: Path, name: str, *, kind: KeyKind = "ecdsa-p256", passphrase: bytes | None) -> KeyFiles:
    """Make a pair of keys, `<name>.key` and `<name>.pub`.

    Args:
        folder: where to put them.
        name: name of the files, without an ending.
        kind: `ecdsa-p256`, or `ed25519` where every verifier is known to read it.
        passphrase: seals the private key; None leaves it open, for demonstrations and CI only.

    Raises:
        FileError: kind `file-exists` where either file is there already.
    """
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private, public = folder / f"{name}.key", folder / f"{name}.pub"
    for path in (private, public):
        if path.exists() or path.is_symlink():
            raise _exists(path)
    key: Any = Ed25519PrivateKey.generate() if kind == "ed25519" else generate_private_key(SECP256R1())
    opened = public_key(key.public_key(), where=str(public))
    folder.mkdir(parents=True, exist_ok=True)
    _write_new(private, _private_pem(key, passphrase), 0o600)
    try:
        _write_new(public, _public_pem(opened), 0o644)
    except BaseException:
        private.unlink(missing_ok=True)
        raise
    return KeyFiles(private, public, opened)


def _private_pem(key: Any, passphrase: bytes | None) -> bytes:
    from cryptography.hazmat.primitives.serialization import (
        BestAvailableEncryption,
        Encoding,
        NoEncryption,
        PrivateFormat,
    )

    sealing = BestAvailableEncryption(passphrase) if passphrase else NoEncryption()
    pem: bytes = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealing)
    return pem


def _public_pem(key: PublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    pem: bytes = key.handle.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    return pem


def _exists(path: Path) -> FileError:
    remedy = "choose another name; keys are never overwritten"
    return FileError("file-exists", "the file is there already", where=str(path), remedy=remedy)


def _write_new(path: Path, data: bytes, mode: int) -> None:
    """Write a file that must not exist yet, to the disk, or leave nothing behind."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
    except FileExistsError:
        raise _exists(path) from None
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
    except BaseException:
        path.unlink(missing_ok=True)
        raise


def _read(path: Path) -> bytes:
    with path.open("rb") as stream:
        data = stream.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise TrustError("E_KEY", f"more than {_MAX_BYTES} bytes are no key", where=str(path))
    return data.replace(b"\r\n", b"\n")


def load_signer(path: Path, ask: AskPassphrase, *, certificate: Path | None = None) -> FileSigner:
    """Open a private key: encrypted or open PKCS#8, SEC 1, or cosign's own format.

    Args:
        path: the key file.
        ask: called only where the key is sealed.
        certificate: PEM file with the certificate for the key, where signers are known by one.

    Raises:
        TrustError: kind `E_KEY` for a wrong passphrase, or a key that is of no kind that may sign;
            `E_CERT` for a certificate that is not the key's.
    """
    key = _private_key(_read(path), ask, str(path))
    opened = public_key(key.public_key(), where=str(path))
    return FileSigner(key, opened, _certificate(certificate, opened) if certificate else None)


def _private_key(pem: bytes, ask: AskPassphrase, where: str) -> Any:
    from cryptography.exceptions import UnsupportedAlgorithm
    from cryptography.hazmat.primitives.serialization import load_der_private_key, load_pem_private_key

    if b"PRIVATE KEY-----" not in pem:
        what = "a public key" if b"PUBLIC KEY-----" in pem else "no private key in PEM"
        raise TrustError("E_KEY", f"this is {what}; signing needs a private key", where=where)
    unreadable = f"this private key cannot be read; repro wants {ALLOWED}"
    try:
        if is_cosign_key(pem):
            return load_der_private_key(open_cosign_key(pem, ask(), where=where), None)
        sealed = b"ENCRYPTED" in pem
        return load_pem_private_key(pem, ask() if sealed else None)
    except ValueError as error:
        wrong = "password" in str(error).lower()
        message = "the passphrase does not open the key" if wrong else unreadable
        raise TrustError("E_KEY", message, where=where) from None
    except (TypeError, UnsupportedAlgorithm):
        raise TrustError("E_KEY", unreadable, where=where) from None


def _certificate(path: Path, key: PublicKey) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding
    from cryptography.x509 import load_pem_x509_certificate

    try:
        certificate = load_pem_x509_certificate(_read(path))
        theirs = public_key(certificate.public_key(), where=str(path))
    except ValueError:
        raise TrustError("E_CERT", "this is no certificate in PEM", where=str(path)) from None
    if theirs.fingerprint != key.fingerprint:
        raise TrustError("E_CERT", "the certificate is for another key", where=str(path))
    return certificate.public_bytes(Encoding.DER)


def show_key(path: Path, ask: AskPassphrase) -> tuple[PublicKey, Literal["public", "private"]]:
    """Read either half of a pair; the passphrase is asked for only where a private key is sealed.

    Raises:
        TrustError: kind `E_KEY`.
    """
    pem = _read(path)
    if b"PRIVATE KEY-----" in pem:
        return load_signer(path, ask).public, "private"
    return load_public_key(pem, where=str(path)), "public"


def export_cosign(path: Path, ask: AskPassphrase, target: Path, passphrase: bytes) -> PublicKey:
    """Write a private key once more, as cosign keeps keys.

    Args:
        path: the key to export.
        ask: gives its passphrase.
        target: the new file.
        passphrase: seals the new file; cosign asks for it.

    Raises:
        TrustError: kind `E_KEY`.
        FileError: kind `file-exists`.
    """
    from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

    key = _private_key(_read(path), ask, str(path))
    opened = public_key(key.public_key(), where=str(path))
    der: bytes = key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    _write_new(target, seal_cosign_key(der, passphrase), 0o600)
    return opened
