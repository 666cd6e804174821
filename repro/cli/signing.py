"""Open a private key from what a command was given; passphrases never stand in an argument."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import click

from repro.adapters.keys import AskPassphrase, FileSigner, load_signer, passphrase_source

__all__ = ["ask_passphrase", "open_signer"]


def _prompt(what: str, confirm: bool) -> Callable[[], str] | None:
    if not sys.stdin.isatty():
        return None
    return lambda: str(click.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True))


def ask_passphrase(what: str, file: Path | None, *, confirm: bool = False) -> AskPassphrase:
    """Ask for a passphrase when it is needed: from a file, else the environment, else this terminal."""
    return passphrase_source(file=file, prompt=_prompt(what, confirm))


def open_signer(key: Path, passphrase_file: Path | None) -> FileSigner:
    """Open a signer.

    Raises:
        TrustError: the passphrase is missing or wrong, or the file is no private key that may sign.
    """
    return load_signer(key, ask_passphrase(f"Passphrase of {key.name}", passphrase_file))
