"""Exact digest `repro-dg1` and linear sketch `repro-sk1` of tensors; `docs/trace.md` defines both.

Both add up over the shards of a tensor: an element's weight depends only on its
position in the whole. Nothing here draws random numbers, and every tensor made
names its device and dtype, since a program may change the defaults.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

__all__ = [
    "BUCKETS",
    "at_once",
    "digest",
    "digest_at",
    "digest_rows",
    "sketch",
    "sketch_at",
    "sketch_rows",
    "words",
]

BUCKETS = 64
BLOCK = 65536

_GOLDEN = 0x9E3779B97F4A7C15
_PREFIX = 0x726570726F << 24
_PERMUTE, _SIGN, _BLOCK_SIGN, _ROTATE = (_PREFIX | low for low in (1, 2, 3, 4))
_LANE_WEIGHTS = (_PREFIX | 0x11, _PREFIX | 0x12)
_BLOCK_WEIGHTS = (_PREFIX | 0x21, _PREFIX | 0x22)

_HOST_ELEMENTS = 4 * BLOCK
"""Elements taken at a time on a CPU: what its caches hold."""
_DEVICE_ELEMENTS = 128 * BLOCK
"""Elements taken at a time elsewhere: enough to fill it, about 100 MB of work space."""

_tables: dict[tuple[object, ...], tuple[Tensor, ...]] = {}
_scratch: dict[tuple[object, ...], Tensor] = {}


def _work(what: str, rows: int, columns: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Work space [rows, columns], kept between calls: fresh pages would cost more than the sums.

    The recorder's lock keeps two threads from using it at once.
    """
    key = (what, dtype, device)
    size = rows * columns
    if key not in _scratch or _scratch[key].numel() < size:
        _scratch[key] = torch.empty(size, dtype=dtype, device=device)
    return _scratch[key][:size].view(rows, columns)


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _hash(stream: int, first: int, last: int) -> Tensor:
    """h(stream, n) for first <= n < last, as int64 of the same bits, on the CPU."""

    def shifted(z: Tensor, by: int) -> Tensor:
        return (z >> by) & ((1 << (64 - by)) - 1)

    z = torch.arange(first + 1, last + 1, dtype=torch.int64, device="cpu") * _signed(_GOLDEN) + stream
    z = (z ^ shifted(z, 30)) * _signed(0xBF58476D1CE4E5B9)
    z = (z ^ shifted(z, 27)) * _signed(0x94D049BB133111EB)
    return z ^ shifted(z, 31)


def _signs(stream: int, first: int, last: int, dtype: torch.dtype) -> Tensor:
    return 1 - 2 * (_hash(stream, first, last) < 0).to(dtype)


def _lane_tables(block: int, buckets: int, device: torch.device) -> tuple[Tensor, ...]:
    """Lanes in bucket order, their signs in that order, and per lane its bucket and sign."""
    key = ("lanes", block, buckets, device)
    if key not in _tables:
        unsigned = _hash(_PERMUTE, 0, block) ^ (-1 << 63)
        order = torch.argsort(unsigned, stable=True)
        sign = _signs(_SIGN, 0, block, torch.float32)
        bucket = torch.empty(block, dtype=torch.int64, device="cpu")
        bucket[order] = torch.arange(block, dtype=torch.int64, device="cpu") // (block // buckets)
        _tables[key] = tuple(table.to(device) for table in (order, sign[order], bucket, sign))
    return _tables[key]


def _lane_weights(device: torch.device) -> tuple[Tensor, ...]:
    key = ("weights", device)
    if key not in _tables:
        _tables[key] = tuple((_hash(stream, 0, BLOCK) | 1).to(device) for stream in _LANE_WEIGHTS)
    return _tables[key]


def _upto(blocks: int) -> int:
    """Blocks a table is made for: a power of two, so that few tables are made."""
    return max(64, 1 << max(0, blocks - 1).bit_length())


def _block_weights(first: int, last: int, device: torch.device) -> list[Tensor]:
    """Digest weights of the blocks [first, last), per lane of the digest."""
    key = ("block weights", _upto(last), device)
    if key not in _tables:
        made = [(_hash(stream, 0, _upto(last)) | 1).to(device) for stream in _BLOCK_WEIGHTS]
        _tables[key] = tuple(made)
    return [table[first:last] for table in _tables[key]]


def _turns(first: int, last: int, buckets: int, device: torch.device) -> list[Tensor]:
    """Of the blocks [first, last): which bucket each bucket takes its sum from, and the block's sign."""
    key = ("turns", _upto(last), buckets, device)
    if key not in _tables:
        rotation = _hash(_ROTATE, 0, _upto(last)) & (buckets - 1)
        source = torch.arange(buckets, dtype=torch.int64, device="cpu")[None, :] - rotation[:, None]
        sign = _signs(_BLOCK_SIGN, 0, _upto(last), torch.float64)[:, None]
        _tables[key] = (source & (buckets - 1)).to(device), sign.to(device)
    return [table[first:last] for table in _tables[key]]


def block_size(numel: int, buckets: int = BUCKETS) -> int:
    """Block size of a sketch of a tensor of `numel` elements in all."""
    return max(buckets, min(BLOCK, 1 << max(0, numel - 1).bit_length()))


def at_once(device: torch.device) -> int:
    """Elements that one kernel should take on a device."""
    return _HOST_ELEMENTS if device.type == "cpu" else _DEVICE_ELEMENTS


def _chunks(start: int, stop: int, block: int, device: torch.device) -> Iterator[tuple[int, int, int, int]]:
    """Cut positions [start, stop) into runs of whole blocks: first block, blocks, first and last position."""
    most = at_once(device) // block
    first, end = start // block, -(-stop // block)
    while first < end:
        count = min(most, end - first)
        yield first, count, max(start, first * block), min(stop, (first + count) * block)
        first += count


def _grid(part: Tensor, first: int, count: int, block: int, low: int, dtype: torch.dtype) -> Tensor:
    """Lay a run of elements that begins at position `low` out as [count, block], zeros around it."""
    whole = part.numel() == count * block
    if whole and part.dtype == dtype:
        return part.view(count, block)
    grid = _work("grid", count, block, dtype, part.device)
    if whole:
        return grid.copy_(part.view(count, block))
    start = low - first * block
    flat = grid.view(-1)
    flat[:start].zero_()
    flat[start : start + part.numel()].copy_(part)
    flat[start + part.numel() :].zero_()
    return grid


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type a sketch reads elements in: every narrower one fits in float32."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def _bucket_sums(grid: Tensor, buckets: int) -> Tensor:
    """Signed sums per bucket before block sign and rotation: [rows, block] to float64 [rows, buckets]."""
    rows, block = grid.shape
    order, sign, _, _ = _lane_tables(block, buckets, grid.device)
    ordered = _work("ordered", rows, block, grid.dtype, grid.device)
    torch.index_select(grid, 1, order, out=ordered).mul_(sign)
    return ordered.view(rows, buckets, block // buckets).sum(-1, dtype=torch.float64)


def sketch(values: Tensor, numel: int, offset: int = 0, buckets: int = BUCKETS) -> Tensor:
    """Sketch of a run of a tensor's elements.

    Args:
        values: 1-d, floating point, contiguous: positions `offset` and on of the flattened tensor.
        numel: elements of the whole tensor.
        offset: position of the first value.
        buckets: 64, or 16 for outputs.

    Returns:
        float64 [buckets] on the device of `values`.
    """
    if not values.numel():
        return torch.zeros(buckets, dtype=torch.float64, device=values.device)
    block = block_size(numel, buckets)
    rows = []
    for first, count, low, high in _chunks(offset, offset + values.numel(), block, values.device):
        part = values[low - offset : high - offset]
        rows.append(_bucket_sums(_grid(part, first, count, block, low, _wide(values.dtype)), buckets))
    sums = torch.cat(rows)
    start = offset // block
    source, sign = _turns(start, start + sums.shape[0], buckets, values.device)
    return sums.gather(1, source).mul_(sign).sum(0)


def sketch_rows(rows: Tensor, buckets: int = BUCKETS) -> Tensor:
    """Sketches of whole tensors of one size: [tensors, numel <= 65536] to float64 [tensors, buckets]."""
    count, numel = rows.shape
    block = block_size(numel, buckets)
    grid = torch.zeros((count, block), dtype=_wide(rows.dtype), device=rows.device)
    grid[:, :numel] = rows
    sums = _bucket_sums(grid, buckets)
    source, sign = _turns(0, 1, buckets, rows.device)
    return sums.gather(1, source.expand(count, -1)).mul_(sign)


def sketch_at(values: Tensor, index: Tensor, numel: int, buckets: int = BUCKETS) -> Tensor:
    """Sketch of elements anywhere in a tensor: `values[n]` stands at flat position `index[n]`."""
    block = block_size(numel, buckets)
    _, _, bucket, sign = _lane_tables(block, buckets, values.device)
    blocks = -(-numel // block)
    block_sign = _signs(_BLOCK_SIGN, 0, blocks, torch.float64).to(values.device)
    rotation = (_hash(_ROTATE, 0, blocks) & (buckets - 1)).to(values.device)
    at, lane = index // block, index % block
    total = torch.zeros(buckets, dtype=torch.float64, device=values.device)
    weighted = values.to(torch.float64) * sign[lane] * block_sign[at]
    return total.index_add_(0, (bucket[lane] + rotation[at]) & (buckets - 1), weighted)


_WORDS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int32}


def words(values: Tensor) -> tuple[Tensor, int]:
    """Read contiguous values, last dimension kept, as signed words; also how many words an element has."""
    if values.is_complex():
        values = torch.view_as_real(values).flatten(-2)
        read, parts = words(values)
        return read, 2 * parts
    return values.view(_WORDS[values.element_size()]), max(1, values.element_size() // 4)


def _weighted(grid: Tensor, weights: Tensor) -> Tensor:
    """Row sums of grid * weights, in int64 that wraps."""
    if grid.device.type == "cpu":
        return torch.mv(grid, weights)
    return (grid * weights).sum(1)


def digest(values: Tensor, offset: int = 0) -> Tensor:
    """Digest of a run of a tensor's elements, as int64 [2] of the same bits, on the device of `values`.

    Args:
        values: 1-d, contiguous: positions `offset` and on of the flattened tensor.
        offset: position of the first value, in elements.
    """
    read, parts = words(values)
    start = offset * parts
    if not read.numel():
        return torch.zeros(2, dtype=torch.int64, device=values.device)
    lanes = _lane_weights(values.device)
    rows: list[list[Tensor]] = [[], []]
    for first, count, low, high in _chunks(start, start + read.numel(), BLOCK, values.device):
        grid = _grid(read[low - start : high - start], first, count, BLOCK, low, torch.int64)
        for sums, lane in zip(rows, lanes, strict=True):
            sums.append(_weighted(grid, lane))
    begin = start // BLOCK
    end = -(-(start + read.numel()) // BLOCK)
    blocks = _block_weights(begin, end, values.device)
    return torch.stack([(torch.cat(sums) * b).sum() for sums, b in zip(rows, blocks, strict=True)])


def digest_rows(rows: Tensor) -> Tensor:
    """Digests of several whole tensors of one size, at most 65536 words each: int64 [tensors, 2]."""
    read, _ = words(rows)
    wide = read.to(torch.int64)
    size = wide.shape[1]
    blocks = _block_weights(0, 1, rows.device)
    lanes = _lane_weights(rows.device)
    return torch.stack([_weighted(wide, lane[:size]) * b for lane, b in zip(lanes, blocks, strict=True)], 1)


def digest_at(values: Tensor, index: Tensor) -> Tensor:
    """Digest of elements anywhere in a tensor: `values[n]` stands at flat position `index[n]`."""
    read, parts = words(values)
    step = torch.arange(parts, dtype=torch.int64, device=values.device)
    at = (index[:, None] * parts + step[None, :]).reshape(-1)
    last = int(at.max()) // BLOCK + 1 if at.numel() else 1
    block, lane = at // BLOCK, at % BLOCK
    wide = read.to(torch.int64)
    pairs = zip(_lane_weights(values.device), _block_weights(0, last, values.device), strict=True)
    return torch.stack([(weights[lane] * b[block] * wide).sum() for weights, b in pairs])
