"""YAML as people write it by hand: one reading per text, every flaw with its line and column.

The text is YAML 1.2 with less in it: no anchors, aliases, merge keys, tags,
directives or second document. Of the plain scalars only `true`, `false`,
`null`, `~`, nothing at all and integers in their usual form are typed. All
others stay the text that was written, so `2.10`, `1e5`, `10m`, `no`, `0123`
and dates mean what they say.
"""

from __future__ import annotations

import difflib
import re
import types
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    CollectionStartEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    ScalarEvent,
    SequenceEndEvent,
)

from repro.errors import Flaw, SpecError
from repro.noun import Noun

__all__ = [
    "MAX_BYTES",
    "MAX_DEPTH",
    "MAX_EVENTS",
    "Document",
    "Path",
    "Position",
    "load",
    "path_text",
    "validate",
]

MAX_BYTES = 256 << 10
MAX_DEPTH = 32
MAX_EVENTS = 20_000

Path = tuple[str | int, ...]
"""Keys and list places from the top of a document down."""

Position = tuple[int, int]
"""Line and column, counted from 1."""

N = TypeVar("N", bound=Noun)

_INTEGER = re.compile(r"0|-?[1-9][0-9]{0,14}")
_CONSTANTS = {"true": True, "false": False, "null": None, "~": None, "": None}
_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"})
_LAYOUT = frozenset("\t\n\r")
_WORDS = {
    "model_type": "should be a mapping of keys to values",
    "model_attributes_type": "should be a mapping of keys to values",
    "dict_type": "should be a mapping of keys to values",
    "tuple_type": "should be a list",
    "too_short": "should hold at least one entry",
    "string_too_short": "should not be empty",
    "string_pattern_mismatch": "is not of the form that is wanted here; see docs/spec.md",
}
"""What pydantic means, for people; by the type of its error."""

_REMEDY = "correct the places named and try again"


@dataclass(frozen=True, slots=True)
class Document:
    """Plain values, and where each of them stands.

    `value` is made of dict, list, str, int, bool and None. `positions` maps the
    path of a mapping's member to its key, that of a list's item to the item.
    """

    value: Any
    positions: Mapping[Path, Position]

    def place(self, path: Path) -> Position:
        """Position of `path`, or of the nearest thing above it that is written down."""
        while path not in self.positions and path:
            path = path[:-1]
        return self.positions.get(path, (0, 0))

    def get(self, path: Path) -> Any:
        """Value at `path`, or None where the document does not go there."""
        value = self.value
        for part in path:
            if not isinstance(value, dict) or part not in value:
                return None
            value = value[part]
        return value

    def path_of(self, key: str) -> Path:
        """Path of a dotted key, as far down as the document goes; entries of a list go by their `name`.

        Names may hold dots: what is left of the key at a list is one name.
        """
        path: Path = ()
        value, rest = self.value, key
        while rest and isinstance(value, dict | list):
            if isinstance(value, dict):
                part, _, rest = rest.partition(".")
                if part not in value:
                    break
                value = value[part]
                path = (*path, part)
            else:
                names = [item.get("name") if isinstance(item, dict) else None for item in value]
                return (*path, names.index(rest)) if rest in names else path
        return path


def path_text(path: Path) -> str:
    """Write a path as people do: `models[0].name`."""
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def load(data: bytes, *, where: str) -> Document:
    """Read one YAML document.

    Args:
        data: the bytes of the file.
        where: name of the file, for messages.

    Raises:
        SpecError: kind `yaml-invalid`, with every flaw that could be found.
    """
    reader = _Reader()
    value = reader.read(data)
    if reader.flaws:
        raise _refusal("yaml-invalid", reader.flaws, where)
    return Document(value, types.MappingProxyType(reader.positions))


def validate(document: Document, model: type[N], *, where: str) -> N:
    """Turn a document into a noun.

    Raises:
        SpecError: kind `spec-invalid`, with every flaw, each at the key it belongs to.
    """
    try:
        return model.parse(document.value)
    except ValidationError as error:
        flaws = {
            _flaw(document, model, detail): None
            for detail in error.errors(include_url=False, include_input=False)
        }
    raise _refusal("spec-invalid", list(flaws), where)


def _refusal(kind: str, flaws: list[Flaw], where: str) -> SpecError:
    ordered = sorted(flaws, key=lambda flaw: (flaw.line, flaw.column))
    first = ordered[0]
    more = f" (and {len(ordered) - 1} more)" if len(ordered) > 1 else ""
    place = f"{where}:{first.line}:{first.column}" if first.line else where
    return SpecError(kind, first.message + more, where=place, remedy=_REMEDY, flaws=ordered)


def _forbidden(char: str) -> bool:
    return char not in _LAYOUT and unicodedata.category(char) in _FORBIDDEN


class _Reader:
    """One pass over the events of one text, collecting values, positions and flaws."""

    def __init__(self) -> None:
        self.flaws: list[Flaw] = []
        self.positions: dict[Path, Position] = {}

    def flaw(self, message: str, position: Position = (0, 0), path: Path = ()) -> None:
        line, column = position
        self.flaws.append(Flaw(path=path_text(path), line=line, column=column, message=message))

    def read(self, data: bytes) -> Any:
        text = self._decode(data)
        if text is None:
            return None
        self._check_directives(text)
        self.events = self._parse(text)
        try:
            return self._document()
        except _Stop:
            return None

    def _decode(self, data: bytes) -> str | None:
        """Decode, and put `?` where a forbidden character stood so that the rest can still be read."""
        if len(data) > MAX_BYTES:
            self.flaw(f"the file has {len(data)} bytes, more than the {MAX_BYTES} that are read")
            return None
        if data.startswith((b"\xef\xbb\xbf", b"\xff\xfe", b"\xfe\xff")):
            self.flaw("the file starts with a byte order mark; save it as UTF-8 without one", (1, 1))
            return None
        try:
            text = data.decode("utf-8", "strict")
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            self.flaw("the file is not UTF-8", (line, error.start - data.rfind(b"\n", 0, error.start)))
            return None
        if text.isascii() and text.replace("\n", "").isprintable():
            return text
        bad = [index for index, char in enumerate(text) if _forbidden(char)]
        for index in bad:
            position = (text.count("\n", 0, index) + 1, index - text.rfind("\n", 0, index))
            self.flaw(f"the invisible or control character U+{ord(text[index]):04X} is not allowed", position)
            if len(self.flaws) == 20:
                return None
        return "".join("?" if _forbidden(char) else char for char in text) if bad else text

    def _check_directives(self, text: str) -> None:
        for number, line in enumerate(text.splitlines(), 1):
            if line.startswith("%"):
                self.flaw("directives such as %YAML are not allowed", (number, 1))
            elif line.strip() and not line.startswith("#"):
                return

    def _parse(self, text: str) -> Iterator[Event]:
        """Yield events; the parser's own complaint becomes a flaw and ends the reading."""
        try:
            for count, event in enumerate(YAML(typ="safe", pure=True).parse(text)):
                if count == MAX_EVENTS:
                    self.flaw(f"the document holds more than {MAX_EVENTS} parts", _at(event))
                    raise _Stop
                yield event
        except MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            problem = str(error.problem or error.context or "cannot be read").replace("\x00", "end of file")
            self.flaw(f"not YAML: {problem}", (mark.line + 1, mark.column + 1) if mark else (0, 0))
            raise _Stop from None
        except YAMLError as error:
            self.flaw(f"not YAML: {str(error).splitlines()[0]}")
            raise _Stop from None
        except (ValueError, OverflowError):
            self.flaw("not YAML: an escape names no character")
            raise _Stop from None

    def _document(self) -> Any:
        value: Any = None
        seen = 0
        for event in self.events:
            if isinstance(event, DocumentStartEvent):
                seen += 1
                if seen > 1:
                    self.flaw("a second document is not allowed", _at(event))
                    raise _Stop
            elif isinstance(event, AliasEvent | ScalarEvent | CollectionStartEvent):
                self.positions[()] = _at(event)
                value = self._node(event, ())
        if not seen:
            self.flaw("the file is empty")
        return value

    def _node(self, event: Event, path: Path) -> Any:
        if isinstance(event, AliasEvent):
            self.flaw(f"aliases (*{event.anchor}) are not allowed; write the value out", _at(event), path)
            return None
        self._check_properties(event, path)
        if isinstance(event, ScalarEvent):
            return self._scalar(event, path)
        if len(path) >= MAX_DEPTH:
            self.flaw(f"nested deeper than {MAX_DEPTH} levels", _at(event), path)
            raise _Stop
        return self._mapping(path) if isinstance(event, MappingStartEvent) else self._sequence(path)

    def _check_properties(self, event: Any, path: Path) -> None:
        if event.anchor is not None:
            self.flaw(f"anchors (&{event.anchor}) are not allowed", _at(event), path)
        if event.ctag is not None:
            self.flaw(f"tags ({event.ctag}) are not allowed", _at(event), path)

    def _scalar(self, event: ScalarEvent, path: Path) -> Any:
        text: str = event.value
        if bad := next((char for char in text if _forbidden(char)), None):
            self.flaw(f"an escape stands for the forbidden character U+{ord(bad):04X}", _at(event), path)
        elif not unicodedata.is_normalized("NFC", text):
            self.flaw("text must be in Unicode normal form C", _at(event), path)
        if event.style is not None:
            return text
        if text in _CONSTANTS:
            return _CONSTANTS[text]
        return int(text) if _INTEGER.fullmatch(text) else text

    def _sequence(self, path: Path) -> list[Any]:
        items: list[Any] = []
        for event in self.events:
            if isinstance(event, SequenceEndEvent):
                break
            here = (*path, len(items))
            self.positions[here] = _at(event)
            items.append(self._node(event, here))
        return items

    def _mapping(self, path: Path) -> dict[str, Any]:
        members: dict[str, Any] = {}
        for event in self.events:
            if isinstance(event, MappingEndEvent):
                break
            key = self._key(event, path)
            here = (*path, key)
            if key in members:
                first = self.positions[here][0]
                self.flaw(f"the key {key!r} stands twice, first in line {first}", _at(event), here)
            else:
                self.positions[here] = _at(event)
            value = self._node(next(self.events), here)
            members.setdefault(key, value)
        return members

    def _key(self, event: Event, path: Path) -> str:
        """Keys are text whatever they look like: `1` and `"1"` are one key."""
        if not isinstance(event, ScalarEvent):
            if isinstance(event, AliasEvent):
                self._node(event, path)
            else:
                self.flaw("a key must be plain text", _at(event), path)
            raise _Stop
        self._check_properties(event, path)
        self._scalar(event, path)
        if event.value == "<<" and event.style is None:
            self.flaw("merge keys (<<) are not allowed; write the members out", _at(event), path)
        elif not event.value:
            self.flaw("a key is empty", _at(event), path)
        return str(event.value)


class _Stop(Exception):  # noqa: N818 - never leaves this module
    """The rest of the text cannot be read; its flaw is recorded."""


def _at(event: Event) -> Position:
    return event.start_mark.line + 1, event.start_mark.column + 1


def _flaw(document: Document, model: type[BaseModel], detail: Any) -> Flaw:
    path = _written(document, detail["loc"])
    line, column = document.place(path)
    message, kind = str(detail["msg"]), detail["type"]
    if kind == "extra_forbidden":
        message = f"unknown key {path[-1]!r}" + _suggestion(str(path[-1]), _fields(model, path[:-1]))
    elif kind == "missing":
        message = f"the key {detail['loc'][-1]!r} is missing"
    elif kind in _WORDS:
        message = _WORDS[kind]
    elif kind in ("value_error", "assertion_error"):
        message = message.partition(", ")[2]
    else:
        message = message.replace("Input should be", "should be")
    if kind not in ("extra_forbidden", "missing") and path:
        message = f"{path_text(path)}: {message}"
    return Flaw(path=path_text(path), line=line, column=column, message=message)


def _written(document: Document, loc: tuple[str | int, ...]) -> Path:
    """Keep of pydantic's location what the document has; it adds the names of types and branches."""
    path: Path = ()
    for part in loc:
        if (*path, part) in document.positions:
            path = (*path, part)
    return path


def _suggestion(key: str, known: set[str]) -> str:
    near = difflib.get_close_matches(key, sorted(known), n=1, cutoff=0.6)
    if near:
        return f"; did you mean {near[0]!r}?"
    return f"; known here: {', '.join(sorted(known))}" if known else ""


def _fields(kind: Any, path: Path) -> set[str]:
    """Names that may stand at `path` below a field of type `kind`."""
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        fields = {info.alias or name: info.annotation for name, info in kind.model_fields.items()}
        if not path:
            return set(fields)
        return _fields(fields.get(str(path[0])), path[1:])
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return set().union(*(_fields(argument, path) for argument in arguments))
    if origin in (tuple, list, dict) and path:
        return _fields(arguments[1 if origin is dict else 0], path[1:])
    return _fields(arguments[0], path) if hasattr(kind, "__metadata__") else set()
