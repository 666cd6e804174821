"""`repro build`: Lock to Image."""

from __future__ import annotations

from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.build.build import build_image
from repro.build.plan import make_plan
from repro.cli import options
from repro.cli.console import Console, print_json
from repro.cli.flow import bring
from repro.cli.project import file_cache, locked_project
from repro.report.words import count, size

__all__ = ["command"]


@click.command("build")
@options.project
@options.accelerator
@click.option("--fresh", is_flag=True, help="Build again, even where the engine holds the image.")
@options.quiet
@options.as_json
def command(root: Path, accelerator: str | None, fresh: bool, quiet: bool, as_json: bool) -> None:
    """Build the locked image, bit for bit repeatable.

    Everything comes from the lock and the cache; the build has no network.

    \b
    Example:  repro build -a cpu
    Exit codes: 0 built, 1 could not do it, 2 usage.
    """
    written, locked, name = locked_project(root, accelerator)
    with Console(quiet=quiet) as console, DockerEngine.connect() as engine:
        bring(written, locked, [name], console)
        plan = make_plan(locked.lock, name)
        record = build_image(
            plan, engine=engine, cache=file_cache(), root=written.root, progress=console, fresh=fresh
        )
    if as_json:
        print_json(record.tree())
        return
    identity = record.identity
    click.echo(f"image {identity.config_digest}")
    layers = f"{count(len(identity.diff_ids), 'layer')}, {record.base_layers} of the base"
    click.echo(f"  {identity.os}/{identity.architecture}, {layers}, {size(identity.size)}")
