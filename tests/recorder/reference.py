"""Digest and sketch in plain Python, written from `docs/trace.md` alone."""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence

MASK = (1 << 64) - 1
REPRO = int.from_bytes(b"repro", "big") << 24


def mix64(z: int) -> int:
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & MASK
    return z ^ (z >> 31)


@functools.lru_cache(maxsize=1 << 20)
def h(stream: int, n: int) -> int:
    return mix64((stream + (n + 1) * 0x9E3779B97F4A7C15) & MASK)


def sign(stream: int, n: int) -> int:
    return -1 if h(REPRO | stream, n) >> 63 else 1


@functools.lru_cache
def order(block: int) -> tuple[int, ...]:
    return tuple(sorted(range(block), key=lambda lane: (h(REPRO | 1, lane), lane)))


@functools.lru_cache
def bucket(block: int, buckets: int) -> tuple[int, ...]:
    found = [0] * block
    for rank, lane in enumerate(order(block)):
        found[lane] = rank // (block // buckets)
    return tuple(found)


def block_of(numel: int, buckets: int) -> int:
    size = 1
    while size < numel and size < 65536:
        size *= 2
    return max(buckets, size)


def sketch(values: Sequence[float], numel: int, offset: int = 0, buckets: int = 64) -> list[float]:
    block = block_of(numel, buckets)
    terms: list[list[float]] = [[] for _ in range(buckets)]
    for position, value in enumerate(values, offset):
        c, j = divmod(position, block)
        place = (bucket(block, buckets)[j] + h(REPRO | 4, c)) % buckets
        terms[place].append(sign(3, c) * sign(2, j) * value)
    return [math.fsum(term) for term in terms]


def digest(words: Sequence[int], offset: int = 0) -> tuple[int, int]:
    def lane(number: int) -> int:
        total = 0
        for position, word in enumerate(words, offset):
            c, j = divmod(position, 65536)
            total += (h(REPRO | 0x10 | number, j) | 1) * (h(REPRO | 0x20 | number, c) | 1) * word
        return total & MASK

    return lane(1), lane(2)
