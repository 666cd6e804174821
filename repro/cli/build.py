"""`repro build`: Lock to Image."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.files import write_atomic
from repro.build.build import build_image
from repro.build.check import check_image
from repro.build.plan import make_plan
from repro.cli import options
from repro.cli.annotating import Annotate, annotated, place_of
from repro.cli.console import Console, print_json
from repro.cli.flow import bring
from repro.cli.project import file_cache, locked_project
from repro.cli.shipping import push_built
from repro.image import ImageRecord, LayerCheck
from repro.report.annotations import build_annotations
from repro.report.junit import junit_build_xml
from repro.report.words import count, printable, size

__all__ = ["command"]


@click.command("build")
@options.project
@options.accelerator
@click.option("--fresh", is_flag=True, help="Build from nothing, even where the engine holds the image.")
@click.option("--check", "checking", is_flag=True, help="Rebuild from nothing and explain every difference.")
@click.option(
    "--builder",
    type=click.Choice(["classic", "buildkit"]),
    default="classic",
    show_default=True,
    help="What builds. BuildKit needs the docker command and is quicker; the image is the same.",
)
@click.option(
    "--push",
    "push_to",
    metavar="REFERENCE",
    help="Push the image to `[oci://]REGISTRY/REPOSITORY[:TAG]`, and read its digests back.",
)
@click.option(
    "--junit",
    "junit_to",
    type=click.Path(path_type=Path, dir_okay=False),
    help="With --check: write what it found as JUnit XML too.",
)
@options.quiet
@options.as_json
@annotated
def command(
    root: Path,
    accelerator: str | None,
    fresh: bool,
    checking: bool,
    builder: str,
    push_to: str | None,
    junit_to: Path | None,
    quiet: bool,
    as_json: bool,
    annotate: Annotate,
) -> int:
    """Build the locked image, bit for bit repeatable.

    Everything comes from the lock and the cache; the build has no network.
    --check builds once more from nothing, and compares every file of the
    packages with the layer assembled straight from the locked wheels.
    --push names the image in a registry by the digest that a run is signed
    with; credentials are those of `docker login`.

    \b
    Example:  repro build -a cpu
              repro build -a cpu --check --junit build.xml
              repro build -a cpu --push registry.example/team/pilot:v1
    Exit codes: 0 built or the same, 1 could not do it, 2 usage, 3 differs.
    """
    if checking and push_to is not None:
        raise click.UsageError("--check and --push are two commands: check first, then push what is held")
    if junit_to is not None and not checking:
        raise click.UsageError("--junit is for --check")
    written, locked, name = locked_project(root, accelerator)
    with (
        Console(quiet=quiet or as_json) as console,
        DockerEngine.connect(buildkit=builder == "buildkit") as engine,
    ):
        bring(written, locked, [name], console)
        plan = make_plan(locked.lock, name)
        build = partial(
            build_image, plan, engine=engine, cache=file_cache(), root=written.root, progress=console
        )
        record = build(fresh=fresh)
        if checking:
            again = build(fresh=True)
            check = check_image(plan, again, engine=engine, cache=file_cache(), progress=console)
            dockerfile = place_of(written.root / plan.dockerfile.path)
            annotate(build_annotations(record, again, check, dockerfile))
            if junit_to is not None:
                text = junit_build_xml(record, again, check, name=f"{written.spec.name} ({name})")
                write_atomic(junit_to, text.encode())
            return _say_check(record, again, check, as_json=as_json)
        pushed = push_built(record, push_to, engine=engine, console=console) if push_to else None
    if as_json:
        print_json({**record.tree(), "pushed": pushed} if pushed else record.tree())
        return 0
    identity = record.identity
    click.echo(f"image {identity.config_digest}")
    layers = f"{count(len(identity.diff_ids), 'layer')}, {record.base_layers} of the base"
    click.echo(f"  {identity.os}/{identity.architecture}, {layers}, {size(identity.size)}")
    if pushed:
        click.echo(f"pushed {pushed}")
    return 0


def _say_check(first: ImageRecord, again: ImageRecord, check: LayerCheck, *, as_json: bool) -> int:
    same = first.identity == again.identity
    if as_json:
        print_json({"same": same, "first": first.tree(), "again": again.tree(), "packages": check.tree()})
    else:
        word, colour = ("identical", "green") if same else ("differs", "red")
        click.secho(word, fg=colour, bold=True, nl=False)
        click.echo(f"  {first.identity.config_digest}, rebuilt as {again.identity.config_digest}")
        explained = Counter(difference.reason for difference in check.differences)
        reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(explained.items())) or "none"
        click.echo(f"  packages      {check.identical} of {check.files} entries are the wheels' own")
        click.echo(f"  differences   {reasons}")
        for difference in check.differences:
            if difference.reason == "unexplained":
                values = f"expected {difference.expected}, found {difference.found}"
                click.echo(f"  unexplained   {printable(difference.path)}: {difference.aspect}, {values}")
    return 0 if same and check.explained else 3
