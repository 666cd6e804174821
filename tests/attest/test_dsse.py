from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.attest.dsse import decode_base64, encode_base64, pae
from repro.errors import TrustError


def test_pae_is_that_of_the_specification() -> None:
    """The example of DSSE 1.0.2, protocol.md."""
    assert (
        pae("http://example.com/HelloWorld", b"hello world")
        == b"DSSEv1 29 http://example.com/HelloWorld 11 hello world"
    )


def test_pae_counts_bytes_and_keeps_them() -> None:
    assert pae("é", "é\n".encode()) == b"DSSEv1 2 \xc3\xa9 3 \xc3\xa9\n"
    assert pae("", b"") == b"DSSEv1 0  0 "


@given(st.text(max_size=20), st.binary(max_size=40), st.text(max_size=20), st.binary(max_size=40))
def test_pae_tells_everything_apart(one: str, first: bytes, other: str, second: bytes) -> None:
    assert (pae(one, first) == pae(other, second)) == ((one, first) == (other, second))


@given(st.binary(max_size=80))
def test_base64_has_two_spellings_and_no_third(data: bytes) -> None:
    assert decode_base64(encode_base64(data), where="x") == data
    assert decode_base64(base64.urlsafe_b64encode(data).decode(), where="x") == data


@given(st.text(alphabet="ABab01+/-_= \n", max_size=12))
def test_whatever_decodes_is_canonical(text: str) -> None:
    kind: str | None = None
    try:
        data = decode_base64(text, where="x")
    except TrustError as error:
        kind = error.kind
    else:
        assert text in (base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode())
    assert kind in (None, "E_B64")


@pytest.mark.parametrize(
    "text", ["A", "AA", "AAA", "AB==", "AAA=\n", "A===", "====", "+-==", "é===", "AAAA "]
)
def test_what_is_no_base64(text: str) -> None:
    with pytest.raises(TrustError) as caught:
        decode_base64(text, where="x")
    assert caught.value.kind == "E_B64"
