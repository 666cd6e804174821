"""Read requirement files as a person writes them, and refuse by name what no lock can hold.

The format is pip's: UTF-8 with or without a byte order mark, `\\` continues a
line, `#` after white space starts a comment, options start with `-`. Everything
that says where to fetch from is read out of the files, so that it can be named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from urllib.parse import urlsplit

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from repro.errors import LockError
from repro.lock import Platform
from repro.resolution import Inputs, WheelIndex
from repro.resolve.compiled import pins
from repro.resolve.foreign import is_foreign, named_parts, read_foreign
from repro.resolve.indexes import declared_indexes, index_name
from repro.resolve.inputfiles import below, read_text, requirement_lines
from repro.spec import IndexSpec

__all__ = ["Asked", "read_inputs"]

_HASH = re.compile(r"\s--hash[= ](\S+)")
_VCS = re.compile(r"(?:[^@\s]+\s*@\s*)?(?:git|hg|svn|bzr)\+")
_URL = re.compile(r"[a-z][a-z0-9+.-]*:/", re.IGNORECASE)
_LOCAL = re.compile(r"\.{0,2}/|~|[A-Za-z]:[\\/]|.*\.(?:whl|zip|tar\.gz|tar\.bz2|tgz)$")
_OPTION = re.compile(r"(--?[a-z-]+)(?:[= ]\s*(.*))?$|(-[A-Za-z])(\S.*)$")

_LONG = {
    "-r": "--requirement",
    "-c": "--constraint",
    "-e": "--editable",
    "-i": "--index-url",
    "-f": "--find-links",
}
_HARMLESS = frozenset({"--only-binary", "--prefer-binary", "--require-hashes"})
"""What they ask for, every lock has."""

# Families whose wheels for several accelerators share one public version.
_BUILT_PER_ACCELERATOR = frozenset({"torch", "torchvision", "torchaudio", "torchtext", "triton", "jaxlib"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Asked:
    """One requirement or constraint, and where it stands."""

    name: str
    """Normalised."""
    text: str
    file: str
    line: int


@dataclass(kw_only=True)
class _Reader:
    root: Path
    platform: Platform
    documents: dict[str, str] = field(default_factory=dict)
    asked: list[Asked] = field(default_factory=list)
    indexes: list[WheelIndex] = field(default_factory=list)
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    direct: list[str] = field(default_factory=list)
    replaces_default: bool = False
    prereleases: bool = False
    closed: list[str] = field(default_factory=list)
    parts: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Extras and groups that are wanted of a lock, by its path."""

    def read(self, path: str, place: str, *, constraint: bool) -> None:
        """Take a file in, and every file it names."""
        path, parts = named_parts(path)
        if self.parts.setdefault(path, parts) != parts:
            raise LockError(
                "foreign-parts-twice",
                f"{path} is named twice, with other extras or groups in brackets",
                where=place,
                remedy="write all of them in one pair of brackets",
            )
        if path in self.documents:
            return
        self.documents[path] = ""
        if is_foreign(path):
            self._foreign(path, place, parts)
            return
        kept: list[str] = []
        for number, line in requirement_lines(read_text(self.root, path, place)):
            # A blank line for each that was taken out, so that the resolver counts lines as the person does.
            kept += [""] * (number - 1 - len(kept))
            if line.startswith("-"):
                kept.append(self._option(line, path, f"{path}:{number}", constraint=constraint))
            else:
                kept.append(self._requirement(line, path, number, constraint=constraint))
        self.documents[path] = "".join(f"{line}\n" for line in kept)

    def _foreign(self, path: str, place: str, parts: Sequence[str]) -> None:
        """Take in another tool's lock: its pins, and every hash it allows."""
        lock = read_foreign(read_text(self.root, path, place), path=path, platform=self.platform, parts=parts)
        self.indexes += [index for index in lock.indexes(self.root) if index not in self.indexes]
        self.allowed |= {pin.name: pin.hashes for pin in lock.pins if pin.hashes}
        self.documents[path] = pins(lock.pins)
        self.closed += [pin.name for pin in lock.pins]

    def _option(self, line: str, path: str, here: str, *, constraint: bool) -> str:
        match = _OPTION.match(line)
        name, value = (match[1] or match[3], (match[2] or match[4] or "").strip()) if match else (line, "")
        name = _LONG.get(name, name)
        if name in ("--requirement", "--constraint"):
            nested = below(PurePosixPath(path).parent / value, here)
            self.read(nested, here, constraint=constraint or name == "--constraint")
            return f"{'-c' if name == '--constraint' else '-r'} {named_parts(value)[0]}"
        if name in ("--index-url", "--extra-index-url", "--find-links"):
            self.replaces_default |= name == "--index-url"
            self._index(value, path, flat=name == "--find-links")
        elif name == "--pre":
            self.prereleases = True
        elif name == "--editable":
            raise LockError(
                "editable-requirement",
                f"{value} is installed from its folder, which changes without the lock knowing",
                where=here,
                remedy="list the folder under pilot.source in repro.yaml, or build a wheel and require that",
            )
        elif name not in _HARMLESS:
            raise LockError(
                "requirement-option",
                f"the option {name} has no place in a file that is locked",
                where=here,
                remedy="take it out; what concerns this machine belongs into pip's own configuration",
            )
        return ""

    def _index(self, value: str, path: str, *, flat: bool) -> None:
        if not _URL.match(value) or value.startswith("file:"):
            value = str((self.root / PurePosixPath(path).parent / value.removeprefix("file://")).resolve())
        index = WheelIndex(name=index_name(value), url=value, flat=flat)
        if index not in self.indexes:
            self.indexes.append(index)

    def _requirement(self, line: str, path: str, number: int, *, constraint: bool) -> str:
        here = f"{path}:{number}"
        hashes = tuple(sorted(_HASH.findall(line)))
        text = _HASH.sub("", line).strip()
        if _VCS.match(text):
            raise LockError(
                "unhashable-vcs",
                f"{text.split('@')[0].strip()} comes from version control ({text}), which has no hash",
                where=here,
                remedy="build a wheel of that commit once, serve it, and require the wheel",
            )
        bare = text.split(";")[0].strip()
        if " @ " not in text and (_URL.match(bare) or _LOCAL.match(bare)):
            raise LockError(
                "nameless-requirement",
                f"{text} is a file without the name of a package",
                where=here,
                remedy="write NAME @ URL of a wheel, or serve the wheel from an index",
            )
        try:
            requirement = Requirement(text)
        except InvalidRequirement as error:
            raise LockError(
                "requirement-malformed",
                f"{text!r}: {str(error).splitlines()[0]}",
                where=here,
                remedy="correct the line",
            ) from None
        name = canonicalize_name(requirement.name)
        if constraint:
            _check_constraint(requirement, here)
        if requirement.url is not None:
            _check_url(name, requirement.url, here)
            self.direct.append(name)
        if hashes:
            self.allowed[name] = tuple(sorted({*self.allowed.get(name, ()), *hashes}))
        self.asked.append(Asked(name=name, text=text, file=path, line=number))
        return text


def _check_constraint(requirement: Requirement, here: str) -> None:
    if requirement.extras:
        raise LockError(
            "constraint-with-extras",
            f"the constraint {requirement} names extras, which pip refuses and pip-compile drops in silence",
            where=here,
            remedy=f"write {requirement.name}{requirement.specifier} here; require the extras elsewhere",
        )
    if requirement.url is not None:
        raise LockError(
            "constraint-by-url",
            f"the constraint on {requirement.name} is a URL, which constrains nothing",
            where=here,
            remedy="require the URL in a requirements file",
        )


def _check_url(name: str, url: str, here: str) -> None:
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.path.endswith(".whl"):
        raise LockError(
            "unhashable-requirement",
            f"{name} is required from {parts.scheme or 'a folder'}:, and not as a wheel by HTTP",
            where=here,
            remedy="build a wheel once, serve it, and require NAME @ its URL, or its version from an index",
        )
    if parts.username or parts.password:
        raise LockError(
            "credential-in-requirement",
            f"the URL of {name} holds a credential",
            where=here,
            remedy="take it out, and give it to pip in .netrc or a keyring",
        )


def _warnings(reader: _Reader, inputs: Inputs) -> Iterator[str]:
    bound = {name for index in inputs.indexes for name in index.packages}
    if inputs.prereleases:
        yield "--pre takes pre-releases of every package, so what a lock finds depends on the day it is made"
    for asked in reader.asked:
        if asked.name not in _BUILT_PER_ACCELERATOR or asked.name in bound:
            continue
        pinned = [spec.version for spec in Requirement(asked.text).specifier if spec.operator == "=="]
        if any("+" not in version and "*" not in version for version in pinned):
            yield (
                f"{asked.file}:{asked.line}: {asked.text} fits the builds for every accelerator; write the "
                "local version too, such as +cpu, or say which index it comes from"
            )


def read_inputs(
    root: Path,
    requirements: Sequence[str],
    constraints: Sequence[str],
    indexes: Sequence[IndexSpec],
    platform: Platform,
) -> tuple[Inputs, tuple[Asked, ...], tuple[str, ...]]:
    """Read requirement files and all they name.

    Args:
        root: folder of `repro.yaml`.
        requirements: POSIX paths below `root` of what is required.
        constraints: POSIX paths below `root` of what is only held to.
        indexes: indexes that `repro.yaml` declares.
        platform: for locks that hold several.

    Returns:
        the inputs, each requirement and constraint in order, and warnings.

    Raises:
        LockError: `input-missing`, `input-outside-project`, `requirement-malformed`, `requirement-option`,
            `unhashable-vcs`, `unhashable-requirement`, `editable-requirement`, `nameless-requirement`,
            `constraint-with-extras`, `constraint-by-url`, `credential-in-requirement`, `index-name-taken`,
            `index-ambiguity`, or as `read_foreign` says.
    """
    reader = _Reader(root=root, platform=platform)
    for path in requirements:
        reader.read(path, "accelerators.*.requirements", constraint=False)
    for path in constraints:
        reader.read(path, "accelerators.*.constraints", constraint=True)
    declared = declared_indexes(indexes)
    inputs = Inputs(
        requirements=tuple(named_parts(path)[0] for path in requirements),
        constraints=tuple(named_parts(path)[0] for path in constraints),
        documents=dict(reader.documents),
        indexes=(*declared, *reader.indexes),
        replaces_default=reader.replaces_default,
        prereleases=reader.prereleases,
        closed=tuple(reader.closed) if all(map(is_foreign, requirements)) else None,
        direct=tuple(reader.direct),
        allowed=dict(reader.allowed),
    )
    return inputs, tuple(reader.asked), tuple(_warnings(reader, inputs))
