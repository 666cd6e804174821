"""Change every byte of a signed run folder: it is refused, or the byte is shown to carry no meaning."""

from __future__ import annotations

import pytest

from repro.attest.envelope import open_bundle
from repro.attest.keyring import Trust
from repro.attest.verify import verify
from repro.cli.verifying import read_trust
from tests.attest.attest_memory import MemoryFolder
from tests.attest.attest_world import NOW, World

BUNDLE = "train.sigstore.json"
FILES = (
    BUNDLE,
    "manifest.json",
    "repro.lock",
    "repro.yaml",
    "locks/requirements.cpu.txt",
    "locks/pylock.cpu.toml",
    "trace/full/rank-0.jsonl",
)


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> tuple[MemoryFolder, Trust]:
    world = World(tmp_path_factory.mktemp("mutation"))
    world.sign()
    return MemoryFolder.of(world.run), read_trust(world.write_policy())


def meaningless(before: bytes, after: bytes, place: int) -> bool:
    """Two things in a bundle say nothing: the hint, which never selects trust, and white space at the end."""
    start = before.index(b'"hint":"') + len(b'"hint":"')
    in_hint = start <= place < before.index(b'"', start)
    one, other = open_bundle(before, where="before"), open_bundle(after, where="after")
    same = (one.payload, one.signature, one.tokens) == (other.payload, other.signature, other.tokens)
    return same and (in_hint or place == len(before) - 1)


def change(folder: MemoryFolder, trust: Trust, name: str, place: int, mask: int) -> None:
    before = folder.files[name]
    after = before[:place] + bytes([before[place] ^ mask]) + before[place + 1 :]
    got = verify(folder.with_file(name, after), trust, now=NOW)
    if got.verdict == "VERIFIED":
        assert name == BUNDLE, (name, place, mask)
        assert meaningless(before, after, place), (place, mask)
    else:
        assert got.verdict == "REJECTED", (name, place, mask)
        assert got.code is not None
        assert got.manifest is None


@pytest.mark.parametrize("name", FILES)
def test_changed_bytes(signed: tuple[MemoryFolder, Trust], name: str) -> None:
    folder, trust = signed
    for place in range(0, len(folder.files[name]), 4):
        change(folder, trust, name, place, 1 << (place // 4 % 8))


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_byte_and_every_bit(signed: tuple[MemoryFolder, Trust], name: str) -> None:
    folder, trust = signed
    for place in range(len(folder.files[name])):
        for bit in range(8):
            change(folder, trust, name, place, 1 << bit)


@pytest.mark.parametrize("name", FILES)
def test_shortened_lengthened_and_removed(signed: tuple[MemoryFolder, Trust], name: str) -> None:
    folder, trust = signed
    data = folder.files[name]
    for variant in (b"", data[:-2], data[1:], data + b"x", data * 2):
        assert verify(folder.with_file(name, variant), trust, now=NOW).verdict == "REJECTED"
    without = MemoryFolder({other: data for other, data in folder.files.items() if other != name})
    assert verify(without, trust, now=NOW).verdict == "REJECTED"


def test_every_file_of_the_folder_was_changed(signed: tuple[MemoryFolder, Trust]) -> None:
    folder, trust = signed
    assert verify(folder, trust, now=NOW).verdict == "VERIFIED"
    assert set(FILES) == set(folder.files)
