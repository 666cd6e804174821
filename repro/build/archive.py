"""Read an image from a file: what `docker save` wrote, or an OCI image layout in a tar, packed or not."""

from __future__ import annotations

import gzip
import posixpath
import re
import shutil
import tarfile
import zlib
from pathlib import Path

from repro.build.layout import open_layout
from repro.build.saved import SavedImage, open_saved
from repro.digest import CHUNK_BYTES
from repro.errors import BuildError

__all__ = ["open_archive"]

_GZIP = b"\x1f\x8b"
_LAYOUT = re.compile(r"index\.json|blobs/sha256/[0-9a-f]{64}")
"""The members of a layout that are read; nothing else is unpacked."""


def _malformed(reason: str, path: Path) -> BuildError:
    return BuildError(
        "archive-malformed",
        f"this is no archive of an image, or not all of one: {reason}",
        where=str(path),
        remedy="save the image once more, or copy the file again",
    )


def open_archive(path: Path, *, scratch: Path, wanted: str | None = None) -> SavedImage:
    """Read an archive of one image; every layer is held to its digest.

    Args:
        path: tar or tar.gz, by its bytes and not by its name.
        scratch: folder for what has to be unpacked.
        wanted: digest of the manifest to take where an OCI index names several.

    Raises:
        BuildError: `archive-malformed`.
    """
    try:
        plain = _unpacked(path, scratch)
        with tarfile.open(plain, "r:") as archive:
            members = {posixpath.normpath(member.name): member for member in archive}
            docker = "manifest.json" in members
            if not docker:
                _unpack_layout(archive, members, scratch / "layout")
        if not docker:
            return open_layout(scratch / "layout", scratch=scratch, wanted=wanted)
        image = open_saved(plain, scratch=scratch)
        for layer in image.layers:
            layer.check()
    except (tarfile.TarError, gzip.BadGzipFile, zlib.error, EOFError, ValueError) as error:
        raise _malformed(str(error), path) from None
    except BuildError as error:
        raise _malformed(error.message, path) from None
    return image


def _unpacked(path: Path, scratch: Path) -> Path:
    with path.open("rb") as stream:
        if stream.read(2) != _GZIP:
            return path
    plain = scratch / "archive.tar"
    with gzip.open(path) as packed, plain.open("wb") as file:
        shutil.copyfileobj(packed, file, CHUNK_BYTES)
    return plain


def _unpack_layout(archive: tarfile.TarFile, members: dict[str, tarfile.TarInfo], root: Path) -> None:
    (root / "blobs" / "sha256").mkdir(parents=True)
    if "index.json" not in members:
        raise ValueError("it has neither a manifest.json nor an index.json")
    for name, member in members.items():
        if _LAYOUT.fullmatch(name) and (stream := archive.extractfile(member)) is not None:
            with (root / name).open("xb") as file:
                shutil.copyfileobj(stream, file, CHUNK_BYTES)
