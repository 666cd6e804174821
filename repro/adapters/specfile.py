"""Add to `repro.yaml` as its owner would: what stands there stays, to the byte, comments and layout too.

New keys are put into the text at the places that the parser names; nothing is written again by a YAML writer,
which would lay the file out in its own way.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, ScalarNode

from repro import strictyaml
from repro.errors import FileError, SpecError
from repro.strictyaml import Path, path_text

__all__ = ["Extended", "add_missing"]

_PLAIN = re.compile(r"[A-Za-z_.][\w./-]*")
_TYPED = {"true", "false", "null"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Extended:
    """A `repro.yaml` with keys added, and which they are."""

    data: bytes
    added: tuple[str, ...]
    """Dotted keys."""
    left: tuple[str, ...]
    """Dotted keys that were there, and were left as they are."""


def _flow(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_flow(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_flow, value)) + "]"
    if isinstance(value, str) and _PLAIN.fullmatch(value) and value not in _TYPED:
        return value
    return json.dumps(value, ensure_ascii=False)


def _lines(key: str, value: Any, indent: int) -> list[str]:
    """One member of a block mapping: below the top, a mapping keeps to one line."""
    if indent == 0 and isinstance(value, Mapping):
        return [f"{key}:", *(f"  {inner}: {_flow(item)}" for inner, item in value.items())]
    return [f"{' ' * indent}{key}: {_flow(value)}"]


def _compare(wanted: Mapping[str, Any], there: Any, path: Path = ()) -> Iterator[tuple[Path, Any, bool]]:
    """Yield what is wanted, as far down as both go: path, value, whether it is there."""
    for key, value in wanted.items():
        here = (*path, key)
        if not isinstance(there, dict) or key not in there:
            yield here, value, False
        elif isinstance(value, Mapping) and isinstance(there[key], dict | None):
            yield from _compare(value, there[key], here)
        else:
            yield here, value, True


def _find(root: Any, path: Path) -> tuple[Any, Any]:
    """Nodes of the key and of the value at a path; at the top there is no key."""
    key: Any = None
    node = root
    for part in path:
        key, node = next((name, value) for name, value in node.value if name.value == part)
    return key, node


def _insert(text: str, path: Path, value: Any) -> str:
    """Put one member into the mapping above it."""
    end = "\r\n" if "\r\n" in text else "\n"
    key, node = _find(YAML(typ="safe", pure=True).compose(text), path[:-1])
    name = str(path[-1])
    if isinstance(node, MappingNode) and node.flow_style:
        at = node.start_mark.index + 1
        return f"{text[:at]}{name}: {_flow(value)}{', ' if node.value else ''}{text[at:]}"
    if isinstance(node, ScalarNode):
        at, indent = key.end_mark.index, key.start_mark.column + 2
    elif key is None:
        at, indent = len(text), node.start_mark.column
    else:
        at, indent = key.end_mark.index, node.start_mark.column
    line_end = text.find("\n", at)
    at = len(text) if line_end < 0 else line_end + 1
    before = text[:at] if not text[:at] or text[:at].endswith("\n") else text[:at] + end
    return before + "".join(f"{line}{end}" for line in _lines(name, value, indent)) + text[at:]


def _kept(old: Any, new: Any) -> bool:
    """Whether every value of the first is in the second, as it was. Nothing is there yet where null stood."""
    if isinstance(old, dict):
        return isinstance(new, dict) and all(key in new and _kept(old[key], new[key]) for key in old)
    return bool(old == new) or (old is None and isinstance(new, dict))


def add_missing(data: bytes, wanted: Mapping[str, Any], *, where: str) -> Extended:
    """Add the members of a `repro.yaml` that are missing in it.

    Args:
        data: the file as it is.
        wanted: the members that it should have, as nested mappings.
        where: name of the file, for messages.

    Raises:
        SpecError: `yaml-invalid` with every flaw of the text.
        FileError: `spec-not-extended` where a place cannot be found without a change to what is there.
    """
    before = strictyaml.load(data, where=where)
    compared = list(_compare(wanted, before.value))
    text = data.decode("utf-8")
    missing = [(path, value) for path, value, there in compared if not there]
    at_the_end = [one for one in missing if len(one[0]) == 1]
    at_the_beginning = [one for one in missing if len(one[0]) > 1]
    for path, value in [*at_the_end, *reversed(at_the_beginning)]:
        try:
            text = _insert(text, path, value)
            after = strictyaml.load(text.encode(), where=where)
        except (SpecError, StopIteration, AttributeError):
            raise _refusal(path, value, where) from None
        if not _kept(before.value, after.value) or path not in after.positions:
            raise _refusal(path, value, where)
    return Extended(
        data=text.encode("utf-8"),
        added=tuple(path_text(path) for path, _, there in compared if not there),
        left=tuple(path_text(path) for path, _, there in compared if there),
    )


def _refusal(path: Path, value: Any, where: str) -> FileError:
    return FileError(
        "spec-not-extended",
        f"{path_text(path)} is missing, and cannot be added without a change to what is there",
        where=where,
        remedy=f"add it by hand: {path[-1]}: {_flow(value)}",
    )
