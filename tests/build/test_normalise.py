from __future__ import annotations

import io
import itertools
import random
import shutil
import subprocess
import sys
import tarfile
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.build import tarball
from repro.build.normalise import RULE_REASONS, canonical_layer
from repro.errors import BuildError

EPOCH = 1767225600


def canonical(data: bytes) -> bytes:
    return b"".join(canonical_layer(io.BytesIO(data), epoch=EPOCH, where="test"))


def members(data: bytes) -> list[tarfile.TarInfo]:
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        return archive.getmembers()


@dataclass(frozen=True)
class Node:
    """A member as the file system has it; `others` are further names of the same file."""

    name: str
    kind: bytes
    content: bytes = b""
    link: str = ""
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    device: tuple[int, int] = (0, 0)
    xattrs: tuple[tuple[str, str], ...] = ()
    others: tuple[str, ...] = ()


WORDS = st.sampled_from(
    ["a", "b", "a-b", "ä", "日本", "with space", "x" * 90, "y" * 120, ".hidden", "z.py", "\udcff"]
)
PATHS = st.lists(WORDS, min_size=1, max_size=3).map("/".join)
KINDS = st.sampled_from(
    [tarfile.REGTYPE, tarfile.DIRTYPE, tarfile.SYMTYPE, tarfile.CHRTYPE, tarfile.BLKTYPE, tarfile.FIFOTYPE]
)
IDS = st.sampled_from([0, 1, 1000, 8**7 - 1, 8**7, 2**31])
XATTRS = st.dictionaries(
    st.sampled_from(["user.a", "security.capability", "user.ü"]),
    st.sampled_from(["", "v", "\x01\x02", "é=\n"]),
).map(lambda found: tuple(sorted(found.items())))


@st.composite
def nodes(draw: st.DrawFn, name: str) -> Node:
    kind = draw(KINDS)
    is_file, is_device = kind == tarfile.REGTYPE, kind in (tarfile.CHRTYPE, tarfile.BLKTYPE)
    others = draw(st.lists(st.sampled_from(["link-1", "0-link", "~link"]), max_size=3, unique=True))
    return Node(
        name=name,
        kind=kind,
        content=draw(st.binary(max_size=1200)) if is_file else b"",
        link=draw(st.sampled_from(["a", "../b", "/etc/x", "ü" * 70])) if kind == tarfile.SYMTYPE else "",
        mode=draw(st.integers(0, 0o7777)),
        uid=draw(IDS),
        gid=draw(IDS),
        device=(draw(st.integers(0, 4000)), draw(st.integers(0, 255))) if is_device else (0, 0),
        xattrs=draw(XATTRS),
        others=tuple(f"{name}.{other}" for other in others) if kind != tarfile.DIRTYPE else (),
    )


@st.composite
def trees(draw: st.DrawFn) -> list[Node]:
    names = draw(st.lists(PATHS, unique=True, max_size=6))
    found = [draw(nodes(name)) for name in names]
    for folder in draw(st.lists(st.sampled_from(["", "a/", "b/"]), unique=True)):
        hidden = draw(st.sampled_from([".wh.gone", ".wh..wh..opq"]))
        found.append(Node(name=folder + hidden, kind=tarfile.REGTYPE))
    return found


def write(tree: list[Node], seed: int) -> bytes:
    """Write a tree as some builder might: in any order, with any names, times and header forms."""
    dice = random.Random(seed)
    plans: list[tuple[Node, str, str | None]] = []
    for node in tree:
        names = [node.name, *node.others]
        dice.shuffle(names)
        plans.append((node, names[0], None))
        plans += [(node, name, names[dice.randrange(index + 1)]) for index, name in enumerate(names[1:])]
    dice.shuffle(plans)
    out = io.BytesIO()
    with tarfile.open(
        fileobj=out, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8", errors="surrogateescape"
    ) as archive:
        for node, name, target in plans:
            info = tarfile.TarInfo(
                dice.choice(["", "./"]) + name + ("/" if node.kind == tarfile.DIRTYPE else "")
            )
            info.type = node.kind if target is None else tarfile.LNKTYPE
            info.linkname = node.link if target is None else dice.choice(["", "./"]) + target
            info.mode = node.mode | dice.choice([0, 0o100000])
            info.uid, info.gid = node.uid, node.gid
            info.uname, info.gname = dice.choice(["", "root"]), dice.choice(["", "staff"])
            info.mtime = dice.choice([0, 1.5, EPOCH + 1])
            info.devmajor, info.devminor = node.device
            info.size = len(node.content) if target is None else 0
            info.pax_headers = {f"SCHILY.xattr.{key}": value for key, value in node.xattrs}
            if dice.random() < 0.5:
                info.pax_headers |= {"atime": "1.25", "LIBARCHIVE.creationtime": "7"}
            archive.addfile(info, io.BytesIO(node.content) if info.size else None)
    return out.getvalue()


@given(trees(), st.integers(0, 2**32), st.integers(0, 2**32))
def test_every_builder_gives_the_same_bytes(tree: list[Node], one: int, other: int) -> None:
    assert canonical(write(tree, one)) == canonical(write(tree, other))


@given(trees(), st.integers(0, 2**32))
def test_the_canonical_form_is_its_own(tree: list[Node], seed: int) -> None:
    once = canonical(write(tree, seed))
    assert (canonical(once) if tree else b"") == once


@given(trees(), st.integers(0, 2**32))
def test_nothing_that_counts_is_lost(tree: list[Node], seed: int) -> None:
    data = canonical(write(tree, seed))
    if not tree:
        assert data == b""
        return
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        found = {info.name: info for info in archive}
        assert {info.mtime for info in found.values()} == {EPOCH}
        assert {(info.uname, info.gname) for info in found.values()} == {("", "")}
        for node in tree:
            first, *others = sorted(
                [node.name, *node.others], key=lambda name: name.encode("utf-8", "surrogateescape")
            )
            info = found.pop(first)
            assert (info.type, info.uid, info.gid) == (node.kind, node.uid, node.gid)
            assert info.mode == (0o777 if info.issym() else node.mode)
            assert info.linkname == node.link
            assert (info.devmajor, info.devminor) == node.device
            kept = {key: value for key, value in info.pax_headers.items() if "xattr" in key}
            assert kept == {f"SCHILY.xattr.{key}": value for key, value in node.xattrs}
            if info.isreg():
                stream = archive.extractfile(info)
                assert stream is not None
                assert stream.read() == node.content
            for other in others:
                link = found.pop(other)
                assert (link.type, link.linkname) == (tarfile.LNKTYPE, first)
    assert found == {}


@given(trees(), st.integers(0, 2**32))
def test_parents_come_first_then_whiteouts_then_siblings(tree: list[Node], seed: int) -> None:
    names = [info.name for info in members(canonical(write(tree, seed)))] if tree else []
    for index, name in enumerate(names):
        folder, _, base = name.rpartition("/")
        assert folder not in names[index:]
        if base.startswith(".wh."):
            siblings = [
                other for other in names[:index] if other.rpartition("/")[0] == folder and other != folder
            ]
            assert all(other.rpartition("/")[2].startswith(".wh.") for other in siblings)


@given(st.binary(max_size=4096))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        canonical(data)
    except BuildError as error:
        assert error.kind.startswith("layer-")  # noqa: PT017 - either outcome is right


def _tar(*infos: tarfile.TarInfo) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for info in infos:
            archive.addfile(info, io.BytesIO(b"x" * info.size))
    return out.getvalue()


def _info(name: str, kind: bytes = tarfile.REGTYPE, link: str = "", size: int = 0) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type, info.linkname, info.size = kind, link, size
    return info


@pytest.mark.parametrize(
    ("data", "kind"),
    [
        (_tar(_info("a"), _info("./a")), "layer-duplicate"),
        (_tar(_info("a", tarfile.DIRTYPE), _info("a")), "layer-duplicate"),
        (_tar(_info("a", tarfile.LNKTYPE, "b")), "layer-link-broken"),
        (_tar(_info("a", tarfile.LNKTYPE, "b"), _info("b", tarfile.LNKTYPE, "a")), "layer-link-broken"),
        (_tar(_info("a", tarfile.LNKTYPE, "d"), _info("d", tarfile.DIRTYPE)), "layer-link-broken"),
        (_tar(_info("a/../../b")), "layer-unsafe"),
        (_tar(_info("a", b"M")), "layer-unknown-type"),
        (_tar(_info("a", size=4000))[:2048], "layer-unreadable"),
        (b"not a tar" * 100, "layer-unreadable"),
    ],
)
def test_layers_without_one_meaning_are_refused(data: bytes, kind: str) -> None:
    with pytest.raises(BuildError) as refused:
        canonical(data)
    assert refused.value.kind == kind


@pytest.mark.parametrize("data", [b"\0" * 1024, b"\0" * 10240, _tar(_info("./", tarfile.DIRTYPE))])
def test_a_layer_that_holds_nothing_is_no_layer(data: bytes) -> None:
    assert canonical(data) == b""


@pytest.mark.parametrize("form", ["gnu", "posix", "oldgnu"])
def test_sparse_files_are_written_out(tmp_path: Path, form: str) -> None:
    if shutil.which("tar") is None:
        pytest.skip("there is no tar command")
    whole = tmp_path / "whole"
    with whole.open("wb") as file:
        file.seek(1 << 20)
        file.write(b"middle")
        file.truncate(3 << 20)
    command = [
        "tar",
        "--sparse",
        f"--format={form}",
        "-C",
        str(tmp_path),
        "-cf",
        str(tmp_path / "layer.tar"),
        "whole",
    ]
    subprocess.run(command, check=True)
    data = (tmp_path / "layer.tar").read_bytes()
    assert len(data) < 1 << 20, "the tar is sparse"
    (info,) = members(canonical(data))
    assert (info.name, info.size) == ("whole", 3 << 20)
    with tarfile.open(fileobj=io.BytesIO(canonical(data))) as archive:
        stream = archive.extractfile("whole")
        assert stream is not None
        assert stream.read() == whole.read_bytes()


class Zeros(io.RawIOBase):
    """A header, then zeros to the given end."""

    def __init__(self, head: bytes, end: int) -> None:
        super().__init__()
        self.head, self.end, self.at = head, end, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self.at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self.at = offset + (self.at if whence == io.SEEK_CUR else self.end if whence == io.SEEK_END else 0)
        return self.at

    def readinto(self, buffer: memoryview) -> int:  # type: ignore[override]
        size = max(0, min(len(buffer), self.end - self.at))
        data = self.head[self.at : self.at + size]
        buffer[:size] = data + bytes(size - len(data))
        self.at += size
        return size


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
@pytest.mark.parametrize("size", [8**11 - 1, 8**11, 3 * 8**11 + 5])
def test_sizes_from_8_gib_on_are_written_as_pax_records(form: Literal[1, 2], size: int) -> None:
    info = _info("huge")
    info.size = size
    head = info.tobuf(form)
    source = Zeros(head, len(head) + size + (-size % 512) + 1024)
    written = canonical_layer(source, epoch=EPOCH, where="test")  # type: ignore[arg-type]
    start = b"".join(itertools.islice(written, 1))
    with tarfile.open(fileobj=Zeros(start, source.end)) as archive:
        (found,) = itertools.islice(archive, 1)
    assert (found.name, found.size) == ("huge", size)
    assert len(start) == (512 if size < 8**11 else 3 * 512)


@given(
    st.binary(min_size=1, max_size=300).filter(
        lambda name: b"\0" not in name and b"/" not in (name[:1], name[-1:])
    ),
    st.integers(0, 0o7777),
    IDS,
    st.integers(0, 2**40),
)
def test_headers_are_what_tarfile_reads(name: bytes, mode: int, owner: int, size: int) -> None:
    entry = tarball.Entry(name=name, mode=mode, uid=owner, gid=owner, size=size)
    data = tarball.header(entry, EPOCH)
    assert len(data) % 512 == 0
    with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
        (info,) = itertools.islice(archive, 1)
    expected = name.decode("utf-8", "surrogateescape").rstrip("/")
    assert (info.name, info.mode, info.uid, info.size) == (expected, mode, owner, size)


def test_header_bytes_never_change() -> None:
    plain = tarball.Entry(name=b"bin/tool", mode=0o755, uid=7, size=3)
    assert tarball.header(plain, EPOCH) == (
        b"bin/tool".ljust(100, b"\0")
        + b"0000755\0" + b"0000007\0" + b"0000000\0" + b"00000000003\0" + b"15125334400\0"
        + b"010714\0 " + b"0" + bytes(100) + b"ustar\x0000" + bytes(64) + b"0000000\0" * 2 + bytes(167)
    )  # fmt: skip
    odd = replace(plain, name="é".encode(), xattrs=((b"user.a", b"1"),))
    extended = tarball.header(odd, EPOCH)
    assert extended[156:157] == b"x"
    assert extended[512:1024] == b"11 path=\xc3\xa9\n25 SCHILY.xattr.user.a=1\n".ljust(512, b"\0")
    assert extended[1024:] == tarball.header(replace(plain, name=b""), EPOCH)


def test_every_rule_has_a_reason() -> None:
    assert all(reason.strip() for reason in RULE_REASONS.values())


MEASURE = r"""
import re, sys
from pathlib import Path
from repro.build.normalise import canonical_layer
size = 0
with open(sys.argv[1], "rb") as source:
    for chunk in canonical_layer(source, epoch=0, where="test"):
        size += len(chunk)
print(size, int(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1]) // 1024)
"""


def test_memory_stays_small_whatever_the_size(tmp_path: Path) -> None:
    layer = tmp_path / "layer.tar"
    with layer.open("wb") as file:
        for number in range(20_000):
            name = f"opt/venv/lib/python3.11/site-packages/package_{number % 50}/module_{number}.py"
            file.write(tarball.header(tarball.file_entry(name, 100), 0) + bytes(512))
        big = tarball.file_entry("big", 1 << 30)
        file.write(tarball.header(big, 0))
        file.seek((1 << 30) - 1, io.SEEK_CUR)
        file.write(b"\0" + tarball.END)
    said = subprocess.run(
        [sys.executable, "-c", MEASURE, str(layer)], capture_output=True, text=True, check=True
    )
    size, megabytes = map(int, said.stdout.split())
    assert size == layer.stat().st_size
    assert megabytes < 60


def test_damage_in_the_middle_is_no_end() -> None:
    data = bytearray(_tar(_info("a", size=10), _info("b", size=10), _info("c", size=10)))
    data[1024 + 148 : 1024 + 154] = b"999999"
    with pytest.raises(BuildError) as refused:
        canonical(bytes(data))
    assert refused.value.kind == "layer-unreadable"
