"""Pinned requirement files, as `pip-compile` and its kin write them: read, judged, written again.

The judge looks at the text, not at anybody's exit status: `pip-compile` exits
with 0 after writing pins that `pip install` will refuse.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from repro.errors import LockError

__all__ = ["Entry", "judge", "parse_compiled", "pins", "render", "with_hashes"]

_HASH = re.compile(r"--hash[= ](\S+)")
_VIA = re.compile(r"#\s+via\b\s*(.*)")
_MORE = re.compile(r"#\s{2,}(\S.*)")
_UNSAFE = re.compile(r"# WARNING: The following packages were not pinned")
_INDEX = re.compile(r"(?:-i|--index-url|--extra-index-url|-f|--find-links)[= ]\s*(\S+)")
_VCS = re.compile(r"(?:git|hg|svn|bzr)\+")
_ON_DISK = re.compile(r"file:|/|\.{1,2}/|~|[A-Za-z]:[\\/]")


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """One pin."""

    name: str
    """Normalised."""
    version: str | None
    """Full version with its local part; None where a URL stands instead."""
    url: str | None = None
    marker: str | None = None
    hashes: tuple[str, ...] = ()
    """Sorted digests."""
    via: tuple[str, ...] = ()
    """Packages and files that ask for it."""


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield lines with their number, joined where one ends in a backslash."""
    number, joined = 0, ""
    for count, line in enumerate(text.splitlines(), start=1):
        number = number or count
        if line.rstrip().endswith("\\"):
            joined += line.rstrip()[:-1] + " "
            continue
        yield number, (joined + line).strip()
        number, joined = 0, ""
    if joined:
        yield number, joined.strip()


def _entry(line: str, place: str) -> Entry:
    hashes = tuple(sorted(match for match in _HASH.findall(line) if match.startswith("sha256:")))
    text = _HASH.sub("", line).split(" #")[0].strip()
    try:
        requirement = Requirement(text)
    except InvalidRequirement as error:
        raise LockError(
            "pin-malformed",
            f"{text!r} is no pin: {str(error).splitlines()[0]}",
            where=place,
            remedy="lock again",
        ) from None
    specifiers = list(requirement.specifier)
    exact = [spec for spec in specifiers if spec.operator in ("==", "===") and "*" not in spec.version]
    if requirement.url is None and not (len(specifiers) == len(exact) == 1):
        raise LockError(
            "requirement-unpinned",
            f"{requirement.name} is not pinned to one version",
            where=place,
            remedy="write ==VERSION, or let `repro lock` resolve a requirements file instead",
        )
    return Entry(
        name=canonicalize_name(requirement.name),
        version=exact[0].version if exact else None,
        url=requirement.url,
        marker=str(requirement.marker) if requirement.marker else None,
        hashes=hashes,
    )


def parse_compiled(text: str, *, where: str) -> tuple[Entry, ...]:
    """Read the pins of a text. Options and comments other than `# via` are passed over.

    Args:
        text: what `pip-compile`, `uv pip compile` or `pip freeze` wrote.
        where: what the text is, for messages.

    Raises:
        LockError: kind `pin-malformed` or `requirement-unpinned`.
    """
    entries: list[Entry] = []
    open_list = False
    for number, line in _logical_lines(text):
        if match := _VIA.match(line):
            open_list = not match[1]
            if match[1] and entries:
                entries[-1] = replace(entries[-1], via=(*entries[-1].via, match[1]))
        elif open_list and entries and (match := _MORE.match(line)):
            entries[-1] = replace(entries[-1], via=(*entries[-1].via, match[1]))
        else:
            open_list = False
            if line and not line.startswith(("#", "-")):
                entries.append(_entry(line, f"{where}:{number}"))
    return tuple(entries)


def judge(text: str, *, where: str) -> tuple[Entry, ...]:
    """Read a pinned requirement file that is to be trusted as it stands.

    Raises:
        LockError: `host-paths-in-lock`, `unpinned-unsafe-packages`, `unhashable-vcs`, `unhashed-packages`,
            `pin-malformed` or `requirement-unpinned`.
    """
    lines = [line for _, line in _logical_lines(text)]
    places = [match[1] for line in lines if (match := _INDEX.match(line)) and _ON_DISK.match(match[1])]
    if places:
        raise LockError(
            "host-paths-in-lock",
            f"the lock names places that only the machine which made it has: {', '.join(places)}",
            where=where,
            remedy="take these lines out, or compile with --no-emit-index-url --no-emit-find-links",
        )
    for start, line in enumerate(lines):
        if _UNSAFE.match(line):
            rest = [line.lstrip("# ") for line in lines[start:] if re.fullmatch(r"#\s*[A-Za-z0-9._-]+", line)]
            raise LockError(
                "unpinned-unsafe-packages",
                f"{', '.join(rest)}: needed, but left out of the lock",
                where=where,
                remedy="compile with --allow-unsafe",
            )
    entries = parse_compiled(text, where=where)
    if moving := [entry for entry in entries if entry.url and _VCS.match(entry.url)]:
        told = ", ".join(f"{entry.name} ({entry.url})" for entry in moving)
        raise LockError(
            "unhashable-vcs",
            f"{told}: version control has no hash, so pip will refuse it beside packages that have one",
            where=where,
            remedy="build a wheel of that commit once, serve it, and require the wheel",
        )
    if bare := [entry.name for entry in entries if not entry.hashes]:
        raise LockError(
            "unhashed-packages",
            f"no sha256 stands with {', '.join(bare)}",
            where=where,
            remedy="compile with --generate-hashes, or let `repro lock` resolve a requirements file instead",
        )
    return entries


def pins(entries: Sequence[Entry]) -> str:
    """Return a constraints file that holds a resolver to these pins; URLs bind by themselves."""
    return "".join(f"{entry.name}=={entry.version}\n" for entry in entries if entry.version is not None)


def render(entry: Entry) -> str:
    """Write one pin the way `pip-compile` does."""
    what = f"{entry.name}=={entry.version}" if entry.version else f"{entry.name} @ {entry.url}"
    head = f"{what} ; {entry.marker}" if entry.marker else what
    lines = [head, *(f"--hash={digest}" for digest in entry.hashes)]
    text = " \\\n    ".join(lines) + "\n"
    if len(entry.via) == 1:
        return f"{text}    # via {entry.via[0]}\n"
    return text + "".join(
        f"    # {line}\n" for line in (("via", *(f"  {via}" for via in entry.via)) if entry.via else ())
    )


def with_hashes(compiled: str, computed: Mapping[str, str]) -> str:
    """Write a compiled text again, each pin also with the digest that was computed for the chosen file."""
    entries = parse_compiled(compiled, where="pip-compile")
    return "".join(
        render(replace(entry, hashes=tuple(sorted({*entry.hashes, computed[entry.name]}))))
        for entry in sorted(entries, key=lambda entry: entry.name)
    )
