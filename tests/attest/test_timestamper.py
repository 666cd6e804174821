"""Asking a time-stamping authority that runs in this process."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import rfc3161_client

from repro.adapters.timestamper import HttpTimestamper
from repro.errors import NetworkError, TrustError
from tests.attest.attest_authority import Authority, TimeAuthority

Answer = Callable[[bytes], tuple[int, bytes]]


class Service:
    def __init__(self) -> None:
        self.answer: Answer = lambda query: (500, b"")
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                query = self.rfile.read(int(self.headers["Content-Length"]))
                status, body = service.answer(query)
                self.send_response(status)
                self.send_header("Content-Type", "application/timestamp-reply")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://name:secret@127.0.0.1:{self.server.server_port}/tsa"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def authority(tmp_path: Path) -> TimeAuthority:
    return TimeAuthority(tmp_path / "tsa", Authority())


def answer_of(authority: TimeAuthority) -> Answer:
    def answer(query: bytes) -> tuple[int, bytes]:
        (authority.folder / "query").write_bytes(query)
        command = ["openssl", "ts", "-reply", "-config", "tsa.cnf", "-queryfile", "query", "-out", "reply"]
        subprocess.run(command, cwd=authority.folder, check=True, capture_output=True)
        return 200, (authority.folder / "reply").read_bytes()

    return answer


def test_a_time_stamp_over_the_message(service: Service, authority: TimeAuthority) -> None:
    service.answer = answer_of(authority)
    token = HttpTimestamper(service.url).stamp(b"signature")
    answer = rfc3161_client.decode_timestamp_response(token)
    assert answer.status == 0


def test_what_is_no_time_stamp_over_the_message(service: Service, authority: TimeAuthority) -> None:
    stamper = HttpTimestamper(service.url)
    other = authority.stamp(b"another message")
    same, answer = authority.stamp(b"message"), answer_of(authority)
    for given, says in (
        ((500, b""), "status 500"),
        ((200, b""), "cannot be read"),
        ((200, b"<html>"), "cannot be read"),
        ((200, other), "over something else"),
        ((200, same), "answers another question"),
        ((200, b"0" * (1 << 20)), "cannot be read"),
        ((200, answer(b"junk")[1]), "did not grant"),
    ):
        service.answer = lambda query, given=given: given  # type: ignore[misc]
        with pytest.raises(NetworkError, match=says) as caught:
            stamper.stamp(b"message")
        assert caught.value.kind == "tsa-refused"
        assert "secret" not in str(caught.value)


def test_nobody_answers() -> None:
    with pytest.raises(NetworkError) as caught:
        HttpTimestamper("http://name:secret@127.0.0.1:9/tsa").stamp(b"message")
    assert caught.value.kind == "tsa-unreachable"
    assert "secret" not in str(caught.value)


def test_the_package_is_named_where_it_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rfc3161_client", None)
    with pytest.raises(TrustError) as caught:
        HttpTimestamper("http://127.0.0.1:9/tsa").stamp(b"message")
    assert caught.value.kind == "tsa-package-missing"
