"""Tell two images apart, wherever they lie: in an engine, an archive, an OCI layout, or named by a run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.build.compare_images import compare_images
from repro.build.layout import open_layout
from repro.build.saved import SavedImage, open_saved
from repro.cli.console import Console, print_json
from repro.cli.pilot import scratch
from repro.cli.runs import read_manifest
from repro.errors import BuildError
from repro.image import ImageComparison
from repro.report.words import count, printable

__all__ = ["diff_images", "is_run", "say_differences"]

SHOWN = 20
"""Differences of each class that are printed without `--detail`."""


def is_run(name: str) -> bool:
    """Whether this names a run folder."""
    return (Path(name) / "manifest.json").is_file()


def _absent(name: str) -> BuildError:
    return BuildError(
        "image-absent",
        "no file or folder has this name, and the engine holds no such image",
        where=name,
        remedy="pull the image, or name an archive of `docker save` or an OCI image layout",
    )


def _from_engine(engine: DockerEngine, name: str, folder: Path) -> SavedImage:
    held = engine.find(name) if name.startswith("sha256:") else engine.inspect(name)
    if held is None:
        raise _absent(name)
    archive = folder / "saved.tar"
    with archive.open("wb") as file:
        for chunk in engine.save(held.id):
            file.write(chunk)
    return open_saved(archive, scratch=folder)


def _checked(image: SavedImage) -> SavedImage:
    """An archive may say of its layers what it likes: each is held to its digest."""
    for layer in image.layers:
        layer.check()
    return image


def _open(name: str, folder: Path) -> SavedImage:
    """Open what is named; what has to be unpacked lies in `folder`, which is made."""
    folder.mkdir()
    path = Path(name)
    if is_run(name):
        image = read_manifest(path).image
        if image is None:
            raise BuildError("image-absent", "this run was on the host, without an image", where=name)
        name = image.identity.config_digest
    elif path.is_dir():
        return open_layout(path, scratch=folder)
    elif path.is_file():
        return _checked(open_saved(path, scratch=folder))
    with DockerEngine.connect() as engine:
        return _from_engine(engine, name, folder)


@contextmanager
def _both(first: str, second: str, console: Console) -> Iterator[tuple[SavedImage, SavedImage]]:
    with scratch() as folder:
        images = []
        for number, name in enumerate((first, second)):
            console.start(f"reading {name}")
            images.append(_open(name, folder / str(number)))
        console.start("comparing file by file")
        yield images[0], images[1]


def diff_images(first: str, second: str, *, detail: bool, as_json: bool) -> int:
    """Say what differs between two images, class by class."""
    with Console(quiet=as_json) as console, _both(first, second, console) as (a, b):
        found = compare_images(a, b)
    if as_json:
        print_json({"same": found.same, **found.tree()})
    elif found.same:
        click.secho("same", fg="green", bold=True, nl=False)
        click.echo(f"  {count(len(found.first), 'layer')} and the config are equal")
    else:
        click.secho("differs", fg="red", bold=True, nl=False)
        click.echo("  " + ", ".join(f"{number} {name}" for name, number in found.counts.items()))
        say_differences(found, detail=detail)
    return 0 if found.same else 3


def say_differences(found: ImageComparison, *, detail: bool) -> None:
    """Print the differences class by class, the first of each, or all that were kept."""
    for kind in found.counts:
        told = [one for one in found.differences if one.kind == kind]
        for one in told if detail else told[:SHOWN]:
            values = f"{printable(str(one.first or 'absent'))} | {printable(str(one.second or 'absent'))}"
            benign = f" (benign: {printable(one.benign)})" if one.benign else ""
            click.echo(f"  {kind:20}{printable(one.path)}: {one.aspect}: {values}{benign}")
        if (more := found.counts[kind] - (len(told) if detail else min(SHOWN, len(told)))) > 0:
            click.echo(f"  {kind:20}… and {more} more{'' if detail else '; --detail prints them'}")
