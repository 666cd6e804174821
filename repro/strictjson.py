"""JSON as signed files use it: one meaning per text, or a refusal.

Refused: a byte order mark, anything but UTF-8, duplicate members, floats and
non-finite numbers, integers beyond 2**53 - 1, `-0`, text that is not NFC or
holds control, format, surrogate or unassigned characters, deep nesting, and
anything after the value. The rules are those of `docs/manifest.md`.
"""

from __future__ import annotations

import json
import re
import unicodedata
from typing import Any, NoReturn

from repro.errors import TrustError

__all__ = ["MAX_BYTES", "MAX_DEPTH", "loads"]

MAX_BYTES = 8 << 20
MAX_DEPTH = 32
MAX_INTEGER = (1 << 53) - 1

_STRUCTURE = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[{\]}]', re.DOTALL)
"""A string, or one bracket outside of strings."""
_FORBIDDEN = frozenset({"Cc", "Cf", "Cs", "Co", "Cn"})
_ALLOWED_CONTROLS = frozenset("\t\n")


def _refuse(kind: str, message: str, where: str) -> NoReturn:
    raise TrustError(kind, message, where=where, remedy="obtain the file again from whoever signed it")


def _check_depth(text: str, where: str) -> None:
    depth = 0
    for found in _STRUCTURE.finditer(text):
        if found[0] in "[{":
            depth += 1
            if depth > MAX_DEPTH:
                _refuse("E_JSON", f"JSON nests deeper than {MAX_DEPTH} levels", where)
        elif found[0] in "]}":
            depth -= 1


def _check_text(text: str, where: str) -> str:
    if text.isascii() and text.isprintable():
        return text
    for char in text:
        if unicodedata.category(char) in _FORBIDDEN and char not in _ALLOWED_CONTROLS:
            _refuse("E_TEXT", f"text holds the forbidden character U+{ord(char):04X}", where)
    if not unicodedata.is_normalized("NFC", text):
        _refuse("E_TEXT", "text is not in Unicode normal form C", where)
    return text


def loads(data: bytes, *, where: str, max_bytes: int = MAX_BYTES) -> Any:
    """Parse strict JSON.

    Args:
        data: the exact bytes, already read once.
        where: what the bytes are, for messages.
        max_bytes: size limit in bytes.

    Raises:
        TrustError: kind `E_SIZE`, `E_JSON` or `E_TEXT`.
    """
    if len(data) > max_bytes:
        _refuse("E_SIZE", f"{len(data)} bytes is more than the limit of {max_bytes}", where)
    if data.startswith(b"\xef\xbb\xbf"):
        _refuse("E_JSON", "JSON starts with a byte order mark", where)
    try:
        text = data.decode("utf-8", "strict")
    except UnicodeDecodeError as error:
        _refuse("E_JSON", f"JSON is not UTF-8 at byte {error.start}", where)
    _check_depth(text, where)

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(items)
        if len(result) != len(items):
            _refuse("E_JSON", "a JSON object holds a member twice", where)
        for key, value in items:
            _check_text(key, where)
            if isinstance(value, str):
                _check_text(value, where)
        return result

    def integer(digits: str) -> int:
        if digits == "-0" or len(digits) > 17 or abs(int(digits)) > MAX_INTEGER:
            _refuse("E_JSON", f"the integer {digits[:20]} is outside -(2^53 - 1) .. 2^53 - 1 or is -0", where)
        return int(digits)

    def refuse_number(number: str) -> NoReturn:
        _refuse("E_JSON", f"the number {number[:20]} is not an integer", where)

    try:
        value = json.loads(
            text,
            object_pairs_hook=pairs,
            parse_int=integer,
            parse_float=refuse_number,
            parse_constant=refuse_number,
        )
    except json.JSONDecodeError as error:
        _refuse("E_JSON", f"not JSON: {error.msg} at line {error.lineno} column {error.colno}", where)
    _check_strings(value, where)
    return value


def _check_strings(value: Any, where: str) -> None:
    """Check strings that stand in lists or alone; those in objects were checked while parsing."""
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, str):
            _check_text(item, where)
        elif isinstance(item, list):
            stack.extend(item)
        elif isinstance(item, dict):
            stack.extend(v for v in item.values() if not isinstance(v, str))
