"""Read a base image's layers as a stream: which C library, Python, torch, CUDA and ROCm lie in it.

Nothing is unpacked and nothing is run. Each layer's bytes are hashed while they pass, and must be what the
image's config says. Layers may come in any order; `Layers.contents` stacks them, whiteouts included
(OCI Image Layer Specification, "Whiteouts"). What is not recognised stays None.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import posixpath
import re
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from repro.digest import CHUNK_BYTES

__all__ = ["Contents", "LayerFacts", "as_stream", "contents", "read_layer"]

_LIMIT = 64 << 20
"""Bytes of a file that are looked at: Python's libraries are smaller."""

_GLIBC = re.compile(rb"GNU C Library \([^)\x00]*\) (?:stable|development) release version (\d+\.\d+)")
_MUSL = re.compile(rb"^P:musl\nV:(\d+\.\d+)", re.MULTILINE)
_PYTHON = re.compile(rb"\x00(3\.\d+\.\d+(?:(?:a|b|rc)\d+)?\+?)\x00")
_TORCH = re.compile(rb"^__version__\s*(?::\s*\w+)?\s*=\s*['\"]([^'\"]+)", re.MULTILINE)
_BUILT_FOR = re.compile(rb"^(cuda|hip)\s*(?::[^=]*)?=\s*['\"]([^'\"]+)", re.MULTILINE)
_METADATA = re.compile(rb"^Version:\s*(\S+)", re.MULTILINE)
_TOOLKIT = re.compile(rb'"cuda"\s*:\s*\{[^}]*"version"\s*:\s*"([\d.]+)|^CUDA Version ([\d.]+)', re.MULTILINE)
_NUMBER = re.compile(rb"^(\d+\.\d+(?:\.\d+)?)")

Facts = dict[str, str]


def _first(pattern: re.Pattern[bytes], key: str) -> Callable[[bytes], Facts]:
    def read(data: bytes) -> Facts:
        found = pattern.search(data)
        value = next((group for group in found.groups() if group), None) if found else None
        return {key: value.decode("ascii", "replace")} if value else {}

    return read


def _glibc(data: bytes) -> Facts:
    return {key: f"glibc {value}" for key, value in _first(_GLIBC, "libc")(data).items()}


def _musl(data: bytes) -> Facts:
    return {key: f"musl {value}" for key, value in _first(_MUSL, "libc")(data).items()}


def _torch(data: bytes) -> Facts:
    built = {key.decode(): value.decode("ascii", "replace") for key, value in _BUILT_FOR.findall(data)}
    return _first(_TORCH, "torch")(data) | built


_READERS: tuple[tuple[re.Pattern[str], Callable[[bytes], Facts]], ...] = tuple(
    (re.compile(pattern), read)
    for pattern, read in (
        (r"(?:usr/)?lib(?:64)?/(?:[^/]+/)?libc(?:\.so\.6|-2\.\d+\.so)", _glibc),
        (r"(?:usr/)?lib/apk/db/installed", _musl),
        (r"(?:.*/)?bin/python3\.\d+", _first(_PYTHON, "python")),
        (r"(?:.*/)?lib(?:64)?/(?:[^/]+/)?libpython3\.\d+\.so\.1\.0", _first(_PYTHON, "python")),
        (r"(?:.*/)?(?:site|dist)-packages/torch/version\.py", _torch),
        (r"(?:.*/)?(?:site|dist)-packages/torch-[^/]+\.dist-info/METADATA", _first(_METADATA, "installed")),
        (r"usr/local/cuda[^/]*/version\.(?:json|txt)", _first(_TOOLKIT, "cuda")),
        (r"opt/rocm[^/]*/\.info/version", _first(_NUMBER, "rocm")),
    )
)


@dataclass(kw_only=True)
class LayerFacts:
    """What one layer puts in and takes away, as far as anybody asks."""

    diff_id: str = ""
    """Digest of the uncompressed bytes that were read."""
    facts: dict[str, Facts] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)
    """Symbolic links: path and target, both as absolute paths without the leading slash."""
    gone: list[str] = field(default_factory=list)
    """Paths that lower layers have and this one has not, with all below them."""
    emptied: list[str] = field(default_factory=list)
    """Folders of which nothing from lower layers is left."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Contents:
    """What lies in an image. None: it is not there, or was not recognised."""

    libc: str | None = None
    """Such as `glibc 2.36` or `musl 1.2`."""
    python: str | None = None
    """Full version of the `python3` that the image's PATH leads to."""
    torch: str | None = None
    """Version of the installed distribution, local part included; else what `torch/version.py` says."""
    cuda: str | None = None
    """Of the toolkit in `/usr/local/cuda`; else the one that torch was built for."""
    rocm: str | None = None
    """Of `/opt/rocm`; else the HIP that torch was built for."""


class _Hashing(io.RawIOBase):
    """Passes a stream on, and hashes it."""

    def __init__(self, stream: io.BufferedIOBase) -> None:
        super().__init__()
        self._stream = stream
        self.state = hashlib.sha256()

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        data = self._stream.read(len(buffer))
        self.state.update(data)
        buffer[: len(data)] = data
        return len(data)


class _Chunks(io.RawIOBase):
    """Chunks of bytes as a file."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks, self._left = chunks, b""

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            if (chunk := next(self._chunks, None)) is None:
                return 0
            self._left = chunk
        data, self._left = self._left[: len(buffer)], self._left[len(buffer) :]
        buffer[: len(data)] = data
        return len(data)


def as_stream(chunks: Iterator[bytes]) -> io.BufferedReader:
    """Return chunks of bytes as a file to read."""
    return io.BufferedReader(_Chunks(chunks), CHUNK_BYTES)


def read_layer(stream: io.BufferedReader[Any]) -> LayerFacts | None:
    """Read one layer, plain or gzip, to its end; None where the bytes are no such thing.

    Args:
        stream: positioned at the layer's start; need not be seekable.
    """
    zipped = stream.peek(2)[:2] == b"\x1f\x8b"
    plain = _Hashing(gzip.GzipFile(fileobj=stream) if zipped else stream)
    layer = LayerFacts()
    try:
        with tarfile.open(fileobj=plain, mode="r|", bufsize=CHUNK_BYTES) as tar:
            for member in tar:
                _take(layer, member, tar)
        while plain.read(CHUNK_BYTES):
            pass
    except (tarfile.TarError, EOFError, ValueError, OverflowError, gzip.BadGzipFile, zlib.error):
        return None
    layer.diff_id = f"sha256:{plain.state.hexdigest()}"
    return layer


def _take(layer: LayerFacts, member: tarfile.TarInfo, tar: tarfile.TarFile) -> None:
    path = posixpath.normpath(member.name).lstrip("/")
    folder, name = posixpath.split(path)
    if name == ".wh..wh..opq":
        layer.emptied.append(folder)
    elif name.startswith(".wh."):
        layer.gone.append(posixpath.join(folder, name.removeprefix(".wh.")))
    elif member.issym():
        layer.links[path] = posixpath.normpath(posixpath.join("/", folder, member.linkname)).lstrip("/")
    elif member.islnk():
        target = posixpath.normpath(member.linkname).lstrip("/")
        if target in layer.facts:
            layer.facts[path] = layer.facts[target]
    elif member.isfile():
        for pattern, read in _READERS:
            if pattern.fullmatch(path):
                opened = tar.extractfile(member)
                layer.facts[path] = read(opened.read(_LIMIT)) if opened else {}
                return


def _stack(layers: Sequence[LayerFacts]) -> tuple[dict[str, Facts], dict[str, str]]:
    """Put layers on top of each other, lowest first."""
    facts: dict[str, Facts] = {}
    links: dict[str, str] = {}

    def drop(path: str, *, itself: bool) -> None:
        for held in (facts, links):
            for key in [key for key in held if key.startswith(f"{path}/") or (itself and key == path)]:
                del held[key]

    for layer in layers:
        for path in layer.gone:
            drop(path, itself=True)
        for path in layer.emptied:
            drop(path, itself=False)
        for path in layer.facts:
            links.pop(path, None)
        for path in layer.links:
            facts.pop(path, None)
        facts |= layer.facts
        links |= layer.links
    return facts, links


def _follow(path: str, links: Mapping[str, str]) -> str:
    """Resolve every symbolic link on the way, as the kernel would."""
    for _ in range(40):
        parts = path.split("/")
        heads = ("/".join(parts[: count + 1]) for count in range(len(parts)))
        head = next((head for head in heads if head in links), None)
        if head is None:
            return path
        path = posixpath.normpath(links[head] + path[len(head) :])
    return path


def _values(facts: Mapping[str, Facts], key: str, prefix: str = "") -> list[str]:
    """Return what is known under a key, places below `prefix` first."""
    places = [path for path in sorted(facts) if key in facts[path]]
    return [facts[path][key] for path in sorted(places, key=lambda path: not path.startswith(prefix))]


def _python(
    facts: Mapping[str, Facts], links: Mapping[str, str], search: Sequence[str]
) -> tuple[str | None, str]:
    """Return the version of the first `python3` on the path, and the folder it is installed to."""
    for folder in search:
        place = _follow(posixpath.join(folder.strip("/"), "python3"), links)
        if place not in facts:
            continue
        prefix = posixpath.dirname(posixpath.dirname(place)) + "/"
        library = f"lib{posixpath.basename(place)}.so.1.0"
        near = {path: found for path, found in facts.items() if path.endswith(f"/{library}")}
        known = facts[place].get("python") or next(iter(_values(near, "python", prefix)), None)
        return known, prefix
    return None, ""


def contents(layers: Sequence[LayerFacts], environment: Sequence[str]) -> Contents:
    """Say what an image holds.

    Args:
        layers: lowest first.
        environment: `Env` of the image's config; its PATH decides which Python counts.
    """
    facts, links = _stack(layers)
    variables = dict(pair.partition("=")[::2] for pair in environment)
    search = variables.get("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
    python, prefix = _python(facts, links, search.split(":"))

    def one(*keys: str) -> str | None:
        return next((value for key in keys for value in _values(facts, key, prefix)), None)

    return Contents(
        libc=one("libc"),
        python=python,
        torch=one("installed", "torch"),
        cuda=one("cuda"),
        rocm=one("rocm", "hip"),
    )
