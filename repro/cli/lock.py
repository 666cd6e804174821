"""`repro lock`: Spec to Lock, and whether a lock still holds."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from pathlib import Path

import click

from repro.adapters.basefinder import MachineBaseFinder
from repro.adapters.files import write_together
from repro.adapters.git import GitCommand
from repro.adapters.inputs import artifact_sources
from repro.adapters.pip.resolve import PipResolver
from repro.cli import options
from repro.cli.annotating import Annotate, annotated, stale_annotations
from repro.cli.console import Console, print_json
from repro.cli.project import Written, choose, file_cache, read_lock, read_spec
from repro.lock import Lock
from repro.report.words import count, size
from repro.resolve import LockResult, check, lock
from repro.resolve.freshness import Freshness
from repro.resolve.places import places

__all__ = ["command", "is_fresh", "renew"]

ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
"""What the machine calls itself, and what images call it."""


def _previous(root: Path) -> Lock | None:
    return read_lock(root, []).lock if (root / "repro.lock").exists() else None


def is_fresh(written: Written, names: Sequence[str], *, deep: bool) -> Freshness:
    """Say whether the lock beside a spec still holds; offline."""
    locked = read_lock(written.root, [])
    return check(
        written.spec,
        locked.lock,
        written.root,
        places=places(locked.lock, written.root, file_cache()),
        accelerators=list(names),
        deep=deep,
    )


def renew(
    written: Written, names: Sequence[str], console: Console, *, upgrade: tuple[str, ...] | None
) -> LockResult:
    """Lock what a spec asks for, and write `repro.lock` and `locks/`.

    Args:
        upgrade: packages to renew; none named is everything, None is nothing that still fits.
    """
    result = lock(
        written.spec,
        list(names),
        root=written.root,
        architecture=ARCHITECTURES.get(platform.machine(), platform.machine()),
        resolver=PipResolver(file_cache()),
        base_finder=MachineBaseFinder(warn=console.line),
        git=GitCommand(),
        cache=file_cache(),
        sources=artifact_sources(),
        progress=console,
        previous=_previous(written.root),
        upgrade=upgrade,
    )
    if result.files:
        write_together(written.root, result.files, last="repro.lock")
    return result


def _check(written: Written, names: list[str], annotate: Annotate, *, deep: bool, as_json: bool) -> int:
    freshness = is_fresh(written, names, deep=deep)
    annotate(stale_annotations(freshness.reasons, written.root))
    if as_json:
        print_json({"fresh": freshness.fresh, "reasons": freshness.reasons, "unread": freshness.unread})
    elif freshness.fresh:
        click.secho("fresh", fg="green", bold=True)
    else:
        click.secho("stale", fg="red", bold=True)
        for reason in freshness.reasons:
            click.echo(f"  {reason}")
    if freshness.unread and not as_json:
        click.echo(f"  {count(len(freshness.unread), 'large file')} compared by size alone; see --deep")
    return 0 if freshness.fresh else 3


def _summary(result: LockResult, names: list[str]) -> list[str]:
    lines = []
    for name in names:
        locked = result.lock.accelerators[name]
        files = locked.packages.files
        total = sum(file.size for file in files)
        state = "locked" if name in result.renewed else "unchanged"
        base = f"base {locked.base.requested} {locked.base.config_digest[7:19]}"
        lines.append(f"{name:5} {state}: {count(len(files), 'package')}, {size(total)}; {base}")
    lines += [f"warning: {text}" for text in result.warnings]
    return lines


@click.command("lock")
@options.project
@options.accelerator
@click.option(
    "--check", "checking", is_flag=True, help="Change nothing; say whether the lock still holds, offline."
)
@click.option("--deep", is_flag=True, help="With --check: hash large models and data sets too.")
@click.option("--upgrade", is_flag=True, help="Renew every package, base image, model and data set.")
@click.option(
    "--upgrade-package", "-P", "packages", multiple=True, metavar="NAME", help="Renew this package only."
)
@options.quiet
@options.as_json
@annotated
def command(
    root: Path,
    accelerator: str | None,
    checking: bool,
    deep: bool,
    upgrade: bool,
    packages: tuple[str, ...],
    quiet: bool,
    as_json: bool,
    annotate: Annotate,
) -> int:
    """Turn every mutable reference of repro.yaml into an immutable one.

    Writes repro.lock and locks/. What still fits is kept; with nothing changed
    there is no network work at all.

    \b
    Example:  repro lock -a cpu
              repro lock --check
    Exit codes: 0 locked or fresh, 1 could not do it, 2 usage, 3 stale.
    """
    written = read_spec(root)
    names: list[str] = sorted(written.spec.accelerators)
    if accelerator:
        names = [choose(written.spec, accelerator)]
    if checking:
        return _check(written, names, annotate, deep=deep, as_json=as_json)
    with Console(quiet=quiet or as_json) as console:
        result = renew(written, names, console, upgrade=() if upgrade else (packages or None))
    if as_json:
        print_json({"lock": result.lock.tree(), "renewed": result.renewed, "warnings": result.warnings})
        return 0
    for line in _summary(result, names):
        click.echo(line)
    return 0
