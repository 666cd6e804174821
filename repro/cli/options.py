"""Options that several commands share, each named once."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import click

__all__ = [
    "accelerator",
    "as_json",
    "engine_runtime",
    "optional_key",
    "optional_trust",
    "passphrase_file",
    "project",
    "quiet",
    "run_folder",
    "run_or_reference",
    "signing_key",
    "trust",
]

F = TypeVar("F", bound=Callable[..., Any])

FOLDER = click.Path(path_type=Path, exists=True, file_okay=False)
FILE = click.Path(path_type=Path, exists=True, dir_okay=False)


def project(function: F) -> F:
    """Folder that holds repro.yaml."""
    return click.option(
        "-C",
        "--project",
        "root",
        type=FOLDER,
        default=".",
        show_default=True,
        help="Folder that holds repro.yaml.",
    )(function)


def accelerator(function: F) -> F:
    """Which accelerator of repro.yaml."""
    return click.option(
        "-a",
        "--accelerator",
        type=click.Choice(["cpu", "cuda", "rocm"]),
        default=None,
        help="Accelerator of repro.yaml; needed where it names more than one.",
    )(function)


def as_json(function: F) -> F:
    """One JSON document instead of text."""
    return click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of text.")(
        function
    )


def quiet(function: F) -> F:
    """No progress."""
    return click.option("-q", "--quiet", is_flag=True, help="Say nothing but results and errors.")(function)


def engine_runtime(function: F) -> F:
    """Where the pilot runs."""
    return click.option(
        "--runtime",
        type=click.Choice(["image", "host"]),
        default="image",
        show_default=True,
        help="image: in the built image. host: in a virtual environment made from the lock, with no engine.",
    )(function)


def run_folder(function: F) -> F:
    """A signed run folder."""
    return click.argument("run", type=FOLDER, metavar="RUN")(function)


def _run_or_reference(ctx: click.Context, parameter: click.Parameter, value: str) -> str:
    if value.startswith("oci://"):
        return value
    kind = FILE if Path(value).is_file() else FOLDER
    return str(kind.convert(value, parameter, ctx))


def run_or_reference(function: F) -> F:
    """A signed run: a folder, a file of `repro pack`, or an image in a registry that one is attached to."""
    return click.argument("run", metavar="RUN", callback=_run_or_reference)(function)


def _trust(function: F, *, required: bool) -> F:
    return click.option(
        "--trust",
        "trust_file",
        type=FILE,
        required=required,
        envvar="REPRO_TRUST",
        show_envvar=True,
        help="Your own trust policy: never one that came with the run.",
    )(function)


def trust(function: F) -> F:
    """The reader's own trust policy."""
    return _trust(function, required=True)


def optional_trust(function: F) -> F:
    """The reader's own trust policy, where the run is to be verified."""
    return _trust(function, required=False)


def passphrase_file(function: F) -> F:
    """Where the passphrase lies."""
    return click.option(
        "--passphrase-file",
        type=FILE,
        help="File that holds the passphrase; else REPRO_PASSPHRASE, else a prompt.",
    )(function)


def _key(function: F, *, required: bool) -> F:
    """How to sign; the command gets it as `signing`, a `repro.cli.signing.Signing`, or None without a key."""
    from repro.cli.signing import Signing

    @functools.wraps(function)
    def gathered(
        *arguments: Any,
        key: Path | None,
        principal: str | None,
        passphrase_file: Path | None,
        certificate: Path | None,
        tsa: str | None,
        **others: Any,
    ) -> Any:
        signing = Signing(key, principal or key.stem, passphrase_file, certificate, tsa) if key else None
        return function(*arguments, signing=signing, **others)

    decorators = (
        click.option(
            "--key",
            type=FILE,
            required=required,
            envvar="REPRO_KEY",
            show_envvar=True,
            help="Private key to sign with.",
        ),
        click.option(
            "--principal",
            metavar="NAME",
            help="Name of the signature's file.  [default: the key file's name]",
        ),
        passphrase_file,
        click.option(
            "--certificate",
            type=FILE,
            help="Certificate of the key, PEM, where signers are known by a private authority.",
        ),
        click.option(
            "--tsa", metavar="URL", help="Add a time stamp (RFC 3161) by the authority at this address."
        ),
    )
    decorated: Any = gathered
    for decorate in reversed(decorators):
        decorated = decorate(decorated)
    return cast(F, decorated)


def signing_key(function: F) -> F:
    """Whose signature."""
    return _key(function, required=True)


def optional_key(function: F) -> F:
    """Whose signature, where one is wanted."""
    return _key(function, required=False)
