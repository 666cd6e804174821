"""The one tar encoding this project writes: POSIX.1-2001 (ustar with pax records), every choice fixed.

The bytes are part of an image's identity, so they are made here and not by a library
whose output may change with its version. Format: IEEE Std 1003.1, `pax`, "ustar
Interchange Format" and "pax Header Block".
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

__all__ = [
    "BLOCK",
    "DIRECTORY",
    "END",
    "FILE",
    "HARDLINK",
    "SYMLINK",
    "Entry",
    "file_entry",
    "header",
    "padding",
]

BLOCK = 512
END = bytes(2 * BLOCK)
"""What ends an archive: two zero blocks and nothing more."""

FILE, HARDLINK, SYMLINK, CHARACTER, BLOCKDEV, DIRECTORY, FIFO = (b"%d" % n for n in range(7))
"""Type flags."""

_MAX_FIELD = 8**11
_MAX_ID = 8**7
_NAME_BYTES = 100


@dataclass(frozen=True, slots=True)
class Entry:
    """One member of an archive. `size` in bytes, 0 for everything but files."""

    name: bytes
    kind: bytes = FILE
    mode: int = 0o644
    uid: int = 0
    gid: int = 0
    size: int = 0
    link: bytes = b""
    """Target of a hard or symbolic link."""
    device: tuple[int, int] = (0, 0)
    """Major and minor number."""
    xattrs: tuple[tuple[bytes, bytes], ...] = ()
    """Extended attributes in order of name."""


def file_entry(name: str, size: int, *, mode: int = 0o644) -> Entry:
    """An ordinary file owned by root."""
    return Entry(name=name.encode("utf-8", "surrogateescape"), size=size, mode=mode)


def _record(key: bytes, value: bytes) -> bytes:
    """One pax record: its own length in decimal, a space, `key=value`, a line end."""
    body = b" " + key + b"=" + value + b"\n"
    length = len(body)
    while length != (longer := len(body) + len(str(length))):
        length = longer
    return b"%d" % length + body


def _plain(text: bytes) -> bool:
    return len(text) <= _NAME_BYTES and text.isascii()


def _records(entry: Entry) -> Iterator[bytes]:
    """What does not fit the ustar header, in a fixed order."""
    if not _plain(entry.name):
        yield _record(b"path", entry.name)
    if not _plain(entry.link):
        yield _record(b"linkpath", entry.link)
    for key, number, limit in (
        (b"size", entry.size, _MAX_FIELD),
        (b"uid", entry.uid, _MAX_ID),
        (b"gid", entry.gid, _MAX_ID),
    ):
        if number >= limit:
            yield _record(key, b"%d" % number)
    for name, content in entry.xattrs:
        yield _record(b"SCHILY.xattr." + name, content)


def _octal(value: int, width: int) -> bytes:
    return b"%0*o\0" % (width - 1, value if value < 8 ** (width - 1) else 0)


def _block(entry: Entry, epoch: int) -> bytes:
    fields = [
        bytes(b for b in entry.name if b < 0x80)[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        _octal(entry.mode, 8),
        _octal(entry.uid, 8),
        _octal(entry.gid, 8),
        _octal(entry.size, 12),
        _octal(epoch, 12),
        b" " * 8,
        entry.kind,
        bytes(b for b in entry.link if b < 0x80)[:_NAME_BYTES].ljust(_NAME_BYTES, b"\0"),
        b"ustar\x0000",
        bytes(64),
        _octal(entry.device[0], 8),
        _octal(entry.device[1], 8),
    ]
    block = b"".join(fields).ljust(BLOCK, b"\0")
    return block[:148] + b"%06o\0 " % sum(block) + block[156:]


def header(entry: Entry, epoch: int) -> bytes:
    """Encode everything of a member but its content.

    Args:
        entry: the member.
        epoch: its modification time, seconds since 1970.
    """
    block = _block(entry, epoch)
    if not (records := b"".join(_records(entry))):
        return block
    extended = Entry(name=b"PaxHeader", kind=b"x", size=len(records))
    return _block(extended, epoch) + records + padding(len(records)) + block


def padding(size: int) -> bytes:
    """Zeros that fill the last block of a content of `size` bytes."""
    return bytes(-size % BLOCK)
