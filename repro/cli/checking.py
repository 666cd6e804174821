"""`repro build --check`: build from nothing, and say how that differs from what was built, or signed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.attest.verify import Demands
from repro.build.benign import mark_benign
from repro.build.check import check_image
from repro.build.compare_images import compare_images
from repro.cli.console import Console, print_json
from repro.cli.images import say_differences
from repro.cli.kept import signed_project
from repro.cli.pilot import scratch
from repro.cli.project import Locked, Written
from repro.cli.shipping import save_image
from repro.cli.verifying import verify_folder
from repro.errors import BuildError, TrustError
from repro.image import BuildPlan, ImageComparison, ImageRecord, LayerCheck
from repro.ports import Cache
from repro.report.words import printable
from repro.spec import BenignSpec

__all__ = ["Checked", "Signed", "check_build", "read_signed", "say_check"]


@dataclass(frozen=True, slots=True)
class Signed:
    """A verified run: the image it names, and the spec and lock it was made from."""

    image: ImageRecord
    written: Written
    locked: Locked
    accelerator: str

    @property
    def benign(self) -> tuple[BenignSpec, ...]:
        """Differences that its signer calls harmless."""
        return self.written.spec.build.benign if self.written.spec.build else ()


def read_signed(run: Path, trust: Path, root: Path) -> Signed:
    """Verify a run and read what it was made from; source is that of the project at `root`.

    Raises:
        TrustError: the run is not verified.
        BuildError: `image-absent` where it ran without an image.
    """
    verification = verify_folder(run, trust, Demands(replays=False))
    if verification.manifest is None:
        raise TrustError(verification.code or "E_POLICY", "the run is not verified", where=str(run))
    manifest = verification.manifest.manifest
    if manifest.image is None:
        raise BuildError("image-absent", "this run was on the host, without an image", where=str(run))
    return Signed(manifest.image, *signed_project(run, manifest, root), manifest.accelerator)


@dataclass(frozen=True, kw_only=True, slots=True)
class Checked:
    """Two builds of one plan, and the packages of the second."""

    first: ImageRecord
    again: ImageRecord
    packages: LayerCheck
    differences: ImageComparison | None
    """Null where the two are one image, and where the engine no longer holds the first."""
    signed: bool
    """Whether the first is that of a verified run, whose list of harmless differences counts."""

    @property
    def same(self) -> bool:
        """Whether both are one image."""
        return self.first.identity == self.again.identity

    @property
    def holds(self) -> bool:
        """Whether nothing differs but what the signer calls harmless, and packages are the wheels' own."""
        harmless = self.signed and self.differences is not None and self.differences.harmless
        return (self.same or harmless) and self.packages.explained


def check_build(
    plan: BuildPlan,
    build: Callable[..., ImageRecord],
    signed: Signed | None,
    benign: tuple[BenignSpec, ...],
    *,
    engine: DockerEngine,
    cache: Cache,
    console: Console,
) -> Checked:
    """Build from nothing and compare: image with image, and packages with the wheels.

    Args:
        build: builds the plan; takes `fresh`.
        signed: the run whose image counts; None compares with an earlier build, or a second one.
        benign: the list to mark differences by.

    Raises:
        BuildError: the image cannot be built or read.
        EngineError: the engine went away.
    """
    first = signed.image if signed else build(fresh=False)
    again = build(fresh=True)
    packages = check_image(plan, again, engine=engine, cache=cache, progress=console)
    differences = None
    if first.identity != again.identity:
        console.start("comparing both images, file by file")
        differences = _compared(first, again, engine)
        differences = mark_benign(differences, benign) if differences else None
    return Checked(
        first=first, again=again, packages=packages, differences=differences, signed=signed is not None
    )


def _compared(first: ImageRecord, again: ImageRecord, engine: DockerEngine) -> ImageComparison | None:
    """Compare what the engine holds of both; None where it holds only one."""
    images = []
    with scratch() as folder:
        for name, one in (("first", first), ("again", again)):
            held = engine.find(one.identity.config_digest, diff_ids=one.identity.diff_ids)
            if held is None:
                return None
            place = folder / name
            place.mkdir()
            images.append(save_image(engine, held.id, place))
        return compare_images(*images, base_layers=first.base_layers)


def say_check(checked: Checked, *, as_json: bool) -> int:
    """Print what came of it; return the exit code."""
    if as_json:
        differences = checked.differences
        print_json(
            {
                "same": checked.same,
                "holds": checked.holds,
                "signed": checked.signed,
                "first": checked.first.tree(),
                "again": checked.again.tree(),
                "differences": differences.tree() if differences else None,
                "packages": checked.packages.tree(),
            }
        )
    else:
        _say_images(checked)
        _say_packages(checked.packages)
    return 0 if checked.holds else 3


def _say_images(checked: Checked) -> None:
    first, again = checked.first.identity.config_digest, checked.again.identity.config_digest
    word, colour = ("identical", "green") if checked.same else ("differs", "red")
    click.secho(word, fg=colour, bold=True, nl=False)
    click.echo(f"  {first}{', as it was signed' if checked.signed else ''}, rebuilt as {again}")
    if checked.same:
        return
    if checked.differences is None:
        click.echo("  files         not compared: the engine does not hold the first image")
        return
    say_differences(checked.differences, detail=False)
    named = sum(one.benign is not None for one in checked.differences.differences)
    if named and not checked.signed:
        click.echo(f"  benign        {named} by a repro.yaml that nobody signed: --against a run that is")
    elif named:
        click.echo(f"  benign        {named} of {sum(checked.differences.counts.values())}, as it was signed")


def _say_packages(check: LayerCheck) -> None:
    explained = Counter(difference.reason for difference in check.differences)
    reasons = ", ".join(f"{number} {reason}" for reason, number in sorted(explained.items())) or "none"
    click.echo(f"  packages      {check.identical} of {check.files} entries are the wheels' own")
    click.echo(f"  differences   {reasons}")
    for difference in check.differences:
        if difference.reason == "unexplained":
            values = f"expected {difference.expected}, found {difference.found}"
            click.echo(f"  unexplained   {printable(difference.path)}: {difference.aspect}, {values}")
