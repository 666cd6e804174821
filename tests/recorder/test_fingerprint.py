"""Digest and sketch: known answers, a second implementation, and the laws of shards."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.recorder.reference as reference
from repro.recorder import fingerprint as kernels
from repro.recorder import parts

pytestmark = pytest.mark.torch

V1 = [float(i) for i in range(1, 11)]
V2 = [float(7919 * i % 1009 - 504) for i in range(100_000)]


def exact(values: torch.Tensor, offset: int = 0) -> tuple[int, int]:
    first, second = (int(half) & reference.MASK for half in kernels.digest(values, offset))
    return first, second


def test_hash() -> None:
    assert reference.mix64(1) == 0x5692161D100B05E5
    assert [reference.h(0, n) for n in (0, 1)] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    expected = [0xD2EA88639E171FAB, 0x25C4660EB949493D, 0x20C8006243A599AA, 0x5C6E4CD6637166F0]
    assert [reference.h(reference.REPRO | stream, 0) for stream in (1, 2, 3, 4)] == expected
    for stream in (1, 2, 3, 4, 0x11, 0x22):
        ours = [int(v) & reference.MASK for v in kernels._hash(reference.REPRO | stream, 5, 105)]
        assert ours == [reference.h(reference.REPRO | stream, n) for n in range(5, 105)]


def test_tables() -> None:
    assert reference.order(64)[:8] == (27, 3, 10, 35, 43, 1, 2, 31)
    assert [reference.sign(2, j) for j in range(8)] == [1, 1, 1, 1, -1, -1, -1, 1]
    assert reference.bucket(64, 64)[:8] == (54, 5, 6, 1, 13, 49, 57, 12)
    assert reference.order(65536)[:4] == (22084, 40477, 18984, 2596)
    assert reference.bucket(65536, 64)[:8] == (52, 8, 9, 3, 15, 47, 53, 15)
    assert [reference.sign(3, c) for c in range(8)] == [1, 1, 1, -1, 1, 1, -1, 1]
    assert [reference.h(reference.REPRO | 4, c) % 64 for c in range(8)] == [48, 13, 49, 62, 16, 7, 15, 37]


def test_known_sketches() -> None:
    small = torch.tensor(V1)
    buckets = {1: -10, 33: -6, 38: 1, 41: -7, 42: -9, 49: 4, 53: 2, 54: 3, 60: 8, 61: -5}
    assert kernels.sketch(small, 10).tolist() == [float(buckets.get(at, 0)) for at in range(64)]
    sixteen = [4, 0, 2, 3, 8, -5, 0, -10, 0, -6, 0, 0, 1, 0, -7, -9]
    assert kernels.sketch(small, 10, buckets=16).tolist() == sixteen
    large = kernels.sketch(torch.tensor(V2), len(V2))
    assert large[:8].tolist() == [4442, -6345, -271, 4969, -7699, -8099, 21934, -13646]
    assert (float(large.sum()), float((large**2).sum())) == (62680, 7645634026)
    assert sum(v * v for v in V2) == 8484109344


def test_known_digests() -> None:
    small = torch.tensor(V1)
    assert exact(small) == (0x36201FC76A300000, 0xE220EE6797300000)
    assert exact(small.bfloat16()) == (0xEDC936201FC76A30, 0xE792E220EE679730)
    assert exact(small.double()) == (0xFD29113F4E120000, 0x2142D363A47A0000)
    assert exact(torch.tensor(V2)) == (0x164545DF5FAC8000, 0xD2C4DCDE5E3C8000)


NUMBERS = st.integers(-1000, 1000)


@settings(max_examples=40, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=300), st.integers(0, 200_000), st.sampled_from([16, 64]))
def test_sketch_is_the_reference(numbers: list[int], offset: int, buckets: int) -> None:
    values = [float(n) for n in numbers]
    numel = offset + len(values) + 7
    ours = kernels.sketch(torch.tensor(values), numel, offset, buckets)
    assert ours.tolist() == reference.sketch(values, numel, offset, buckets)


@settings(max_examples=40, deadline=None)
@given(
    st.lists(NUMBERS, min_size=1, max_size=200),
    st.integers(0, 200_000),
    st.sampled_from([torch.float32, torch.bfloat16, torch.float16, torch.int8, torch.int16, torch.int32]),
)
def test_digest_is_the_reference(numbers: list[int], offset: int, dtype: torch.dtype) -> None:
    tensor = torch.tensor([n % 100 for n in numbers]).to(dtype)
    integers = {1: torch.int8, 2: torch.int16, 4: torch.int32}[tensor.element_size()]
    assert exact(tensor, offset) == reference.digest(tensor.view(integers).tolist(), offset)


@settings(max_examples=20, deadline=None)
@given(st.lists(NUMBERS, min_size=1, max_size=100), st.integers(0, 100_000), st.booleans())
def test_wide_elements_are_two_words(numbers: list[int], offset: int, complex_: bool) -> None:
    tensor = torch.tensor(numbers, dtype=torch.float64)
    if complex_:
        tensor = torch.complex(tensor.float(), -tensor.float())
    raw = torch.view_as_real(tensor) if complex_ else tensor
    words = raw.reshape(-1).view(torch.int32).tolist()
    assert exact(tensor, offset) == reference.digest(words, 2 * offset)


@settings(max_examples=30, deadline=None)
@given(
    st.integers(1, 300_000),
    st.lists(st.floats(0, 1), max_size=4),
    st.integers(0, 2**31),
)
def test_shards_add_up(numel: int, cuts: list[float], seed: int) -> None:
    whole = torch.randint(-512, 512, (numel,), generator=torch.Generator().manual_seed(seed)).float()
    bounds = sorted({0, numel, *(int(cut * numel) for cut in cuts)})
    shards = [(whole[a:b].clone(), a) for a, b in itertools.pairwise(bounds)]
    digests = torch.stack([kernels.digest(values, offset) for values, offset in shards])
    assert torch.equal(digests.sum(0), kernels.digest(whole))
    sketches = torch.stack([kernels.sketch(values, numel, offset) for values, offset in shards])
    assert torch.equal(sketches.sum(0), kernels.sketch(whole, numel))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_columns_add_up(dtype: torch.dtype) -> None:
    whole = torch.randint(-9, 9, (300, 400)).to(dtype)
    positions = torch.arange(whole.numel()).view(whole.shape)
    cuts = [(slice(None), slice(0, 150)), (slice(None), slice(150, 400))]
    shards = [(whole[cut].reshape(-1), positions[cut].reshape(-1)) for cut in cuts]
    flat = whole.reshape(-1)
    sketched = torch.stack([kernels.sketch_at(v, at, flat.numel()) for v, at in shards]).sum(0)
    assert torch.equal(sketched, kernels.sketch(flat, flat.numel()))
    digested = torch.stack([kernels.digest_at(v, at) for v, at in shards]).sum(0)
    assert torch.equal(digested, kernels.digest(flat))


@pytest.mark.parametrize("numel", [1, 63, 64, 65, 1000, 65536])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_many_at_once_are_each_alone(numel: int, dtype: torch.dtype) -> None:
    rows = torch.randint(-512, 512, (3, numel)).to(dtype)
    for row, sketch, digest in zip(rows, kernels.sketch_rows(rows), kernels.digest_rows(rows), strict=True):
        assert torch.equal(sketch, kernels.sketch(row, numel))
        assert torch.equal(digest, kernels.digest(row))


def test_one_unit_in_the_last_place_is_seen() -> None:
    x = torch.randn(200_000, generator=torch.Generator().manual_seed(1))
    y = x.clone()
    y[123_456] = torch.nextafter(y[123_456], torch.tensor(10.0))
    assert not torch.equal(kernels.digest(x), kernels.digest(y))
    distance = float((kernels.sketch(x, x.numel()) - kernels.sketch(y, y.numel())).norm())
    assert distance == pytest.approx(float((x - y).abs().max()), rel=1e-6)


def test_distance_is_estimated() -> None:
    generator = torch.Generator().manual_seed(3)
    ratios = []
    for _ in range(40):
        x, d = (torch.randn(70_000, generator=generator, dtype=torch.float64) for _ in range(2))
        apart = kernels.sketch(x, x.numel()) - kernels.sketch(x + d * 1e-3, x.numel())
        ratios.append(float(apart.norm() / (d * 1e-3).norm()))
    mean = sum(ratios) / len(ratios)
    spread = (sum((r - mean) ** 2 for r in ratios) / len(ratios)) ** 0.5
    assert mean == pytest.approx(1, abs=0.06)
    assert spread < 0.13


def test_defaults_of_the_program_do_not_matter() -> None:
    values = torch.arange(100, dtype=torch.float32)
    expected = kernels.sketch(values, 100)
    kernels._tables.clear()
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    try:
        again = kernels.sketch(values, 100)
        digest = kernels.digest(values)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert torch.equal(again, expected)
    assert torch.equal(digest, kernels.digest(values))


def test_fingerprint_of_each_kind() -> None:
    named = [
        ("plain", torch.tensor([[3.0, 4.0]])),
        ("half", torch.full((4,), 300.0, dtype=torch.float16)),
        ("complex", torch.tensor([3 + 4j])),
        ("count", torch.tensor(5)),
        ("flag", torch.tensor([True, False])),
        ("empty", torch.zeros(0, 3)),
        ("sparse", torch.eye(2).to_sparse()),
        ("bad", torch.tensor([1.0, float("inf"), float("nan")])),
        ("overflow", torch.full((2,), 3e38)),
    ]
    found = parts.fingerprints(named, full=True)()
    l2 = {name: float.fromhex(entry["l2"]) for name, entry in found.items() if "l2" in entry}
    assert (l2["plain"], l2["half"], l2["complex"], l2["empty"]) == (5.0, 600.0, 5.0, 0.0)
    assert l2["sparse"] == pytest.approx(2**0.5)
    assert {name for name, entry in found.items() if "sk" not in entry} == {"count", "flag"}
    assert all("dg" in entry for entry in found.values())
    assert {name: entry["bad"] for name, entry in found.items() if "bad" in entry} == {"bad": 2}
    assert found["plain"]["shape"] == [1, 2]
    assert found["plain"]["off"] == 0


def test_a_tensor_nobody_understands_is_only_described() -> None:
    class Wrapper(torch.Tensor):  # type: ignore[misc]
        @classmethod
        def __torch_dispatch__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            raise NotImplementedError

    odd = Wrapper._make_wrapper_subclass(Wrapper, (2, 3), dtype=torch.float32)
    (entry,) = parts.fingerprints([("odd", odd)], full=True)().values()
    assert entry == {"shape": [2, 3], "dtype": "float32", "n": 6}


def test_a_loss_scale_is_divided_out() -> None:
    gradient = torch.tensor([3.0, 4.0]) * 1024
    (scaled,) = parts.fingerprints([("g", gradient)], full=True, divide=1024.0)().values()
    (plain,) = parts.fingerprints([("g", gradient / 1024)], full=True)().values()
    assert (scaled["l2"], scaled["sk"]) == (plain["l2"], plain["sk"])
    assert scaled["dg"] != plain["dg"]
