"""One layer, whichever builder wrote it → one sequence of bytes.

Builders agree on what files are in a layer and disagree on how a tar says so. Only
layers above the base are rewritten. Memory grows with the number of files, never
with their size; content is read once, in the order it is written.
"""

from __future__ import annotations

import tarfile
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import BinaryIO

from repro.build import tarball
from repro.build.tarball import Entry
from repro.digest import CHUNK_BYTES
from repro.errors import BuildError

__all__ = ["RULES", "RULE_REASONS", "LayerIndex", "Member", "canonical_layer"]

RULES = "repro-normal/1"
"""Version of the rules below; any change of bytes makes it a new one."""

RULE_REASONS = {
    "root": "the entry of / itself goes: only some builders write one",
    "names": "no leading ./ and no trailing /: engines differ",
    "order": "sorted by name, a folder's whiteouts first: engines walk in their own order",
    "times": "every time is the plan's epoch; access and change times go: they tell when, not what",
    "owners": "numbers stay, names go: some engines look names up on their own host",
    "modes": "permission bits only, 0777 for symbolic links: some engines add the file type",
    "hard-links": "the first name in order holds the content: which one does is an accident of the walk",
    "xattrs": "kept, sorted; every other extended header goes",
    "sparse": "holes are written out as zeros: how a file is stored is not what it is",
    "encoding": "ustar, pax records only where a value does not fit, two zero blocks at the end",
    "empty-layers": "a layer that holds nothing is left out: only some builders write one",
    "environment": "sorted by name: order has no meaning",
    "labels": "a builder's own labels go: they name the builder",
    "history": "one line for each layer: a builder's history tells when and how, not what",
}
"""Every rule with its reason."""

_XATTR = "SCHILY.xattr."
_KINDS = {
    tarfile.REGTYPE: tarball.FILE,
    tarfile.AREGTYPE: tarball.FILE,
    tarfile.CONTTYPE: tarball.FILE,
    tarfile.GNUTYPE_SPARSE: tarball.FILE,
    tarfile.LNKTYPE: tarball.HARDLINK,
    tarfile.SYMTYPE: tarball.SYMLINK,
    tarfile.CHRTYPE: tarball.CHARACTER,
    tarfile.BLKTYPE: tarball.BLOCKDEV,
    tarfile.DIRTYPE: tarball.DIRECTORY,
    tarfile.FIFOTYPE: tarball.FIFO,
}


@dataclass(frozen=True, slots=True)
class Member:
    """An entry and where its content lies in the source; `holes` is tarfile's map of a sparse file."""

    entry: Entry
    offset: int
    holes: list[tuple[int, int]] | None = None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


class LayerIndex:
    """The members of one layer by name; `where` names it in messages."""

    def __init__(self, source: BinaryIO, where: str) -> None:
        self.where = where
        self.members: dict[bytes, Member] = {}
        try:
            self.archive = tarfile.open(  # noqa: SIM115 - it closes nothing: the source is the caller's
                fileobj=source, mode="r:", encoding="utf-8", errors="surrogateescape"
            )
            self._index()
        except tarfile.TarError as error:
            raise self._error(
                "layer-unreadable", f"the engine saved a layer that is not a tar: {error}"
            ) from None
        self._settle_links()

    def _error(self, kind: str, message: str) -> BuildError:
        return BuildError(kind, message, where=self.where)

    def _name(self, text: str) -> bytes:
        """The one form of a member's name: relative, without `.`, `..` or a trailing slash."""
        parts = [part for part in text.split("/") if part not in ("", ".")]
        if ".." in parts:
            raise self._error("layer-unsafe", f"a layer holds the path {text!r}, which leaves it")
        return _bytes("/".join(parts))

    def _member(self, info: tarfile.TarInfo) -> Member:
        kind = _KINDS.get(info.type)
        if kind is None:
            raise self._error("layer-unknown-type", f"{info.name!r} is of the unknown type {info.type!r}")
        link = b""
        if kind == tarball.HARDLINK:
            link = self._name(info.linkname)
        elif kind == tarball.SYMLINK:
            link = _bytes(info.linkname)
        xattrs = (
            (key.removeprefix(_XATTR), value)
            for key, value in info.pax_headers.items()
            if key.startswith(_XATTR)
        )
        entry = Entry(
            name=self._name(info.name),
            kind=kind,
            mode=0o777 if kind == tarball.SYMLINK else info.mode & 0o7777,
            uid=info.uid,
            gid=info.gid,
            size=info.size if kind == tarball.FILE else 0,
            link=link,
            device=(info.devmajor, info.devminor)
            if kind in (tarball.CHARACTER, tarball.BLOCKDEV)
            else (0, 0),
            xattrs=tuple(sorted((_bytes(key), _bytes(value)) for key, value in xattrs)),
        )
        return Member(entry, info.offset_data, getattr(info, "sparse", None))

    def _index(self) -> None:
        """Read every header once and keep what is needed to write it again."""
        while (info := self.archive.next()) is not None:
            self.archive.members = []  # type: ignore[attr-defined] # or it keeps them all, a kilobyte each
            member = self._member(info)
            name = member.entry.name
            if not name and member.entry.kind == tarball.DIRECTORY:
                continue
            if name in self.members:
                raise self._error("layer-duplicate", f"a layer holds {_shown(name)} twice")
            self.members[name] = member
        self._require_end()

    def _require_end(self) -> None:
        """Check that the layer ends here: tarfile takes a damaged header for the end."""
        source = self.archive.fileobj
        assert source is not None
        source.seek(self.archive.offset)
        if source.read(tarball.BLOCK).strip(b"\0"):
            raise self._error("layer-unreadable", "a layer holds a header that cannot be read")

    def _content_of(self, name: bytes) -> bytes:
        """Follow hard links to the member that holds the content."""
        seen: set[bytes] = set()
        while (member := self.members.get(name)) is not None and member.entry.kind == tarball.HARDLINK:
            if name in seen:
                break
            seen.add(name)
            name = member.entry.link
        if member is None or member.entry.kind in (tarball.HARDLINK, tarball.DIRECTORY):
            raise self._error("layer-link-broken", f"a hard link leads to {_shown(name)}, which is no file")
        return name

    def _settle_links(self) -> None:
        """Give each group of hard links its content under the first name in order."""
        groups: dict[bytes, list[bytes]] = {}
        for name, member in self.members.items():
            if member.entry.kind == tarball.HARDLINK:
                target = self._content_of(name)
                groups.setdefault(target, [target]).append(name)
        for target, names in groups.items():
            first, *others = sorted(names, key=_order)
            content = self.members[target]
            self.members[first] = replace(content, entry=replace(content.entry, name=first))
            link = replace(content.entry, kind=tarball.HARDLINK, size=0, link=first, device=(0, 0), xattrs=())
            for name in others:
                self.members[name] = Member(replace(link, name=name), 0)

    def content(self, member: Member) -> Iterator[bytes]:
        """Yield a file's bytes and the zeros that fill its last block."""
        info = tarfile.TarInfo()
        info.size, info.offset_data, info.sparse = member.entry.size, member.offset, member.holes  # type: ignore[assignment]
        stream = self.archive.extractfile(info)
        assert stream is not None
        left = member.entry.size
        while left:
            if not (chunk := stream.read(min(left, CHUNK_BYTES))):
                raise self._error("layer-unreadable", f"a layer ends in {_shown(member.entry.name)}")
            yield chunk
            left -= len(chunk)
        yield tarball.padding(member.entry.size)


def _shown(name: bytes) -> str:
    return repr(name.decode("utf-8", "backslashreplace"))


def _order(name: bytes) -> bytes:
    """Sort key: by name, but whiteouts before their siblings, so that they hide lower layers only."""
    folder, slash, base = name.rpartition(b"/")
    return folder + slash + b"\0" + base if base.startswith(b".wh.") else name


def canonical_layer(source: BinaryIO, *, epoch: int, where: str) -> Iterator[bytes]:
    """Yield the canonical bytes of a layer; nothing at all where it holds no file.

    Args:
        source: the layer as an uncompressed tar, seekable, not changed meanwhile.
        epoch: modification time of every member, seconds since 1970.
        where: name of the layer for messages.

    Raises:
        BuildError: `layer-unreadable`, `layer-duplicate`, `layer-link-broken`, `layer-unsafe` or
            `layer-unknown-type`.
    """
    layer = LayerIndex(source, where)
    if not layer.members:
        return
    for name in sorted(layer.members, key=_order):
        member = layer.members[name]
        yield tarball.header(member.entry, epoch)
        if member.entry.size:
            yield from layer.content(member)
    yield tarball.END
