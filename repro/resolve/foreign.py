"""Locks that other tools wrote, as requirements: `uv.lock`, and `pylock.toml` of PEP 751.

Versions and hashes are theirs; which of them fit the image is decided here by
their markers. Files are fetched from the machine's own default index, whatever
address the lock has for the index that most packages come from, and are held to
the lock's hashes; packages of any other index are bound to that one.

`uv.lock[gpu,train]` takes the project's extras or dependency groups of these names too.
"""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, cast

from packaging.markers import Environment, InvalidMarker, Marker
from packaging.pylock import PackageWheel, Pylock, PylockSelectError, PylockValidationError
from packaging.utils import canonicalize_name

from repro.errors import LockError
from repro.lock import Platform
from repro.resolution import WheelIndex
from repro.resolve.compiled import Entry
from repro.resolve.indexes import index_name
from repro.resolve.platform import tags, target

__all__ = ["ForeignLock", "is_foreign", "named_parts", "read_foreign"]

_MALFORMED = (
    tomllib.TOMLDecodeError,
    InvalidMarker,
    PylockValidationError,
    RecursionError,
    AttributeError,
    KeyError,
    TypeError,
)

_PARTS = re.compile(r"(.+)\[([A-Za-z0-9._, -]*)\]")
_EXTRA = re.compile(r"\bextra\s*(==|!=)\s*(['\"])(.*?)\2")
_TRUE, _FALSE = "python_version >= '3'", "python_version < '3'"

_PYLOCK = re.compile(r"pylock(\.[^.]+)?\.toml")
"""File names of PEP 751."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ForeignLock:
    """What a foreign lock holds for one platform."""

    pins: tuple[Entry, ...]
    sources: Mapping[str, str | None]
    """Index address by package, where the lock has one."""

    def indexes(self, root: Path) -> list[WheelIndex]:
        """Return the indexes that are not the one most packages come from, with their packages bound."""
        ranked = Counter(source for source in self.sources.values() if source is not None).most_common()
        return [
            WheelIndex(
                name=index_name(source),
                url=source if "://" in source else str((root / source).resolve()),
                flat="://" not in source,
                packages=tuple(sorted(name for name in self.sources if self.sources[name] == source)),
            )
            for source, _ in ranked[1:]
        ]


def named_parts(path: str) -> tuple[str, tuple[str, ...]]:
    """Split off the extras and groups in brackets behind the path of a lock; return them normalised."""
    match = _PARTS.fullmatch(path)
    if match is None or not is_foreign(match[1]):
        return path, ()
    return match[1], tuple(canonicalize_name(part.strip()) for part in match[2].split(",") if part.strip())


def is_foreign(path: str) -> bool:
    """Say whether a file's name is that of a lock, brackets or none behind it."""
    name = PurePosixPath(path).name.partition("[")[0]
    return name == "uv.lock" or _PYLOCK.fullmatch(name) is not None


def read_foreign(text: str, *, path: str, platform: Platform, parts: Sequence[str] = ()) -> ForeignLock:
    """Read another tool's lock.

    Args:
        text: the whole file.
        path: its name tells the format.
        platform: what the lock is for.
        parts: extras and groups of the project that are wanted too, normalised.

    Raises:
        LockError: kinds `foreign-malformed`, `foreign-part-missing`, `foreign-platform`,
            `foreign-without-wheel`.
    """
    try:
        tree = tomllib.loads(text)
        if PurePosixPath(path).name == "uv.lock":
            return _UvLock(tree, path, platform, parts).read()
        return _read_pylock(tree, path, platform, parts)
    except PylockSelectError as error:
        raise LockError(
            "foreign-platform", str(error), where=path, remedy="make the lock for the image's platform too"
        ) from None
    except _MALFORMED as error:
        raise LockError(
            "foreign-malformed",
            f"the lock cannot be read: {type(error).__name__}: {error}",
            where=path,
            remedy="make it again with the tool that wrote it",
        ) from None


def _without_wheel(name: str, path: str) -> LockError:
    return LockError(
        "foreign-without-wheel",
        f"{name} is no released wheel in this lock, but a folder, a commit or a source archive",
        where=path,
        remedy="build a wheel of it once, serve it from an index, and lock that",
    )


def _check_parts(parts: Sequence[str], offered: Sequence[str], path: str) -> None:
    if unknown := [part for part in parts if part not in offered]:
        raise LockError(
            "foreign-part-missing",
            f"the lock has no extra and no group {', '.join(unknown)}, only {', '.join(offered) or 'none'}",
            where=path,
            remedy="correct the names in the brackets",
        )


def _read_pylock(tree: Mapping[str, Any], path: str, platform: Platform, parts: Sequence[str]) -> ForeignLock:
    lock = Pylock.from_dict(tree)
    extras, groups = lock.extras or (), lock.dependency_groups or ()
    _check_parts(parts, [*extras, *groups], path)
    pins: list[Entry] = []
    sources: dict[str, str | None] = {}
    environment = cast("Environment", target(platform)["markers"])
    selected = lock.select(
        environment=environment,
        tags=tags(platform),
        extras=[part for part in parts if part in extras],
        dependency_groups=[*(lock.default_groups or ()), *(part for part in parts if part in groups)],
    )
    for package, chosen in selected:
        if not isinstance(chosen, PackageWheel) or package.version is None:
            raise _without_wheel(package.name, path)
        hashes = [wheel.hashes.get("sha256") for wheel in package.wheels or ()]
        pins.append(
            _pin(package.name, str(package.version), [f"sha256:{hex_}" if hex_ else None for hex_ in hashes])
        )
        sources[package.name] = package.index
    return ForeignLock(pins=tuple(sorted(pins, key=lambda pin: pin.name)), sources=sources)


def _pin(name: str, version: str, hashes: Sequence[str | None]) -> Entry:
    """Make a pin; where one file has no hash, none is held against the others."""
    known = [digest for digest in hashes if digest is not None]
    return Entry(
        name=canonicalize_name(name),
        version=version,
        hashes=tuple(sorted(known)) if len(known) == len(hashes) else (),
    )


class _UvLock:
    """A `uv.lock`, walked from the project's own dependencies, and from the extras and groups wanted."""

    def __init__(self, tree: Mapping[str, Any], path: str, platform: Platform, parts: Sequence[str]) -> None:
        self.packages: list[Mapping[str, Any]] = tree["package"]
        self.path = path
        self.parts = parts
        self.markers: Mapping[str, str] = target(platform)["markers"]
        self.chosen: set[str] = set()
        """Conflicting parts as uv's markers name them: `extra-4-demo-gpu` for the extra `gpu` of `demo`."""
        self.found: dict[str, Mapping[str, Any]] = {}

    def _applies(self, marker: str | None) -> bool:
        """Evaluate a marker; `extra` in it stands for every part that is wanted, not for one."""
        if marker is None:
            return True

        def one(match: re.Match[str]) -> str:
            return _TRUE if (match[3] in self.chosen) == (match[1] == "==") else _FALSE

        return Marker(_EXTRA.sub(one, marker)).evaluate(dict(self.markers))

    def _one(self, wanted: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the package a dependency means; a fork of the resolution applies by its markers."""
        for package in self.packages:
            if package["name"] != wanted["name"]:
                continue
            same = wanted.get("version", package.get("version")) == package.get("version")
            forks = package.get("resolution-markers")
            if same and (forks is None or any(map(self._applies, forks))):
                return package
        raise KeyError(f"no package {wanted['name']}")

    def _follow(self, wanted: Mapping[str, Any], seen: set[tuple[str, str]]) -> None:
        package = self._one(wanted)
        self.found[package["name"]] = package
        extras = package.get("optional-dependencies", {})
        steps = [("", package.get("dependencies", ()))]
        steps += [(extra, extras.get(extra, ())) for extra in wanted.get("extra", ())]
        for extra, dependencies in steps:
            if (package["name"], extra) not in seen:
                seen.add((package["name"], extra))
                for dependency in dependencies:
                    if self._applies(dependency.get("marker")):
                        self._follow(dependency, seen)

    def _choose_parts(self, roots: Sequence[Mapping[str, Any]]) -> None:
        offered: list[str] = []
        for root in roots:
            name = root["name"]
            for kind, key in (("extra", "optional-dependencies"), ("group", "dev-dependencies")):
                here = list(root.get(key, {}))
                offered += here
                self.chosen |= {f"{kind}-{len(name)}-{name}-{part}" for part in self.parts if part in here}
        _check_parts(self.parts, offered, self.path)

    def read(self) -> ForeignLock:
        """Return the packages that the project needs on the platform."""
        roots = [package for package in self.packages if _is_project(package["source"])]
        self._choose_parts(roots)
        seen: set[tuple[str, str]] = set()
        for root in roots:
            self._follow({"name": root["name"], "extra": self.parts}, seen)
            for part in self.parts:
                for dependency in root.get("dev-dependencies", {}).get(part, ()):
                    if self._applies(dependency.get("marker")):
                        self._follow(dependency, seen)
        pins: list[Entry] = []
        sources: dict[str, str | None] = {}
        for name, package in sorted(self.found.items()):
            if package in roots:
                continue
            if "registry" not in package["source"] or not package.get("wheels"):
                raise _without_wheel(name, self.path)
            hashes = [wheel.get("hash") for wheel in package["wheels"]]
            pins.append(_pin(name, package["version"], hashes))
            sources[name] = package["source"]["registry"]
        return ForeignLock(pins=tuple(pins), sources=sources)


def _is_project(source: Mapping[str, str]) -> bool:
    return "virtual" in source or "editable" in source
