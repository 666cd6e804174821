"""`repro image`: what an image, or a root filesystem made from one, holds."""

from __future__ import annotations

import os
from pathlib import Path

import click

from repro.adapters.docker_engine import DockerEngine
from repro.build.archive import open_archive
from repro.build.contents import image_listing
from repro.build.layout import open_layout
from repro.build.rootfs import FORMAT, Listing, contents_digest, walk
from repro.build.saved import SavedImage
from repro.cli import options
from repro.cli.console import Console, print_json
from repro.cli.pilot import scratch
from repro.cli.runs import read_manifest
from repro.cli.shipping import save_image
from repro.digest import is_digest
from repro.errors import BuildError, FileError

__all__ = ["command"]


def _absent(name: str) -> BuildError:
    return BuildError(
        "image-absent",
        "no file or folder has this name, and the engine holds no such image",
        where=name,
        remedy="pull the image, or name an archive, an OCI image layout, a run or a root filesystem",
    )


def _held(name: str, folder: Path) -> SavedImage:
    with DockerEngine.connect() as engine:
        held = engine.find(name) if is_digest(name) else engine.inspect(name)
        if held is None:
            raise _absent(name)
        return save_image(engine, held.id, folder)


def _image(name: str, folder: Path) -> SavedImage | None:
    """Open what is named; None where it is no image but a folder of files."""
    path = Path(name)
    if path.is_file():
        return open_archive(path, scratch=folder)
    if (path / "index.json").is_file() and (path / "blobs").is_dir():
        return open_layout(path, scratch=folder)
    if (path / "manifest.json").is_file():
        image = read_manifest(path).image
        if image is None:
            raise BuildError("image-absent", "this run was on the host, without an image", where=name)
        return _held(image.identity.config_digest, folder)
    return None if path.is_dir() else _held(name, folder)


def _below(name: str) -> Listing:
    try:
        return dict(walk(os.fsencode(name)))
    except OSError as error:
        raise FileError(
            "rootfs-unreadable",
            f"a file of the root filesystem cannot be read: {error.strerror}",
            where=os.fsdecode(error.filename or name),
            remedy="look at it as root, or as the one who unpacked it",
        ) from None


@click.group("image")
def command() -> None:
    """Say what an image, or a root filesystem made from one, holds.

    \b
    Example:  repro image digest repro-base:bookworm
    Exit codes: 0 yes, 1 could not do it, 2 usage, 3 no.
    """


@command.command("digest")
@click.argument("what", metavar="IMAGE|FOLDER")
@click.option("--expect", metavar="DIGEST", help="Exit with 3 where the content is another.")
@options.quiet
@options.as_json
def digest(what: str, expect: str | None, quiet: bool, as_json: bool) -> int:
    """Print one digest of all files, which converting an image does not change.

    WHAT is an image that the engine holds, an archive of `docker save`, an OCI
    image layout, a run folder, which stands for the image it ran in, or the
    folder of an unpacked root filesystem.

    \b
    Example:  repro image digest manifests/pilot.cpu
              repro image digest unpacked/ --expect sha256:…
    Exit codes: 0 printed, and as expected, 1 could not do it, 2 usage, 3 another content.
    """
    if expect is not None and not is_digest(expect):
        raise click.UsageError(f"--expect needs sha256: and 64 hex digits, not {expect!a}")
    with Console(quiet=quiet or as_json) as console, scratch() as folder:
        console.start(f"reading {what}")
        image = _image(what, folder)
        listing = image_listing(image) if image is not None else _below(what)
    found = contents_digest(listing)
    same = expect in (None, found)
    config = image.config_digest if image is not None else None
    if as_json:
        print_json({"contents": found, "format": FORMAT, "image": config, "same": same})
        return 0 if same else 3
    click.echo(f"contents {found}")
    click.echo(f"  of image {config}" if config else f"  of the folder {what}")
    if not same:
        click.secho("differs", fg="red", bold=True, nl=False)
        click.echo(f"  {expect} was expected")
    return 0 if same else 3
