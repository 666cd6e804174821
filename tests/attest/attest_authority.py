"""A private certificate authority and a time-stamping authority, made for one test."""

from __future__ import annotations

import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from repro.adapters.keys import FileSigner
from repro.attest.publickey import public_key

DAY = timedelta(days=1)
SAN = "https://lab.example/team/train"
CODE_SIGNING = (ExtendedKeyUsageOID.CODE_SIGNING,)


def clock() -> datetime:
    """The real time: a time-stamping authority knows no other."""
    return datetime.now(UTC).replace(microsecond=0)


def uris(*names: str) -> x509.SubjectAlternativeName:
    return x509.SubjectAlternativeName([x509.UniformResourceIdentifier(name) for name in names])


class Authority:
    """Root, one intermediate, and whatever leaves they are asked to sign."""

    def __init__(self, name: str = "Lab") -> None:
        self.name = name
        self.root_key, self.inner_key = generate_private_key(SECP256R1()), generate_private_key(SECP256R1())
        self.root = self._authority(f"{name} Root", self.root_key, f"{name} Root", self.root_key)
        self.inner = self._authority(f"{name} Issuing", self.inner_key, f"{name} Root", self.root_key)

    def _builder(self, subject: str, key: Any, issuer: str, issuer_key: Any) -> x509.CertificateBuilder:
        def named(name: str) -> x509.Name:
            return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])

        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(named(subject))
            .issuer_name(named(issuer))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .add_extension(identifier, critical=False)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        )

    def _usage(self, *, sign: bool) -> x509.KeyUsage:
        return x509.KeyUsage(
            digital_signature=not sign,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=sign,
            crl_sign=sign,
            encipher_only=False,
            decipher_only=False,
        )

    def _authority(self, subject: str, key: Any, issuer: str, issuer_key: Any) -> x509.Certificate:
        return (
            self._builder(subject, key, issuer, issuer_key)
            .not_valid_before(clock() - 3650 * DAY)
            .not_valid_after(clock() + 3650 * DAY)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(self._usage(sign=True), critical=True)
            .sign(issuer_key, hashes.SHA256())
        )

    def leaf(
        self,
        *,
        names: x509.SubjectAlternativeName | None = None,
        usages: tuple[x509.ObjectIdentifier, ...] = CODE_SIGNING,
        start: timedelta = -DAY,
        end: timedelta = DAY,
        key: Any = None,
        by_root: bool = False,
        critical: bool = False,
        ca: bool = False,
        may_sign: bool = True,
    ) -> tuple[x509.Certificate, Any]:
        """Return a certificate and its key; `start` and `end` count from now."""
        key = key or generate_private_key(SECP256R1())
        issuer, issuer_key = ("Root", self.root_key) if by_root else ("Issuing", self.inner_key)
        builder = (
            self._builder("signer", key, f"{self.name} {issuer}", issuer_key)
            .not_valid_before(clock() + start)
            .not_valid_after(clock() + end)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(self._usage(sign=not may_sign), critical=True)
            .add_extension(names if names is not None else uris(SAN), critical=False)
        )
        if usages:
            builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=critical)
        return builder.sign(issuer_key, hashes.SHA256()), key

    def signer(self, **options: Any) -> FileSigner:
        """Return a signer that is known by a certificate."""
        certificate, key = self.leaf(**options)
        opened = public_key(key.public_key(), where="leaf")
        return FileSigner(key, opened, certificate.public_bytes(Encoding.DER))


def pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(Encoding.PEM)


CONFIG = """[tsa]
default_tsa = here
[here]
serial = serial
crypto_device = builtin
signer_cert = tsa.pem
signer_key = tsa.key
signer_digest = sha256
default_policy = 1.2.3.4.1
digests = sha256
ordering = no
tsa_name = no
ess_cert_id_chain = no
"""


class TimeAuthority:
    """Answers RFC 3161 queries with `openssl ts`; fulfils `repro.ports.Timestamper`."""

    def __init__(self, folder: Path, authority: Authority, **options: Any) -> None:
        folder.mkdir()
        self.folder = folder
        self.certificate, key = authority.leaf(
            usages=(ExtendedKeyUsageOID.TIME_STAMPING,), by_root=True, critical=True, **options
        )
        (folder / "tsa.pem").write_bytes(pem(self.certificate))
        (folder / "tsa.key").write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))
        (folder / "tsa.cnf").write_text(CONFIG)
        (folder / "serial").write_text("01\n")

    def stamp(self, message: bytes) -> bytes:
        """Return the DER of a TimeStampResp."""
        (self.folder / "message").write_bytes(message)
        for command in (
            ["openssl", "ts", "-query", "-data", "message", "-sha256", "-cert", "-out", "query"],
            ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", "-out", "reply"],
        ):
            subprocess.run(command, cwd=self.folder, check=True, capture_output=True)
        return (self.folder / "reply").read_bytes()
