"""A package index on loopback, made of wheels built here, and what else lock tests share."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import threading
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Literal
from urllib.parse import quote, unquote

from repro.digest import digest_bytes, digest_json
from repro.lock import BaseLock, GitState, Platform

CASES = Path(__file__).parents[3] / "shared" / "cases"
LINUX = Platform(python="3.11", os="linux", architecture="x86_64", libc="glibc 2.36")


def wheel(
    name: str,
    version: str,
    *,
    requires: Sequence[str] = (),
    tag: str = "py3-none-any",
    extras: Sequence[str] = (),
    python: str | None = None,
    text: str = "",
) -> tuple[str, bytes]:
    """Build a wheel in memory: its file name and its bytes."""
    stem = f"{name.replace('-', '_')}-{version}"
    metadata = ["Metadata-Version: 2.1", f"Name: {name}", f"Version: {version}"]
    metadata += [f"Requires-Python: {python}"] if python else []
    metadata += [f"Provides-Extra: {extra}" for extra in extras]
    metadata += [f"Requires-Dist: {requirement}" for requirement in requires]
    files = {
        f"{name.replace('-', '_')}.py": f"VERSION = {version!r}\n{text}",
        f"{stem}.dist-info/METADATA": "\n".join(metadata) + "\n",
        f"{stem}.dist-info/WHEEL": f"Wheel-Version: 1.0\nGenerator: us\nRoot-Is-Purelib: true\nTag: {tag}\n",
    }
    record = ""
    for path, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        record += f"{path},sha256={digest},{len(content.encode())}\n"
    files[f"{stem}.dist-info/RECORD"] = f"{record}{stem}.dist-info/RECORD,,\n"
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    return f"{stem}-{tag}.whl", buffer.getvalue()


@dataclass
class Offered:
    """One file on an index."""

    filename: str
    data: bytes
    hashed: Literal["right", "wrong", "none"] = "right"
    yanked: str | None = None
    metadata: bool = False
    """Whether the wheel's metadata is served beside it (PEP 658)."""

    def read_metadata(self) -> bytes:
        with zipfile.ZipFile(io.BytesIO(self.data)) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("METADATA")]
            return archive.read(name)


@dataclass
class Index:
    """One simple repository: `/<name>/simple/<project>/`."""

    name: str
    base: str
    projects: dict[str, list[Offered]] = field(default_factory=dict)
    password: str | None = None
    json: bool = False

    @property
    def url(self) -> str:
        return f"{self.base}/{self.name}/simple/"

    def add(self, project: str, version: str, **options: object) -> Offered:
        """Build a wheel and offer it."""
        own = {key: options.pop(key) for key in ("hashed", "yanked", "metadata") if key in options}
        filename, data = wheel(project, version, **options)  # type: ignore[arg-type]
        offered = Offered(filename, data, **own)  # type: ignore[arg-type]
        self.projects.setdefault(project, []).append(offered)
        return offered

    def _link(self, file: Offered) -> dict[str, str]:
        digest = hashlib.sha256(file.data).hexdigest()
        shown = {"right": digest, "wrong": "0" * 64, "none": ""}[file.hashed]
        return {"href": f"{self.base}/{self.name}/files/{quote(file.filename)}", "sha256": shown}

    def page(self, project: str) -> tuple[str, bytes]:
        """Render a project's page."""
        files = self.projects[project]
        if self.json:
            tree = {
                "meta": {"api-version": "1.1"},
                "name": project,
                "files": [
                    {
                        "filename": file.filename,
                        "url": self._link(file)["href"],
                        "hashes": {"sha256": shown} if (shown := self._link(file)["sha256"]) else {},
                        "yanked": file.yanked if file.yanked is not None else False,
                    }
                    for file in files
                ],
            }
            return "application/vnd.pypi.simple.v1+json", json.dumps(tree).encode()
        lines = []
        for file in files:
            link = self._link(file)
            fragment = f"#sha256={link['sha256']}" if link["sha256"] else ""
            more = f' data-yanked="{file.yanked}"' if file.yanked is not None else ""
            if file.metadata:
                more += f' data-core-metadata="sha256={hashlib.sha256(file.read_metadata()).hexdigest()}"'
            lines.append(f'<a href="{link["href"]}{fragment}"{more}>{file.filename}</a>')
        return "text/html", "\n".join(["<!DOCTYPE html><html><body>", *lines, "</body></html>"]).encode()


@dataclass
class World:
    """A server with any number of indexes."""

    base: str
    indexes: dict[str, Index] = field(default_factory=dict)
    requests: list[str] = field(default_factory=list)
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes after which the connection breaks, once, by file name."""

    stall: dict[str, tuple[int, threading.Event]] = field(default_factory=dict)
    """Bytes after which the server waits for an event, by file name."""

    def index(self, name: str, **options: object) -> Index:
        return self.indexes.setdefault(name, Index(name, self.base, **options))  # type: ignore[arg-type]


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    disable_nagle_algorithm = True
    world: World

    def log_message(self, *_: object) -> None:
        pass

    def _answer(self, status: int, kind: str, data: bytes, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        self.wfile.write(data)

    def do_HEAD(self) -> None:
        self._answer(404, "text/plain", b"")

    def do_GET(self) -> None:
        path = unquote(self.path)
        self.world.requests.append(path)
        _, name, kind, *rest = path.split("/")
        index = self.world.indexes.get(name)
        if index is None:
            return self._answer(404, "text/plain", b"no such index")
        if index.password is not None:
            expected = "Basic " + base64.b64encode(f"reader:{index.password}".encode()).decode()
            if self.headers.get("Authorization") != expected:
                return self._answer(401, "text/plain", b"", WWW_Authenticate='Basic realm="index"')
        if kind == "simple" and rest[0] in index.projects:
            return self._answer(200, *index.page(rest[0]))
        if kind == "files":
            for file in (file for files in index.projects.values() for file in files):
                if file.filename == rest[0]:
                    return self._file(file)
                if f"{file.filename}.metadata" == rest[0] and file.metadata:
                    return self._answer(200, "text/plain", file.read_metadata())
        return self._answer(404, "text/plain", b"not found")

    def _file(self, file: Offered) -> None:
        start = 0
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        data = file.data[start:]
        self.send_response(206 if wanted else 200)
        self.send_header("Content-Type", "application/zip")
        self.send_header("Content-Length", str(len(data)))
        if wanted:
            self.send_header("Content-Range", f"bytes {start}-{len(file.data) - 1}/{len(file.data)}")
        self.end_headers()
        if file.filename in self.world.stall:
            sent, event = self.world.stall[file.filename]
            self.wfile.write(data[:sent])
            self.wfile.flush()
            event.wait(60)
            data = data[sent:]
        if (limit := self.world.cut.pop(file.filename, None)) is not None:
            self.wfile.write(data[:limit])
            self.close_connection = True
            return
        self.wfile.write(data)


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no fault of the test."""


@contextmanager
def serve() -> Iterator[World]:
    """Serve a world on loopback until the block ends."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    world = World(f"http://127.0.0.1:{server.server_port}")
    handler.world = world  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield world
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class Quiet:
    """Progress that is kept for the test to look at."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.lines: list[str] = []

    def start(self, what: str, total: int | None = None) -> None:
        self.started.append(what)

    def advance(self, amount: int = 1, note: str = "") -> None:
        pass

    def line(self, text: str) -> None:
        self.lines.append(text)


class OneBase:
    """Finds any base, and always the same."""

    def __init__(self, libc: str | None = "glibc 2.36") -> None:
        self.libc = libc
        self.asked: list[str] = []

    def find(self, reference: str, *, architecture: str) -> BaseLock:
        self.asked.append(reference)
        return BaseLock(
            requested=reference,
            source="registry",
            config_digest=digest_json(reference),
            diff_ids=(digest_bytes(b"layer"),),
            os="linux",
            architecture=architecture,
            libc=self.libc,
        )


class NoGit:
    """No working tree anywhere."""

    def state(self, folder: Path) -> GitState | None:
        return None
