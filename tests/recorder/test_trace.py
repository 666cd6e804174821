"""Reading traces: strict about what is whole, calm about what was cut off."""

from __future__ import annotations

import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import TraceError
from repro.recorder.emit import FORMAT as RECORDED_FORMAT
from repro.recorder.emit import encode
from repro.trace import (
    DETERMINISTIC,
    FORMAT,
    VOLATILE,
    PhaseTrace,
    RankFile,
    Trace,
    decode_sketch,
    encode_sketch,
    event_name,
    fingerprint,
    hexed,
    is_deterministic,
    rank_of,
    read_events,
    unhex,
    write_line,
)

HEAD = {"ev": "head", "format": FORMAT, "rank": 0, "world": 1}
TEXT = st.text(max_size=8)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=10,
)
LATER_KEYS = st.text(min_size=1, max_size=6).map(lambda text: "f" + text)


@given(st.sampled_from(sorted(DETERMINISTIC | VOLATILE)), st.dictionaries(LATER_KEYS, VALUES, max_size=4))
def test_lines_come_back_and_both_encoders_agree(kind: str, rest: dict[str, Any]) -> None:
    event = {"ev": kind, **rest}
    line = write_line(event)
    assert encode(event) == line
    assert line.isascii()
    assert line.count(b"\n") == 1
    assert event_name(line) == kind.encode()
    assert is_deterministic(line) is (kind in DETERMINISTIC)
    assert list(read_events([write_line(HEAD), line], "x")) == [HEAD, event]


def test_both_sides_mean_the_same_format() -> None:
    assert RECORDED_FORMAT == FORMAT
    assert not DETERMINISTIC & VOLATILE


def test_the_kind_is_found_behind_names_that_look_like_it() -> None:
    step = {"ev": "model", "buffers": {"ev": {"shape": []}, '"ev":"head"': {"dtype": "x"}}}
    assert event_name(write_line(step)) == b"model"
    assert event_name(b"{}\n") == b""


@given(st.floats())
def test_floats_come_back_bit_for_bit(value: float) -> None:
    back = unhex(hexed(value))
    assert (back == value and struct.pack("<d", back) == struct.pack("<d", value)) or value != value


@pytest.mark.parametrize("text", ["1.0", "0x1p3 ", "0x1p3", "infinity", "", None, 3, "NaN", "0x1.8P+1"])
def test_other_spellings_of_floats_are_refused(text: object) -> None:
    with pytest.raises(TraceError) as caught:
        unhex(text)
    assert caught.value.kind == "trace-malformed"


@given(st.lists(st.floats(allow_nan=False), min_size=1, max_size=64))
def test_sketches_come_back(values: list[float]) -> None:
    assert decode_sketch(encode_sketch(values)) == tuple(values)


@pytest.mark.parametrize("text", ["AAAA", "not base64!", None, 3])
def test_other_sketches_are_refused(text: object) -> None:
    with pytest.raises(TraceError):
        decode_sketch(text)


def test_floats_cannot_be_written() -> None:
    with pytest.raises(TypeError):
        write_line({"ev": "step", "grads": [{"l2": 1.5}]})


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b"[]\n",
        b"null\n",
        b'{"ev":"step","step":1.5}\n',
        b'{"ev":"step","step":NaN}\n',
        b'{"ev":"step","ev":"time"}\n',
        b'{"ev":"torn"}\n',
        b'{"ev":"other"}\n',
        b'{"step":1}\n',
        b'{"ev":"step"}}\n',
        '{"ev":"step","name":"é"}\n'.encode(),
        b'{"ev":"step","name":"\xff"}\n',
        b'{"ev":"step","step":' + b"[" * 100_000 + b"\n",
    ],
)
def test_a_line_that_breaks_the_format_is_named(line: bytes) -> None:
    with pytest.raises(TraceError) as caught:
        list(read_events([write_line(HEAD), line, line], "rank-0.jsonl"))
    assert caught.value.kind == "trace-malformed"
    assert caught.value.where == "rank-0.jsonl line 2"


@pytest.mark.parametrize("first", [{"ev": "step"}, {"ev": "head", "format": "repro-trace/2"}, {"ev": "head"}])
def test_a_file_begins_with_a_head_of_this_format(first: dict[str, Any]) -> None:
    with pytest.raises(TraceError) as caught:
        list(read_events([write_line(first)], "x"))
    assert caught.value.kind == "trace-format"


@given(st.integers(0, 200))
def test_a_cut_keeps_what_is_whole_and_says_so(cut: int) -> None:
    data = write_line(HEAD) + write_line({"ev": "step", "step": 1}) + write_line({"ev": "step", "step": 2})
    kept = data[: min(cut, len(data))]
    found = list(read_events(kept.splitlines(keepends=True), "x"))
    whole = [event for event in found if event["ev"] != "torn"]
    assert len(whole) == kept.count(b"\n")
    assert (found != whole) is (bool(kept) and not kept.endswith(b"\n"))
    if found != whole:
        assert found[-1] == {"ev": "torn", "line": len(found), "bytes": len(kept.rpartition(b"\n")[2])}


def test_fingerprints() -> None:
    sketch = encode_sketch([1.0] * 64)
    found = fingerprint(
        {"shape": [2, 3], "dtype": "bfloat16", "n": 3, "off": 3, "rep": 1, "sk": sketch, "l2": "inf"}
    )
    assert (found.shape, found.dtype, found.n, found.offset, found.replica) == (
        (2, 3),
        "bfloat16",
        3,
        3,
        True,
    )
    assert found.sketch == (1.0,) * 64
    assert (found.l2, found.digest, found.index, found.bad) == (float("inf"), None, None, 0)
    others: list[object] = [{}, None, [], {"shape": 3, "dtype": "x", "n": 1}, {"shape": [], "dtype": "x"}]
    for broken in others:
        with pytest.raises(TraceError):
            fingerprint(broken)


@pytest.mark.parametrize("path", ["rank-0.jsonl", "trace/full/rank-12.jsonl"])
def test_rank_of(path: str) -> None:
    assert rank_of(path) == int(path.split("-")[-1].split(".")[0])


@pytest.mark.parametrize(
    "path", ["rank-01.jsonl", "rank--1.jsonl", "rank-1.json", "xrank-1.jsonl", "rank-1.jsonl.gz"]
)
def test_other_names_are_refused(path: str) -> None:
    with pytest.raises(TraceError) as caught:
        rank_of(path)
    assert caught.value.kind == "trace-name"


def rank_file(rank: int, *events: dict[str, Any]) -> RankFile:
    lines = [write_line(event) for event in events]
    return RankFile(rank=rank, path=f"rank-{rank}.jsonl", digest="", size=0, lines=lambda: lines)


def test_a_file_is_read_anew_each_time_and_its_last_head_counts() -> None:
    late = {**HEAD, "devices": [{"name": "x"}]}
    file = rank_file(0, HEAD, {"ev": "time"}, late, {"ev": "model"}, {"ev": "step", "step": 1})
    assert file.head() == late
    assert [event["ev"] for event in file.events()] == ["head", "time", "head", "model", "step"]
    assert len(list(file.events())) == 5


def test_every_rank_is_there_once_and_phases_are_found() -> None:
    phase = PhaseTrace(
        name="full", first_step=0, world_size=2, ranks=(rank_file(0, HEAD), rank_file(1, HEAD))
    )
    trace = Trace(phases=(phase,))
    assert trace.phase("full") is phase
    with pytest.raises(TraceError) as caught:
        trace.phase("resumed")
    assert caught.value.kind == "phase-absent"
    for ranks in ((0,), (1, 0), (0, 0), (0, 1, 2)):
        with pytest.raises(TraceError) as caught:
            PhaseTrace(
                name="full", first_step=0, world_size=2, ranks=tuple(rank_file(rank, HEAD) for rank in ranks)
            )
        assert caught.value.kind == "trace-incomplete"
