"""Open a private key from what a command was given; passphrases never stand in an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from repro.adapters.keys import AskPassphrase, FileSigner, load_signer, passphrase_source
from repro.attest.sign import sign
from repro.bundle import BUNDLE_SUFFIX
from repro.ports import Timestamper

__all__ = ["OpenedSigning", "Signing", "ask_passphrase"]


def _prompt(what: str, confirm: bool) -> Callable[[], str] | None:
    if not sys.stdin.isatty():
        return None
    return lambda: str(click.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True))


def ask_passphrase(what: str, file: Path | None, *, confirm: bool = False) -> AskPassphrase:
    """Ask for a passphrase when it is needed: from a file, else the environment, else this terminal."""
    return passphrase_source(file=file, prompt=_prompt(what, confirm))


@dataclass(frozen=True, slots=True)
class OpenedSigning:
    """A key that is open, and where to ask for time stamps."""

    signer: FileSigner
    name: str
    timestamper: Timestamper | None

    @property
    def bundle_name(self) -> str:
        """Name of the file that a signature becomes."""
        return f"{self.name}{BUNDLE_SUFFIX}"

    def bundle(self, payload: bytes) -> bytes:
        """Sign a statement and return the bundle's bytes."""
        return sign(payload, self.signer, timestamper=self.timestamper)


@dataclass(frozen=True, slots=True)
class Signing:
    """How a person asked for a signature."""

    key: Path
    name: str
    passphrase_file: Path | None
    certificate: Path | None
    tsa: str | None

    def open(self) -> OpenedSigning:
        """Open the key, asking for its passphrase where it is sealed.

        Raises:
            TrustError: the passphrase is missing or wrong, the file is no private key that may sign, or the
                certificate is not the key's.
        """
        ask = ask_passphrase(f"Passphrase of {self.key.name}", self.passphrase_file)
        signer = load_signer(self.key, ask, certificate=self.certificate)
        if self.tsa is None:
            return OpenedSigning(signer, self.name, None)
        # Imported here: it brings a library for HTTP, and most signatures need none.
        from repro.adapters.timestamper import HttpTimestamper

        return OpenedSigning(signer, self.name, HttpTimestamper(self.tsa))
