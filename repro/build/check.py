"""Image → second opinion: its packages, file by file, against the wheels themselves."""

from __future__ import annotations

import csv
import hashlib
import io
import re
import tempfile
from pathlib import Path
from typing import Any, Literal

from repro.build.assemble import assemble_layer
from repro.build.compare_layers import Aspect, LayerFiles, compare_files
from repro.build.plan import VENV
from repro.build.saved import SavedLayer, Window, open_saved
from repro.errors import BuildError
from repro.image import BuildPlan, FileDifference, ImageRecord, LayerCheck
from repro.ports import Cache, Engine, Progress

__all__ = ["check_image", "explain"]

Reason = Literal["environment", "installer", "script", "unexplained"]

_PREFIX = VENV.lstrip("/")
_ENVIRONMENT = re.compile(
    rf"opt|{_PREFIX}(/(bin|lib|lib64|include(/python3\.\d+)?|lib/python3\.\d+(/site-packages)?|pyvenv\.cfg|\.gitignore"
    r"|bin/(python[\d.]*|[Aa]ctivate[.\w]*)))?"
)
"""What `python -m venv --without-pip` makes."""

_NOTES = re.compile(r".*\.dist-info/(INSTALLER|REQUESTED)")
_RECORD = re.compile(r".*\.dist-info/RECORD")
_SCRIPT = re.compile(rf"{_PREFIX}/bin/[^/]+")
_IMPORT = re.compile(rb"^from (\S+) import (\S+)$", re.MULTILINE)


def _entries(record: bytes) -> set[tuple[str, ...]]:
    """Lines of a RECORD that tell of the wheel: not the installer's notes, nor the scripts it wrote."""
    rows = csv.reader(io.StringIO(record.decode("utf-8", "replace")))
    own = ("INSTALLER", "REQUESTED", "RECORD")
    return {tuple(row) for row in rows if row and not row[0].endswith(own) and "/bin/" not in row[0]}


def _same_entry_point(expected: bytes, found: bytes) -> bool:
    """Whether two scripts start the same interpreter and import the same thing."""
    one, other = _IMPORT.findall(expected), _IMPORT.findall(found)
    return expected.partition(b"\n")[0] == found.partition(b"\n")[0] and len(one) == 1 and one == other


def explain(difference: Aspect, expected: LayerFiles, found: LayerFiles) -> Reason:
    """Say why a file differs, if what pip and venv do beside placing files accounts for it."""
    path, aspect = difference.path, difference.aspect
    if aspect == "presence" and difference.expected is None:
        if _ENVIRONMENT.fullmatch(path):
            return "environment"
        if _NOTES.fullmatch(path):
            return "installer"
    if aspect == "content" and _RECORD.fullmatch(path):
        return "installer" if _entries(expected.read(path)) == _entries(found.read(path)) else "unexplained"
    if aspect == "content" and _SCRIPT.fullmatch(path):
        return "script" if _same_entry_point(expected.read(path), found.read(path)) else "unexplained"
    return "unexplained"


def _layer_of_packages(image: str, record: ImageRecord, engine: Engine, folder: Path) -> SavedLayer:
    """Save the image and find the layer our first stage made: the first above the base."""
    archive = folder / "saved.tar"
    with archive.open("wb") as file:
        for chunk in engine.save(image):
            file.write(chunk)
    layers = open_saved(archive, scratch=folder).layers
    if (
        tuple(layer.diff_id for layer in layers) != record.identity.diff_ids
        or len(layers) <= record.base_layers
    ):
        raise BuildError(
            "image-differs",
            "the engine's image does not hold the layers that were recorded",
            where=record.identity.config_digest,
            remedy="remove the image from the engine and build it again",
        )
    layer = layers[record.base_layers]
    layer.check()
    return layer


def check_image(
    plan: BuildPlan, record: ImageRecord, *, engine: Engine, cache: Cache, progress: Progress
) -> LayerCheck:
    """Compare the packages of a built image with the locked wheels.

    Raises:
        BuildError: `image-absent` or `image-differs`, or the wheels cannot be assembled.
        EngineError: the engine went away.
    """
    held = engine.find(record.identity.config_digest, diff_ids=record.identity.diff_ids)
    if held is None:
        raise BuildError(
            "image-absent",
            "the engine does not hold the image that is to be checked",
            where=record.identity.config_digest,
            remedy="build it with `repro build`",
        )
    scratch = cache.folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=scratch, prefix="check-") as name:
        folder = Path(name)
        progress.start("assembling the packages from the wheels")
        digest = _write(plan, cache, folder)
        progress.start("reading the packages of the image")
        layer = _layer_of_packages(held.id, record, engine, folder)
        progress.start("comparing file by file")
        with (folder / "assembled.tar").open("rb") as ours, layer.path.open("rb") as theirs:
            window: Any = Window(theirs, layer.offset, layer.size)
            expected, found = LayerFiles(ours, "the assembled layer"), LayerFiles(window, layer.diff_id)
            differences = tuple(
                FileDifference(
                    path=item.path,
                    aspect=item.aspect,  # type: ignore[arg-type]
                    expected=item.expected,
                    found=item.found,
                    reason=explain(item, expected, found),
                )
                for item in compare_files(expected, found)
            )
            files = len(expected.members.keys() | found.members.keys())
    return LayerCheck(
        image=record.identity.config_digest,
        layer=layer.diff_id,
        assembled=digest,
        files=files,
        identical=files - len({difference.path for difference in differences}),
        differences=differences,
    )


def _write(plan: BuildPlan, cache: Cache, folder: Path) -> str:
    state = hashlib.sha256()
    with (folder / "assembled.tar").open("wb") as file:
        for chunk in assemble_layer(plan, cache=cache, scratch=folder):
            file.write(chunk)
            state.update(chunk)
    return f"sha256:{state.hexdigest()}"
