"""`repro keys`: make, show and trust signing keys."""

from __future__ import annotations

import glob
from pathlib import Path
from typing import Literal

import click

from repro.adapters.clock import SystemClock
from repro.adapters.files import write_atomic
from repro.adapters.keys import export_cosign, new_key, show_key
from repro.adapters.trustfile import replace_policy, trust_key
from repro.attest.policy import check_update, policy_payload
from repro.attest.verify import MAX_BUNDLES
from repro.bundle import BUNDLE_SUFFIX
from repro.cli import options
from repro.cli.console import print_json
from repro.cli.signing import Signing, ask_passphrase
from repro.cli.verifying import read_trust
from repro.trust import parse_policy

__all__ = ["command"]

KIND = click.Choice(["ecdsa-p256", "ed25519"])


@click.group("keys")
def command() -> None:
    """Make, show and trust signing keys.

    \b
    Example:  repro keys new keys/train
              repro keys trust trust.yaml keys/train.pub --principal train
    Exit codes: 0 done, 1 could not do it, 2 usage.
    """


@command.command("new")
@click.argument("name", type=click.Path(path_type=Path))
@click.option("--kind", type=KIND, default="ecdsa-p256", show_default=True, help="Kind of key.")
@options.passphrase_file
@click.option(
    "--no-passphrase", is_flag=True, help="Leave the private key open: for demonstrations and CI only."
)
def new(
    name: Path, kind: Literal["ecdsa-p256", "ed25519"], passphrase_file: Path | None, no_passphrase: bool
) -> None:
    """Make a pair of keys, NAME.key and NAME.pub.

    \b
    Example:  repro keys new keys/train
    Exit codes: 0 made, 1 could not do it, 2 usage.
    """
    sealed = None if no_passphrase else ask_passphrase("New passphrase", passphrase_file, confirm=True)()
    made = new_key(name.parent, name.name, kind=kind, passphrase=sealed)
    click.echo(f"private  {made.private}")
    click.echo(f"public   {made.public}")
    click.echo(f"{made.key.kind}  {made.key.fingerprint}")


@command.command("show")
@click.argument("key", type=options.FILE)
@options.passphrase_file
@options.as_json
def show(key: Path, passphrase_file: Path | None, as_json: bool) -> None:
    """Print a key's kind and fingerprint.

    \b
    Example:  repro keys show keys/train.pub
    Exit codes: 0 printed, 1 could not do it, 2 usage.
    """
    opened, half = show_key(key, ask_passphrase(f"Passphrase of {key.name}", passphrase_file))
    if as_json:
        print_json({"kind": opened.kind, "half": half, "fingerprint": opened.fingerprint})
        return
    click.echo(f"{opened.kind} {half} key  {opened.fingerprint}")


@command.command("trust")
@click.argument("trust_file", type=click.Path(path_type=Path, dir_okay=False), metavar="TRUST")
@click.argument("key", type=options.FILE)
@click.option("--principal", metavar="NAME", required=True, help="Whose key it is.")
@click.option(
    "--for",
    "statement",
    type=click.Choice(["run", "replay"]),
    default="run",
    show_default=True,
    help="What the principal may sign.",
)
def trust(trust_file: Path, key: Path, principal: str, statement: str) -> None:
    """Add a public key to your trust policy, which is made where it is missing.

    Compare the fingerprint with its owner by another way than the key came.

    \b
    Example:  repro keys trust trust.yaml train.pub --principal train
    Exit codes: 0 written, 1 could not do it, 2 usage.
    """
    opened = trust_key(trust_file, key, principal=principal, statement=statement)
    click.echo(f"{trust_file}: {principal} may sign a {statement}")
    click.echo(f"{opened.kind}  {opened.fingerprint}")


@command.command("export")
@click.argument("key", type=options.FILE)
@click.argument("target", type=click.Path(path_type=Path, dir_okay=False))
@options.passphrase_file
def export(key: Path, target: Path, passphrase_file: Path | None) -> None:
    """Write a private key once more, in cosign's own format, sealed with the same passphrase.

    \b
    Example:  repro keys export keys/train.key cosign.key
    Exit codes: 0 written, 1 could not do it, 2 usage.
    """
    ask = ask_passphrase(f"Passphrase of {key.name}", passphrase_file)
    passphrase = ask()
    opened = export_cosign(key, lambda: passphrase, target, passphrase)
    click.echo(f"{target}: {opened.kind}  {opened.fingerprint}")


@command.command("endorse")
@click.argument("policy", type=options.FILE)
@options.signing_key
def endorse(policy: Path, signing: Signing) -> None:
    """Sign a new trust policy, so that readers of the old one may take it over.

    \b
    Example:  repro keys endorse new/trust.yaml --key keys/root-1.key
    Exit codes: 0 signed, 1 could not do it, 2 usage.
    """
    data = policy.read_bytes()
    payload = policy_payload(data, parse_policy(data, where=str(policy)))
    opened = signing.open()
    target = policy.with_name(f"{policy.name}.{opened.bundle_name}")
    write_atomic(target, opened.bundle(payload))
    click.echo(f"{target}: {opened.signer.public.kind}  {opened.signer.fingerprint}")


@command.command("update")
@click.argument("trust_file", type=options.FILE, metavar="TRUST")
@click.argument("policy", type=options.FILE)
def update(trust_file: Path, policy: Path) -> None:
    """Put a newer trust policy in the place of yours, if enough root keys signed it.

    Signatures lie beside the new policy, as `repro keys endorse` writes them.
    Its version must be higher, and the root keys of both policies must have
    signed it.

    \b
    Example:  repro keys update trust.yaml new/trust.yaml
    Exit codes: 0 replaced, 1 refused or could not do it, 2 usage.
    """
    old, new, data = read_trust(trust_file), read_trust(policy), policy.read_bytes()
    beside = sorted(policy.parent.glob(f"{glob.escape(policy.name)}.*{BUNDLE_SUFFIX}"))
    bundles = {path.name: path.read_bytes() for path in beside[:MAX_BUNDLES]}
    signers = check_update(old, new, data, bundles, SystemClock().now())
    replace_policy(trust_file, policy, new.policy, data)
    click.echo(f"{trust_file}: version {new.policy.version}, signed by {', '.join(signers)}")
    for entry, key in new.keys:
        click.echo(f"  {entry.principal:<16} {key.kind}  {key.fingerprint}")
