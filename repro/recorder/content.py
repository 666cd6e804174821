"""What an object holds, whatever it is: its tensors, and one digest of everything else."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["rest_digest", "tensors_in", "walk"]

_DEEPEST = 12


def tensors_in(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Yield the tensors in lists, tuples, mappings and dataclass-like outputs, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif depth and isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item, depth - 1)
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item, depth - 1)
    elif depth and hasattr(type(value), "__dataclass_fields__"):
        for name in type(value).__dataclass_fields__:
            yield from tensors_in(getattr(value, name, None), depth - 1)


def walk(value: Any) -> tuple[dict[str, Tensor], Any]:
    """Take an object apart.

    Returns:
        its tensors by key path, keys and list positions joined by `/`; and a tree of JSON
        values that says everything else, in which a tensor is `["tensor"]`.
    """
    tensors: dict[str, Tensor] = {}
    return tensors, _walk(value, "", tensors, set())


def _walk(value: Any, path: str, tensors: dict[str, Tensor], above: set[int]) -> Any:
    if isinstance(value, torch.Tensor):
        tensors[path or "."] = value
        return ["tensor"]
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int):
        return ["int", str(value)]
    if isinstance(value, float):
        return ["float", value.hex()]
    if isinstance(value, (bytes, bytearray)):
        return ["bytes", hashlib.sha256(value).hexdigest()]
    if id(value) in above or len(above) >= _DEEPEST:
        return ["deeper"]
    return _walk_container(value, path, tensors, above | {id(value)})


def _walk_container(value: Any, path: str, tensors: dict[str, Tensor], above: set[int]) -> Any:
    def inner(key: Any, item: Any) -> Any:
        return _walk(item, f"{path}/{key}" if path else str(key), tensors, above)

    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    if isinstance(value, torch.nn.Module):
        found = [*value.named_parameters(), *value.named_buffers()]
        return [kind, [[name, inner(name, tensor)] for name, tensor in found]]
    if isinstance(value, Mapping):
        return [kind, [[f"{type(key).__name__}:{key}", inner(key, item)] for key, item in value.items()]]
    if isinstance(value, (list, tuple)):
        return [kind, [inner(at, item) for at, item in enumerate(value)]]
    if isinstance(value, (set, frozenset)):
        return [kind, sorted(json.dumps(_walk(item, path, {}, above), sort_keys=True) for item in value)]
    if type(value).__module__ == "numpy":
        return _array(value, kind)
    if isinstance(value, (type, torch.dtype, torch.device)) or callable(value):
        return [kind, getattr(value, "__qualname__", str(value))]
    state = getattr(value, "__dict__", None)
    if isinstance(state, dict):
        return [kind, [[str(key), inner(key, item)] for key, item in state.items()]]
    return [kind]


def _array(value: Any, kind: str) -> Any:
    if not hasattr(value, "tobytes") or not hasattr(value, "dtype") or value.dtype.hasobject:
        return [kind]
    return [kind, str(value.dtype), list(map(str, value.shape)), hashlib.sha256(value.tobytes()).hexdigest()]


def rest_digest(tree: Any) -> str:
    """sha256 of the canonical JSON of what `walk` says beside the tensors."""
    text = json.dumps(tree, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
