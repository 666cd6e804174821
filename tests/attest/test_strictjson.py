from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.digest import canonical_json
from repro.errors import TrustError
from repro.strictjson import MAX_DEPTH, loads


@pytest.mark.parametrize(
    ("data", "code", "says"),
    [
        (b"\xef\xbb\xbf1", "E_JSON", "byte order mark"),
        ("1".encode("utf-16"), "E_JSON", "not UTF-8"),
        (b'"\xed\xa0\x80"', "E_JSON", "not UTF-8"),
        (b'{"a":1,"a":1}', "E_JSON", "twice"),
        (b'{"a":1,"\\u0061":1}', "E_JSON", "twice"),
        (b"1.0", "E_JSON", "not an integer"),
        (b"1e3", "E_JSON", "not an integer"),
        (b"NaN", "E_JSON", "not an integer"),
        (b"-0", "E_JSON", "-0"),
        (b"9007199254740992", "E_JSON", "outside"),
        (b"-9007199254740992", "E_JSON", "outside"),
        (b"9" * 5000, "E_JSON", "outside"),
        (b"[" * (MAX_DEPTH + 1), "E_JSON", "nests deeper"),
        (b"1 2", "E_JSON", "not JSON"),
        (b"", "E_JSON", "not JSON"),
        (b'"\\u0000"', "E_TEXT", "U+0000"),
        (b'["\\ud800"]', "E_TEXT", "U+D800"),
        ('{"a":"\u202e"}'.encode(), "E_TEXT", "U+202E"),
        ('{"\u200b":1}'.encode(), "E_TEXT", "U+200B"),
        ('[["e\u0301"]]'.encode(), "E_TEXT", "normal form C"),
        (b" " * 65, "E_SIZE", "more than the limit"),
    ],
)
def test_what_is_refused(data: bytes, code: str, says: str) -> None:
    with pytest.raises(TrustError) as caught:
        loads(data, where="x", max_bytes=64 if code == "E_SIZE" else 1 << 20)
    assert caught.value.kind == code
    assert says in caught.value.message


@pytest.mark.parametrize("number", [0, 1, -1, (1 << 53) - 1, 1 - (1 << 53)])
def test_integers_that_every_reader_agrees_about(number: int) -> None:
    assert loads(str(number).encode(), where="x") == number


def test_depth_is_counted_outside_of_strings() -> None:
    assert loads(b'["' + b"[" * 99 + b'\\"[["]', where="x") == ["[" * 99 + '"[[']
    assert loads(b"[" * MAX_DEPTH + b"]" * MAX_DEPTH, where="x")


TREES: st.SearchStrategy[Any] = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 53) + 1, (1 << 53) - 1)
    | st.text("abcé 1\t\n", max_size=6),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=4),
    max_leaves=20,
)


@given(TREES)
def test_what_we_write_is_read_back(tree: Any) -> None:
    assert loads(canonical_json(tree), where="x") == tree
    assert json.loads(canonical_json(tree)) == tree
