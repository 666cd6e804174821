"""Plan → image: classic build, save, normalise, load, and proof that the engine holds just that."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from repro.build.context import check_inputs, context_chunks, installed_size
from repro.build.graft import graft, held_stock, keep_stock
from repro.build.load import image_name, load_image
from repro.build.normalise import canonical_layer
from repro.build.oci import Layer, image_config, image_manifest
from repro.build.record import write_record
from repro.build.saved import SavedImage, SavedLayer, Window, open_saved
from repro.digest import canonical_json, digest_bytes, hex_of, pretty_json
from repro.errors import BuildError, ReproError
from repro.image import BuilderRecord, BuildPlan, EngineInfo, HeldImage, ImageIdentity, ImageRecord
from repro.ports import Cache, Engine, Progress

__all__ = ["build_image", "held_record"]

_SLACK_BYTES = 256 << 20


def _record_path(plan: BuildPlan, cache: Cache) -> Path:
    return cache.folder / "images" / f"{hex_of(plan.digest)}.json"


def held_record(plan: BuildPlan, *, engine: Engine, cache: Cache) -> ImageRecord | None:
    """Return the record of an earlier build of this very plan, if the engine still holds its image."""
    try:
        record = ImageRecord.model_validate_json(_record_path(plan, cache).read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    held = engine.find(record.identity.config_digest, diff_ids=record.identity.diff_ids)
    if held is None or held.diff_ids not in (None, record.identity.diff_ids):
        return None
    return record


def _base(plan: BuildPlan, engine: Engine, progress: Progress) -> HeldImage:
    """Return the locked base, fetched by digest where the engine has not got it."""
    held = engine.find(plan.base_config_digest, diff_ids=plan.base_diff_ids)
    if held is None and plan.base_manifest_digest is not None:
        name = plan.base_reference.partition("@")[0]
        progress.start(f"fetching {name}")
        engine.pull(f"{_untagged(name)}@{plan.base_manifest_digest}", on_line=progress.line)
        held = engine.find(plan.base_config_digest, diff_ids=plan.base_diff_ids)
    if held is None:
        raise BuildError(
            "base-absent",
            f"the engine does not hold the locked base {plan.base_reference}",
            where=plan.base_config_digest,
            remedy="load or pull that image, or lock the base that is there now with `repro lock`",
        )
    return held


def _untagged(name: str) -> str:
    head, colon, tail = name.rpartition(":")
    return head if colon and "/" not in tail else name


def _require_space(folder: Path, needed: int, what: str) -> None:
    free = shutil.disk_usage(folder).free
    if free < needed:
        raise BuildError(
            "disk-full",
            f"{what} needs about {needed / 1e9:.1f} GB and {free / 1e9:.1f} GB are free",
            where=str(folder),
            remedy="free some space, or move the folder to a larger disk",
        )


def _check_space(plan: BuildPlan, base: HeldImage, info: EngineInfo, cache: Cache) -> None:
    """Check the disk before hours are spent: the engine's folder, where we can see it, and ours."""
    wheels = sum(wheel.size for wheel in plan.wheels)
    installed = installed_size(plan, cache)
    scratch = base.size + 2 * installed + _SLACK_BYTES
    engine = 2 * wheels + 3 * installed + _SLACK_BYTES
    root = Path(info.data_root) if info.data_root and Path(info.data_root).exists() else None
    if root is not None and root.stat().st_dev == cache.folder.stat().st_dev:
        _require_space(cache.folder, scratch + engine, "building this image")
        return
    _require_space(cache.folder, scratch, "normalising this image")
    if root is not None:
        _require_space(root, engine, "building this image in the engine")


def _spool(chunks: Iterable[bytes], path: Path, progress: Progress) -> None:
    with path.open("wb") as file:
        for chunk in chunks:
            file.write(chunk)
            progress.advance(len(chunk))


def _rewrite(layer: SavedLayer, plan: BuildPlan, folder: Path, progress: Progress) -> Layer | None:
    """Write one layer in its canonical form; None where it holds nothing."""
    layer.check()
    state, size = hashlib.sha256(), 0
    path = folder / f"layer-{hex_of(layer.diff_id)}.tar"
    with layer.path.open("rb") as source, path.open("wb") as file:
        window: Any = Window(source, layer.offset, layer.size)
        for chunk in canonical_layer(window, epoch=plan.epoch, where=layer.diff_id):
            file.write(chunk)
            state.update(chunk)
            size += len(chunk)
            progress.advance(len(chunk))
    diff_id = f"sha256:{state.hexdigest()}"
    return Layer(diff_id, size, SavedLayer(diff_id, path, 0, size).chunks) if size else None


def _normalise(
    saved: SavedImage, plan: BuildPlan, info: EngineInfo, folder: Path, progress: Progress
) -> tuple[bytes, list[Layer]]:
    """Keep the base's layers, rewrite ours, and write the config."""
    count = len(plan.base_diff_ids)
    base, ours = saved.layers[:count], saved.layers[count:]
    if tuple(layer.diff_id for layer in base) != plan.base_diff_ids:
        raise BuildError(
            "base-differs",
            "the built image does not stand on the locked base",
            where=plan.dockerfile.path,
            remedy="let every stage of the Dockerfile start FROM ${BASE}",
        )
    progress.start("normalising", sum(layer.size for layer in ours))
    leave_out = info.store == "graphdriver"
    layers = [Layer(layer.diff_id, layer.size, None if leave_out else layer.chunks) for layer in base]
    layers += [new for layer in ours if (new := _rewrite(layer, plan, folder, progress)) is not None]
    config = image_config(
        saved.config, [layer.diff_id for layer in layers], base_layers=count, epoch=plan.epoch
    )
    return canonical_json(config), layers


def _identity(config: bytes, layers: list[Layer], saved: Mapping[str, Any]) -> ImageIdentity:
    return ImageIdentity(
        config_digest=digest_bytes(config),
        manifest_digest=digest_bytes(image_manifest(config, layers)),
        diff_ids=tuple(layer.diff_id for layer in layers),
        os=saved["os"],
        architecture=saved["architecture"],
        size=sum(layer.size for layer in layers),
        layer_sizes=tuple(layer.size for layer in layers),
    )


@contextmanager
def _raw_image(
    plan: BuildPlan, base: HeldImage, engine: Engine, cache: Cache, root: Path, progress: Progress
) -> Iterator[str]:
    """Build, and remove what was built when done with it."""
    size = sum(file.size for file in (plan.pip, *plan.wheels, *plan.source))
    progress.start("building", size)
    context = context_chunks(plan, root=root, cache=cache, on_bytes=progress.advance)

    def note(line: str) -> None:
        if line.startswith("Step "):
            progress.advance(0, note=line)

    raw = engine.build(context, arguments={**plan.arguments, "BASE": base.id}, on_line=note)
    try:
        yield raw
    finally:
        with suppress(ReproError):
            engine.remove(raw)


def build_image(
    plan: BuildPlan, *, engine: Engine, cache: Cache, root: Path, progress: Progress, fresh: bool = False
) -> ImageRecord:
    """Build the image of a plan, or return the one the engine already holds.

    Args:
        root: the project's folder: the Dockerfile and the source lie below it.
        fresh: build again from nothing, even where the engine holds the image or one that differs in its
            source alone.

    Raises:
        BuildError: a file is missing or changed, the base is absent, a step failed, the disk is too small,
            or the engine loaded something else.
        EngineError: the engine went away.
    """
    if not fresh and (record := held_record(plan, engine=engine, cache=cache)) is not None:
        return record
    check_inputs(plan, root=root, cache=cache)
    name = image_name(plan.name, plan.accelerator)
    if not fresh and (stock := held_stock(plan, engine=engine, cache=cache)) is not None:
        config, layers = graft(plan, stock, root=root)
        load_image(engine, config, layers, name=name, progress=progress)
        platform = {"os": stock.record.identity.os, "architecture": stock.record.identity.architecture}
        record = stock.record.model_copy(
            update={"identity": _identity(config, layers, platform), "plan_digest": plan.digest}
        )
        write_record(_record_path(plan, cache), pretty_json(record.tree()))
        return record
    info = engine.info()
    base = _base(plan, engine, progress)
    scratch = cache.folder / "scratch"
    scratch.mkdir(parents=True, exist_ok=True)
    _check_space(plan, base, info, cache)
    with (
        tempfile.TemporaryDirectory(dir=scratch, prefix="build-") as temporary,
        _raw_image(plan, base, engine, cache, root, progress) as raw,
    ):
        folder = Path(temporary)
        progress.start("saving")
        _spool(engine.save(raw), folder / "saved.tar", progress)
        saved = open_saved(folder / "saved.tar", scratch=folder)
        config, layers = _normalise(saved, plan, info, folder, progress)
        load_image(engine, config, layers, name=name, progress=progress)
    record = ImageRecord(
        identity=_identity(config, layers, saved.config),
        plan_digest=plan.digest,
        base_layers=len(plan.base_diff_ids),
        builder=BuilderRecord(
            builder=engine.builder,
            engine=info.name,
            version=info.version,
            store=info.store,
            raw_id=raw,
            raw_diff_ids=tuple(layer.diff_id for layer in saved.layers),
        ),
        rules=plan.rules,
    )
    write_record(_record_path(plan, cache), pretty_json(record.tree()))
    keep_stock(plan, record, json.loads(config), cache=cache, root=root)
    return record
