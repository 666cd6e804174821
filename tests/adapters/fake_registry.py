"""A registry small enough to read: one repository, told what to hold and how to behave."""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import json
import tarfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

__all__ = ["FakeRegistry", "layer"]


def layer(files: Mapping[str, bytes | str]) -> bytes:
    """Make a layer: contents by path; text stands for the target of a symbolic link."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, content in files.items():
            member = tarfile.TarInfo(path)
            if isinstance(content, str):
                member.type, member.linkname, content = tarfile.SYMTYPE, content, b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


class FakeRegistry:
    """Holds blobs and manifests by path below `/v2/<repository>/`."""

    def __init__(self) -> None:
        self.paths: dict[str, bytes] = {}
        self.token: str | None = None
        self.user: tuple[str, str] | None = None
        self.status: int | None = None
        self.asked: list[tuple[str, str | None]] = []
        self.host = ""

    def hold(self, kind: str, document: Any, *names: str) -> str:
        """Hold JSON as `blobs/…` or `manifests/…`, by its digest and by other names; return the digest."""
        data = json.dumps(document).encode()
        digest = "sha256:" + hashlib.sha256(data).hexdigest()
        for name in (digest, *names):
            self.paths[f"{kind}/{name}"] = data
        return digest

    def image(
        self,
        architecture: str,
        *names: str,
        layers: Sequence[bytes] | None = None,
        environment: Sequence[str] = (),
    ) -> tuple[str, str, list[str]]:
        """Hold an image of plain layers; return the digests of manifest and config, and the diff ids."""
        if layers is None:
            layers = [layer({f"{architecture}-{number}": b""}) for number in range(2)]
        blobs = []
        for data in layers:
            digest = "sha256:" + hashlib.sha256(zipped := gzip.compress(data)).hexdigest()
            self.paths[f"blobs/{digest}"] = zipped
            blobs.append({"digest": digest, "size": len(zipped)})
        diff_ids = [f"sha256:{hashlib.sha256(data).hexdigest()}" for data in layers]
        config = self.hold(
            "blobs",
            {
                "architecture": architecture,
                "os": "linux",
                "config": {"Env": list(environment)},
                "rootfs": {"type": "layers", "diff_ids": diff_ids},
            },
        )
        manifest = self.hold(
            "manifests", {"schemaVersion": 2, "config": {"digest": config}, "layers": blobs}, *names
        )
        return manifest, config, diff_ids

    def answer(self, path: str, authorization: str | None) -> tuple[int, dict[str, str], bytes]:
        """Status, headers and body for a request."""
        self.asked.append((path, authorization))
        if self.status is not None:
            return self.status, {}, b"{}"
        if path.startswith("/token"):
            if self.user is not None:
                expected = "Basic " + base64.b64encode(":".join(self.user).encode()).decode()
                if authorization != expected:
                    return 401, {}, b"{}"
            return 200, {}, json.dumps({"token": self.token}).encode()
        if self.token is not None and authorization != f"Bearer {self.token}":
            realm = f'Bearer realm="http://{self.host}/token",service="s",scope="repository:team/base:pull"'
            return 401, {"WWW-Authenticate": realm}, b"{}"
        body = self.paths.get(path.removeprefix("/v2/team/base/"))
        return (200, {}, body) if body is not None else (404, {}, b'{"errors":[{"code":"MANIFEST_UNKNOWN"}]}')

    @contextmanager
    def serving(self) -> Iterator[str]:
        """Serve on a free port; yield the name of the repository."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                status, headers, body = registry.answer(self.path, self.headers.get("Authorization"))
                self.send_response(status)
                for name, value in {**headers, "Content-Length": str(len(body))}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            self.host = f"127.0.0.1:{server.server_port}"
            try:
                yield f"{self.host}/team/base"
            finally:
                server.shutdown()
                thread.join()
