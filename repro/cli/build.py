"""`repro build`: Lock to Image."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.files import write_atomic
from repro.build.build import build_image
from repro.build.plan import make_plan
from repro.cli import options
from repro.cli.annotating import Annotate, annotated, place_of
from repro.cli.checking import check_build, read_signed, say_check
from repro.cli.console import Console, print_json
from repro.cli.flow import bring
from repro.cli.project import file_cache, locked_project
from repro.cli.shipping import push_built
from repro.report.annotations import build_annotations
from repro.report.junit import junit_build_xml
from repro.report.words import count, size

__all__ = ["command"]


@click.command("build")
@options.project
@options.accelerator
@click.option("--fresh", is_flag=True, help="Build from nothing, even where the engine holds the image.")
@click.option("--check", "checking", is_flag=True, help="Rebuild from nothing and explain every difference.")
@click.option(
    "--against",
    metavar="RUN",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="With --check: rebuild from this run's signed lock, and hold it to the image that was signed.",
)
@options.optional_trust
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
    against: Path | None,
    trust_file: Path | None,
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
    --against a signed run does it from the lock, and for the image, that were
    signed; differences that its signed repro.yaml calls benign are no failure.
    --push names the image in a registry by the digest that a run is signed
    with; credentials are those of `docker login`.

    \b
    Example:  repro build -a cpu
              repro build -a cpu --check --junit build.xml
              repro build --check --against manifests/pilot.cpu --trust trust.yaml
              repro build -a cpu --push registry.example/team/pilot:v1
    Exit codes: 0 built or the same, 1 could not do it, 2 usage, 3 differs.
    """
    if checking and push_to is not None:
        raise click.UsageError("--check and --push are two commands: check first, then push what is held")
    if junit_to is not None and not checking:
        raise click.UsageError("--junit is for --check")
    if against is not None and not (checking and trust_file):
        raise click.UsageError("--against is for --check, and needs --trust")
    signed = read_signed(against, trust_file, root) if against and trust_file else None
    if signed is not None:
        written, locked, name = signed.written, signed.locked, signed.accelerator
    else:
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
        if checking:
            own = written.spec.build.benign if written.spec.build else ()
            checked = check_build(
                plan, build, signed, own, engine=engine, cache=file_cache(), console=console
            )
            found = (checked.first, checked.again, checked.packages)
            if not checked.holds:
                annotate(build_annotations(*found, place_of(written.root / plan.dockerfile.path)))
            if junit_to is not None:
                text = junit_build_xml(*found, name=f"{written.spec.name} ({name})")
                write_atomic(junit_to, text.encode())
            return say_check(checked, as_json=as_json)
        record = build(fresh=fresh)
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
