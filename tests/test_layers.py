"""Imports point down only, and the container's part stays alone."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "repro"

NOUNS = [
    "tolerance",
    "spec",
    "lock",
    "resolution",
    "userspace",
    "host",
    "image",
    "job",
    "trace",
    "measurement",
    "saved",
    "proof",
    "verdict",
    "statement",
    "bundle",
    "trust",
    "manifest",
    "facts",
    "comparability",
]
BASE = {"errors", "digest", "strictjson", "strictyaml", "noun"}
VERBS = {"attest", "build", "capture", "compare", "doctor", "propose", "replay", "resolve", "run"}
MAY_CALL = {("capture", "run"), ("replay", "run")}
TOP = {"cli", "report"}
EDGE_ONLY = {"subprocess", "socket", "requests", "docker", "http", "urllib"}


def modules() -> list[Path]:
    return sorted(path for path in PACKAGE.rglob("*.py") if "recorder" not in path.relative_to(PACKAGE).parts)


def room(path: Path) -> str:
    parts = path.relative_to(PACKAGE).with_suffix("").parts
    return "__init__" if parts == ("__init__",) else parts[0]


def imports(path: Path) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}:{node.lineno}: relative import"
            module = node.module or ""
            if module == "repro":
                yield from ((node.lineno, f"repro.{alias.name}") for alias in node.names)
            else:
                yield node.lineno, module


def level(name: str) -> int:
    if name in BASE or name in ("__init__", "__version__"):
        return 0
    if name in NOUNS:
        return 1
    if name == "ports":
        return 2
    if name in VERBS:
        return 3
    if name == "adapters":
        return 4
    if name in TOP:
        return 5
    if name == "api":
        return 6
    if name == "recorder":
        return 0
    raise AssertionError(f"repro/{name} has no place in the house: give it one here and in docs/house.md")


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_imports_point_down(path: Path) -> None:
    here = room(path)
    for line, name in imports(path):
        if not name.startswith("repro."):
            continue
        there = name.split(".")[1]
        if there == here:
            continue
        place = f"{path}:{line}: {here} imports {there}"
        assert level(there) <= level(here), place
        if level(here) == level(there) == 1:
            assert NOUNS.index(there) < NOUNS.index(here), place
        if level(here) == level(there) == 3:
            assert (here, there) in MAY_CALL, place
        if here not in TOP | {"api"}:
            assert there not in TOP, place


@pytest.mark.parametrize("path", modules(), ids=lambda path: path.relative_to(PACKAGE).as_posix())
def test_only_adapters_touch_the_world(path: Path) -> None:
    if room(path) in ("adapters", "cli"):
        return
    used = {name.split(".")[0] for _, name in imports(path) if name != "urllib.parse"} & EDGE_ONLY
    assert not used, f"{path} imports {used}: that belongs into repro/adapters"


def test_the_recorder_needs_only_the_standard_library_and_torch() -> None:
    for path in (PACKAGE / "recorder").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module or ""]
            else:
                continue
            for name in names:
                assert not name.startswith("repro.") or name.startswith("repro.recorder"), f"{path}: {name}"


def test_the_walk_sees_the_house() -> None:
    rooms = {room(path) for path in modules()}
    assert {"cli", "adapters", "run", "spec", "errors"} <= rooms
