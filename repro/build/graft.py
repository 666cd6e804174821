"""Another source on packages that are built already: only the last layer is new.

Our Dockerfiles end with a layer that holds the source and nothing else. A build
whose last layer is just what `source_chunks` writes proves that for its Dockerfile,
and is remembered. A plan that differs in its source alone is then made from that
image and one small layer, and has the id that a build from nothing would give it.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from repro.build.context import copy_file, folders_of
from repro.build.oci import Layer
from repro.build.record import write_record
from repro.build.tarball import DIRECTORY, END, Entry, header
from repro.digest import Digest, canonical_json, digest_json, digest_stream, hex_of, pretty_json
from repro.image import BuildPlan, ImageRecord
from repro.noun import Noun
from repro.ports import Cache, Engine

__all__ = ["Stock", "graft", "held_stock", "keep_stock"]


class Stock(Noun):
    """A built image whose last layer is its source."""

    record: ImageRecord
    config: dict[str, Any]
    """The image's config."""


def _without_source(plan: BuildPlan) -> Digest:
    tree = plan.tree()
    del tree["source"]
    return digest_json(tree)


def _path(plan: BuildPlan, cache: Cache) -> Path:
    return cache.folder / "images" / f"stock-{hex_of(_without_source(plan))}.json"


def source_chunks(plan: BuildPlan, root: Path) -> Iterator[bytes]:
    """Yield the layer that holds the plan's source below `/workspace`, owned by root, in canonical form."""
    files = {f"workspace/{file.path}": file for file in plan.source}
    folders = folders_of(list(files))
    for name in sorted({*files, *folders}):
        if name in folders:
            yield header(Entry(name=name.encode(), kind=DIRECTORY, mode=0o755), plan.epoch)
        else:
            yield from copy_file(name, root / files[name].path, files[name], plan.epoch)
    yield END


def source_layer(plan: BuildPlan, root: Path) -> Layer:
    """Describe the source's layer; call `check_inputs` first."""
    chunks = partial(source_chunks, plan, root)
    diff_id, size = digest_stream(chunks())
    return Layer(diff_id, size, chunks)


def keep_stock(
    plan: BuildPlan, record: ImageRecord, config: dict[str, Any], *, cache: Cache, root: Path
) -> None:
    """Remember a build for later plans; do nothing where its last layer is not the source alone."""
    own = len(record.identity.diff_ids) - record.base_layers
    if own >= 2 and record.identity.diff_ids[-1] == source_layer(plan, root).diff_id:
        write_record(_path(plan, cache), pretty_json(Stock(record=record, config=config).tree()))


def held_stock(plan: BuildPlan, *, engine: Engine, cache: Cache) -> Stock | None:
    """Return what the plan can be grafted on, if the engine still holds it and takes its layers by name."""
    if engine.info().store != "graphdriver":
        return None
    try:
        stock = Stock.model_validate_json(_path(plan, cache).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    identity = stock.record.identity
    held = engine.find(identity.config_digest, diff_ids=identity.diff_ids)
    return stock if held is not None and held.diff_ids == identity.diff_ids else None


def graft(plan: BuildPlan, stock: Stock, *, root: Path) -> tuple[bytes, list[Layer]]:
    """Return config and layers of the plan's image; all layers but the last are the engine's already."""
    identity = stock.record.identity
    kept = zip(identity.diff_ids[:-1], identity.layer_sizes[:-1], strict=True)
    layers = [Layer(diff_id, size, None) for diff_id, size in kept]
    layers.append(source_layer(plan, root))
    diff_ids = [layer.diff_id for layer in layers]
    config = {**stock.config, "rootfs": {**stock.config["rootfs"], "diff_ids": diff_ids}}
    return canonical_json(config), layers
