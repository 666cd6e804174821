"""Which elements of a whole tensor this rank holds, and the fingerprints of them."""

from __future__ import annotations

import base64
import ctypes
import hashlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, TypeVar

import torch
from torch import Tensor

from . import fingerprint as kernels
from .emit import hexed

__all__ = [
    "Later",
    "Part",
    "fingerprints",
    "floats_text",
    "local_part",
    "norms",
    "raw_bytes",
    "short_forms",
    "sketch_sum",
]

_T = TypeVar("_T")
Later = Callable[[], _T]
"""A result whose kernels are started; calling it waits for them, so that a step waits once."""

_PLAIN = (torch.Tensor, torch.nn.Parameter, torch.nn.Buffer)
_SMALL = 65536


class Part(NamedTuple):
    """What one rank holds of a tensor."""

    values: Tensor | None
    """1-d, contiguous, without gradient; None for a kind of tensor that is not understood."""
    shape: tuple[int, ...]
    dtype: torch.dtype
    held: int
    """Elements held here."""
    numel: int
    """Elements of the whole."""
    offset: int | None = 0
    """Flat position of the first one; None where they are strided, and `positions` holds each."""
    positions: Tensor | None = None
    spec: str | None = None
    replica: bool = False


def _flat(tensor: Tensor) -> Tensor:
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    if tensor.device.type in ("mps", "meta"):
        tensor = tensor.cpu()
    return tensor.resolve_conj().resolve_neg().reshape(-1)


def _is_dtensor(tensor: Tensor) -> bool:
    return hasattr(tensor, "_local_tensor") and hasattr(tensor, "placements")


def _known(tensor: Tensor) -> bool:
    plain = type(tensor) in _PLAIN or not hasattr(type(tensor), "__torch_dispatch__")
    return plain and tensor.device.type != "meta" and not tensor.is_quantized and _readable(tensor.dtype)


def _readable(dtype: torch.dtype) -> bool:
    return (
        dtype.is_complex or dtype == torch.bool or (dtype.itemsize in (1, 2, 4, 8) and "x2" not in str(dtype))
    )


def local_part(tensor: Tensor) -> Part:
    """Describe the elements of a tensor that are here; of a DTensor, those of its local shard."""
    if _is_dtensor(tensor):
        return _shard(tensor)
    shape = tuple(tensor.shape)
    if not _known(tensor):
        return Part(None, shape, tensor.dtype, tensor.numel(), tensor.numel())
    return Part(_flat(tensor), shape, tensor.dtype, tensor.numel(), tensor.numel())


def _shard(tensor: Any) -> Part:
    from torch.distributed.tensor._utils import compute_local_shape_and_global_offset

    whole = tuple(tensor.shape)
    local = tensor._local_tensor
    shape, start = compute_local_shape_and_global_offset(whole, tensor.device_mesh, tensor.placements)
    place = tensor.device_mesh.get_coordinate() or ()
    replica = any(p.is_replicate() and at > 0 for p, at in zip(tensor.placements, place, strict=True))
    numel = math.prod(whole)
    part = Part(_flat(local), whole, local.dtype, local.numel(), numel, replica=replica)
    if not _known(local):
        return part._replace(values=None)
    if tuple(shape[1:]) == whole[1:]:
        return part._replace(offset=start[0] * math.prod(whole[1:]) if start else 0)
    spec = hashlib.sha256(repr((tuple(start), tuple(shape))).encode("ascii")).hexdigest()
    return part._replace(offset=None, positions=_positions(whole, shape, start, local.device), spec=spec)


def _positions(
    whole: Sequence[int], shape: Sequence[int], start: Sequence[int], device: torch.device
) -> Tensor:
    """Flat positions in the whole of a box of elements."""
    index = torch.zeros(tuple(shape), dtype=torch.int64, device=device)
    stride = math.prod(whole)
    for dimension, (size, first) in enumerate(zip(shape, start, strict=True)):
        stride //= whole[dimension]
        steps = torch.arange(first, first + size, dtype=torch.int64, device=device) * stride
        index += steps.view([-1 if axis == dimension else 1 for axis in range(len(shape))])
    return index.reshape(-1)


def _measurable(part: Part) -> bool:
    return part.values is not None and (part.dtype.is_floating_point or part.dtype.is_complex)


def _real(values: Tensor) -> Tensor:
    return torch.view_as_real(values).flatten() if values.is_complex() else values


def norms(parts: Sequence[Part]) -> Later[list[float | None]]:
    """Euclidean norm of each local part, None where it has none; in as few kernels as can be."""
    groups: dict[tuple[torch.device, torch.dtype], list[int]] = {}
    for at, part in enumerate(parts):
        if _measurable(part) and part.values is not None:
            groups.setdefault((part.values.device, part.dtype), []).append(at)
    measured: list[tuple[list[int], Tensor]] = []
    for (_, dtype), members in groups.items():
        values = [_real(parts[at].values) for at in members]
        if dtype.is_floating_point and dtype.itemsize < 4:
            values = [value.to(torch.float32) for value in values]
        measured.append((members, torch.stack(torch._foreach_norm(values)).to(torch.float64)))
    total = len(parts)

    def get() -> list[float | None]:
        result: list[float | None] = [None] * total
        for members, rows in measured:
            for at, norm in zip(members, rows.tolist(), strict=True):
                result[at] = norm
        return result

    return get


def _batches(parts: Sequence[Part], members: Iterable[int]) -> tuple[list[list[int]], list[int]]:
    """Sort parts into groups of small whole tensors alike in all but content, and single ones."""
    groups: dict[tuple[Any, ...], list[int]] = {}
    single = []
    for at in members:
        values = parts[at].values
        assert values is not None
        words = values.numel() * max(1, values.element_size() // 4)
        if parts[at].offset == 0 and 0 < values.numel() == parts[at].numel and words <= _SMALL:
            groups.setdefault((values.device, values.dtype, values.numel()), []).append(at)
        else:
            single.append(at)
    batches = []
    for (device, _, numel), alike in groups.items():
        rows = max(1, kernels.at_once(device) // max(numel, kernels.BUCKETS))
        batches += [alike[at : at + rows] for at in range(0, len(alike), rows)]
    return batches, single


def _gathered(pieces: list[tuple[list[int], Tensor]]) -> tuple[list[int], Tensor]:
    """Bring results of one kind to the host in one piece per device."""
    order = [at for members, _ in pieces for at in members]
    by_device: dict[torch.device, list[Tensor]] = {}
    for _, rows in pieces:
        by_device.setdefault(rows.device, []).append(rows)
    if len(by_device) == 1:
        return order, torch.cat([rows for _, rows in pieces]).cpu()
    return order, torch.cat([rows.cpu() for _, rows in pieces])


def digests(parts: Sequence[Part]) -> Later[list[str | None]]:
    """`repro-dg1` of each part as 32 hex digits; None for a kind of tensor that is not understood."""
    batches, single = _batches(parts, (at for at, part in enumerate(parts) if part.values is not None))
    pieces: list[tuple[list[int], Tensor]] = []
    for members in batches:
        stacked = torch.stack([parts[at].values for at in members])
        pieces.append((members, kernels.digest_rows(stacked)))
    for at in single:
        part = parts[at]
        assert part.values is not None
        if part.positions is None:
            row = kernels.digest(part.values, part.offset or 0)
        else:
            row = kernels.digest_at(part.values, part.positions)
        pieces.append(([at], row[None]))
    total = len(parts)

    def get() -> list[str | None]:
        result: list[str | None] = [None] * total
        if pieces:
            order, rows = _gathered(pieces)
            for at, (first, second) in zip(order, rows.tolist(), strict=True):
                result[at] = f"{first & _MASK:016x}{second & _MASK:016x}"
        return result

    return get


_MASK = (1 << 64) - 1


def _sketched(part: Part, buckets: int) -> Tensor:
    assert part.values is not None
    values, wider = _real(part.values), 2 if part.dtype.is_complex else 1
    if part.positions is None:
        return kernels.sketch(values, part.numel * wider, (part.offset or 0) * wider, buckets)
    index = part.positions
    if wider == 2:
        index = (index[:, None] * 2 + torch.arange(2, dtype=torch.int64, device=index.device)).reshape(-1)
    return kernels.sketch_at(values, index, part.numel * wider, buckets)


def _sketches(parts: Sequence[Part], divide: float | None) -> Later[list[str | None]]:
    batches, single = _batches(parts, (at for at, part in enumerate(parts) if _measurable(part)))
    pieces: list[tuple[list[int], Tensor]] = []
    for members in batches:
        stacked = torch.stack([_real(parts[at].values) for at in members])
        pieces.append((members, kernels.sketch_rows(stacked)))
    pieces += [([at], _sketched(parts[at], kernels.BUCKETS)[None]) for at in single]
    total = len(parts)

    def get() -> list[str | None]:
        result: list[str | None] = [None] * total
        if pieces:
            order, rows = _gathered(pieces)
            data = raw_bytes(rows if divide is None else rows / divide)
            size = 8 * kernels.BUCKETS
            for row, at in enumerate(order):
                result[at] = base64.b64encode(data[row * size : (row + 1) * size]).decode("ascii")
        return result

    return get


def sketch_sum(parts: Sequence[Part], buckets: int) -> Tensor:
    """Sum of the parts' sketches: float64 [buckets] on the CPU."""
    total = torch.zeros(buckets, dtype=torch.float64, device="cpu")
    for part in parts:
        if _measurable(part):
            total += _sketched(part, buckets).cpu()
    return total


def floats_text(values: Tensor) -> str:
    """Float64 on the CPU as base64 of their little-endian bytes."""
    return base64.b64encode(raw_bytes(values)).decode("ascii")


def raw_bytes(tensor: Tensor) -> bytes:
    """Bytes of a contiguous tensor on the host; needs no numpy."""
    tensor = tensor.contiguous()
    return ctypes.string_at(tensor.data_ptr(), tensor.numel() * tensor.element_size())


def _bad(part: Part, norm: float | None) -> int:
    if norm is None or math.isfinite(norm) or part.values is None:
        return 0
    return int((~torch.isfinite(part.values)).sum())


def _nothing(count: int) -> Later[list[Any]]:
    return lambda: [None] * count


def fingerprints(
    named: Sequence[tuple[str, Tensor]],
    *,
    full: bool,
    sketch: bool = True,
    divide: float | None = None,
    replicas: bool | frozenset[str] = False,
) -> Later[dict[str, dict[str, Any]]]:
    """Fingerprint tensors by name.

    Args:
        named: names and tensors.
        full: whether to give `dg`, and `sk` where `sketch` says so, beside the norm.
        sketch: see `full`.
        divide: what the tensors are too large by, for `l2` and `sk`.
        replicas: whether all, or which names, count on another rank.
    """
    parts = [local_part(tensor) for _, tensor in named]
    measured = norms(parts)
    exact = digests(parts) if full else _nothing(len(parts))
    sketched = _sketches(parts, divide) if full and sketch else _nothing(len(parts))

    def get() -> dict[str, dict[str, Any]]:
        result: dict[str, dict[str, Any]] = {}
        rows = zip(named, parts, measured(), exact(), sketched(), strict=True)
        for (name, _), part, l2, dg, sk in rows:
            copied = replicas is True or (isinstance(replicas, frozenset) and name in replicas)
            entry = _described(part, replica=part.replica or copied)
            if l2 is not None:
                entry["l2"] = hexed(l2 / divide if divide else l2)
            if bad := _bad(part, l2):
                entry["bad"] = bad
            if dg is not None:
                entry["dg"] = dg
            if sk is not None:
                entry["sk"] = sk
            result[name] = entry
        return result

    return get


def _described(part: Part, *, replica: bool) -> dict[str, Any]:
    entry: dict[str, Any] = {"shape": list(part.shape), "dtype": str(part.dtype)[6:], "n": part.held}
    if part.values is not None:
        entry.update({"off": part.offset} if part.positions is None else {"idx": part.spec})
    if replica:
        entry["rep"] = 1
    return entry


def short_forms(tensors: Sequence[Tensor]) -> Later[list[list[Any]]]:
    """`[shape, dtype, digest]` of each tensor, of a DTensor its local part."""
    parts = [local_part(tensor) for tensor in tensors]
    exact = digests(parts)
    return lambda: [[list(p.shape), str(p.dtype)[6:], dg] for p, dg in zip(parts, exact(), strict=True)]
