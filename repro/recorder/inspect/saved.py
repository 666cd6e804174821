"""Opens a checkpoint in a process of its own, and lists what it finds there.

    python saved.py CHECKPOINT LISTING.json

A checkpoint is a file or a folder: `torch.save` files of any name, safetensors, folders of
`torch.distributed.checkpoint`, of Transformers, accelerate and Lightning. Parts are recognised by
their structure first and by their name second. Files are opened with `weights_only` first; only where
that is refused, and because this runs in the pilot's own confinement, are they opened without.
Needs the standard library and torch.
"""

from __future__ import annotations

import json
import pickle
import re
import struct
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch

__all__ = ["look"]

_TORCH_ENDINGS = {".bin", ".ckpt", ".pkl", ".pt", ".pth", ".tar", ".model"}
_DEEPEST = 7
_MOST_PLACES = 16
_MOST_NAMES = 20_000
_CPU_STATE = 5056
"""Bytes of the state of torch's CPU generator."""

_STEP = re.compile(
    r"(?i)(global_?|train_?|num_?|current_?|optimizer_?)?(steps?|iter(ation)?s?)(_completed)?$"
)
_CONFIGURATION = re.compile(
    r"(?i)(model_|training_|train_)?(config(uration)?|cfg|args|arguments|hparams|hyper_?parameters)$"
)
_CONFIGURATION_FILES = re.compile(
    r"(?i)((.*_)?config\.json|training_args\.bin|hparams\.ya?ml|config\.ya?ml)$"
)
_POSITION = re.compile(
    r"(?i)(.*sampler.*|(train_?)?(data_?)?loaders?(_state.*)?|data|dl_state_dict.*|dataset_state|position"
    r"|consumed_.*|samples_seen|batch(es)?_(seen|used|idx|index)|batch_idx|tokens_seen|loops|trainer_state)$"
)
_AVERAGE = re.compile(r"(?i)(.*_)?(ema|swa|average[ds]?)(_.*)?$")
_DEVICE = re.compile(r"(?i).*(cuda|device|hip|xpu|accelerator|gpu).*")
_NUMPY = re.compile(r"(?i).*(numpy|np_).*")


def _is_numbers(value: Any, least: int) -> bool:
    return isinstance(value, (list, tuple)) and len(value) >= least and all(type(v) is int for v in value[:8])


def _kind_of_mapping(value: Mapping[Any, Any], name: str) -> str | None:
    keys = {key for key in value if isinstance(key, str)}
    if {"state", "param_groups"} <= keys:
        return "optimizer"
    if {"scale", "growth_factor", "backoff_factor"} <= keys:
        return "scaler"
    if "last_epoch" in keys and keys & {"_step_count", "_last_lr", "base_lrs"}:
        return "scheduler"
    if "bit_generator" in keys:
        return "rng.numpy"
    tensors = [item for item in value.values() if isinstance(item, torch.Tensor)]
    weights = [item for item in tensors if item.is_floating_point() and item.dim()]
    if weights and 2 * len(tensors) > len(value) and all(isinstance(key, str) for key in value):
        return "average" if _AVERAGE.fullmatch(name) else "model"
    return None


def _kind_of_sequence(value: Any) -> str | None:
    if len(value) == 3 and value[0] == 3 and _is_numbers(value[1], 625):
        return "rng.python"
    first = value[0] if len(value) else None
    if isinstance(first, str) and first == "MT19937":
        return "rng.numpy"
    return None


def _kind_of_leaf(value: Any, name: str) -> str | None:
    if isinstance(value, torch.Tensor) and value.dtype == torch.uint8:
        if value.numel() == _CPU_STATE:
            return "rng.torch"
        return "rng.accelerators" if value.numel() == 16 or _DEVICE.fullmatch(name) else None
    whole = type(value) is int or (
        isinstance(value, torch.Tensor) and value.numel() == 1 and not value.is_floating_point()
    )
    return "step" if whole and _STEP.fullmatch(name) else None


def _named(value: Any, name: str) -> str | None:
    """Recognise by name what has no structure of its own; nothing is nothing, and a tensor is neither."""
    if value is None or isinstance(value, torch.Tensor) or (hasattr(value, "__len__") and not len(value)):
        return None
    if _CONFIGURATION.fullmatch(name):
        return "configuration"
    if _POSITION.fullmatch(name):
        return "position"
    return "rng.numpy" if _NUMPY.fullmatch(name) and not isinstance(value, int) else None


def _plain(value: Any) -> Any:
    """Objects with a state of their own as that state."""
    if isinstance(value, torch.nn.Module):
        return dict(value.state_dict())
    if not isinstance(value, (Mapping, list, tuple, torch.Tensor, str, bytes, int, float, type(None), type)):
        return getattr(value, "__dict__", value)
    return value


def _walk(value: Any, path: str, name: str, depth: int) -> Iterator[tuple[str, str, Any]]:
    """Yield kind, place and value of everything recognised; nothing is sought within it."""
    value = _plain(value)
    kind = None
    if isinstance(value, Mapping):
        kind = _kind_of_mapping(value, name)
    elif isinstance(value, (list, tuple)):
        kind = _kind_of_sequence(value)
    else:
        kind = _kind_of_leaf(value, name)
    kind = kind or _named(value, name)
    if kind is not None:
        yield kind, path or ".", value
        if kind not in ("position", "configuration"):
            return
    if depth and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _walk(item, f"{path}/{key}" if path else str(key), str(key), depth - 1)
    elif depth and isinstance(value, (list, tuple)) and len(value) <= 4096:
        for at, item in enumerate(value):
            yield from _walk(item, f"{path}/{at}" if path else str(at), name, depth - 1)


def _load(path: Path) -> tuple[Any, str]:
    """Return what a `torch.save` file holds, and how it was opened."""
    try:
        return torch.load(path, map_location="cpu", weights_only=True), "weights_only"
    except pickle.UnpicklingError:
        return torch.load(path, map_location="cpu", weights_only=False), "unrestricted"


def _safetensors(path: Path) -> dict[str, Any]:
    """Return a tensor without memory for each name in the header of a safetensors file."""
    with path.open("rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        if length > min(100 << 20, path.stat().st_size):
            raise ValueError("the header is longer than the file")
        header = json.loads(file.read(length))
    return {
        name: torch.empty(entry["shape"], device="meta")
        for name, entry in header.items()
        if name != "__metadata__"
    }


def _distributed(folder: Path, scratch: Path) -> Any:
    """Return what a folder of `torch.distributed.checkpoint` holds, its shards put together."""
    from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

    with tempfile.TemporaryDirectory(dir=scratch) as name:
        whole = Path(name) / "whole.pt"
        dcp_to_torch_save(folder, whole)
        return torch.load(whole, map_location="cpu", weights_only=False)


class _Listing:
    """What was found so far."""

    def __init__(self) -> None:
        self.parts: dict[str, list[str]] = {}
        self.files: list[dict[str, Any]] = []
        self.names: list[str] = []
        self.counts: dict[str, int] = {}

    def take(self, value: Any, place: str, name: str) -> None:
        """Recognise everything in one file's content."""
        for kind, path, found in _walk(value, "", name, _DEEPEST):
            self.note(kind, f"{place}:{path}" if path != "." else place)
            if kind == "model" and len(self.names) < _MOST_NAMES:
                self.names += [str(key) for key in found]

    def note(self, kind: str, place: str) -> None:
        """Something of a kind lies at a place."""
        self.counts[kind] = self.counts.get(kind, 0) + 1
        places = self.parts.setdefault(kind, [])
        if len(places) < _MOST_PLACES:
            places.append(place)

    def open(self, path: Path, place: str, scratch: Path) -> None:
        """Open one file, or one folder of shards, and say how that went."""
        how, error = None, None
        try:
            if path.is_dir():
                value, how = _distributed(path, scratch), "distributed"
            elif path.suffix == ".safetensors":
                value, how = _safetensors(path), "safetensors"
            elif path.suffix == ".json":
                value, how = json.loads(path.read_text(encoding="utf-8")), "json"
            else:
                value, how = _load(path)
            self.take(value, place, path.stem)
        except Exception as failure:  # noqa: BLE001 - whatever a file does to its reader is what is reported
            error = f"{type(failure).__name__}: {failure}".splitlines()[0][:300]
        self.files.append({"path": place, "opened": how, "error": error})


def _sources(root: Path) -> Iterator[tuple[Path, str]]:
    """Yield every file to open, and every folder of shards in place of its files."""
    if root.is_file():
        yield root, root.name
        return
    sharded = {metadata.parent for metadata in root.rglob(".metadata")}
    for folder in sorted(sharded):
        yield folder, folder.relative_to(root).as_posix()
    for path in sorted(path for path in root.rglob("*") if path.is_file()):
        if not sharded & {path.parent, *path.parents}:
            yield path, path.relative_to(root).as_posix()


def look(root: Path, scratch: Path) -> dict[str, Any]:
    """Open a checkpoint and list its parts.

    Args:
        root: file or folder.
        scratch: folder with room for a copy of it.

    Returns:
        `files` (path, how it was opened, error), `parts` (kind to places), `counts` (kind to number),
        `names` (of the model's tensors).
    """
    listing = _Listing()
    for path, place in _sources(root):
        if _CONFIGURATION_FILES.fullmatch(path.name):
            listing.note("configuration", place)
        known = path.is_dir() or path.suffix in _TORCH_ENDINGS | {".safetensors", ".json"} or root.is_file()
        if known and not path.name.endswith(".index.json"):
            listing.open(path, place, scratch)
    return {"files": listing.files, "parts": listing.parts, "counts": listing.counts, "names": listing.names}


if __name__ == "__main__":
    target = Path(sys.argv[2])
    found = look(Path(sys.argv[1]), target.parent)
    target.write_text(json.dumps(found, ensure_ascii=True, allow_nan=False), encoding="ascii")
