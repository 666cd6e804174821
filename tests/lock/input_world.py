"""Servers on loopback for models and data sets: git with LFS, plain files, and a Hub."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

POINTER = "version https://git-lfs.github.com/spec/v1\noid sha256:{oid}\nsize {size}\n"


@dataclass
class Sites:
    """What the server knows."""

    base: str
    folder: Path
    files: dict[str, bytes] = field(default_factory=dict)
    """Plain files by path."""
    cut: dict[str, int] = field(default_factory=dict)
    """Bytes after which a connection breaks, once, by path."""
    lfs: dict[str, bytes] = field(default_factory=dict)
    """Git LFS objects by hex SHA-256."""
    repos: dict[str, Repo] = field(default_factory=dict)
    """Hub repositories by `models/owner/name` or `datasets/owner/name`."""
    answers: dict[str, tuple[int, dict[str, str]]] = field(default_factory=dict)
    """Hub answers by repository: status and headers."""
    asked: list[str] = field(default_factory=list)

    def pointer(self, data: bytes) -> str:
        """Hold an LFS object and return the pointer that stands for it."""
        oid = hashlib.sha256(data).hexdigest()
        self.lfs[oid] = data
        return POINTER.format(oid=oid, size=len(data))


@dataclass
class Repo:
    """A Hub repository: files by commit, and what branches and tags mean."""

    commits: dict[str, dict[str, bytes]]
    refs: dict[str, str]
    licence: str | None = None

    def find(self, revision: str) -> str | None:
        commit = self.refs.get(revision, revision)
        return commit if commit in self.commits else None


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1
    sites: Sites

    def log_message(self, *_: object) -> None:
        pass

    def answer(self, status: int, data: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        for key, value in headers.items():
            self.send_header(key.replace("_", "-"), value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def say(self, tree: Any) -> None:
        self.answer(200, json.dumps(tree).encode(), Content_Type="application/json")

    def do_HEAD(self) -> None:
        self.route()

    def do_GET(self) -> None:
        self.route()

    def do_POST(self) -> None:
        self.route()

    def route(self) -> None:
        path = unquote(urlsplit(self.path).path)
        self.sites.asked.append(f"{self.command} {path}")
        if path.endswith("/info/lfs/objects/batch"):
            return self.batch()
        if path.startswith("/lfs/"):
            return self.answer(200, self.sites.lfs[path.removeprefix("/lfs/")])
        if path.startswith("/v2/"):
            return self.registry(path)
        if path.startswith("/git/"):
            return self.git(path)
        if path.startswith("/files/"):
            return self.file(path)
        return self.hub(path)

    def registry(self, path: str) -> None:
        if path in self.sites.files:
            return self.answer(
                200, self.sites.files[path], Content_Type="application/vnd.oci.image.manifest.v1+json"
            )
        return self.answer(404, b"{}")

    def body(self) -> bytes:
        return self.rfile.read(int(self.headers.get("Content-Length", "0")))

    def batch(self) -> None:
        objects = []
        for item in json.loads(self.body())["objects"]:
            if item["oid"] in self.sites.lfs:
                href = {"href": f"{self.sites.base}/lfs/{item['oid']}"}
                objects.append({**item, "actions": {"download": href}})
            else:
                objects.append({**item, "error": {"code": 404, "message": "no such object"}})
        self.say({"objects": objects})

    def file(self, path: str) -> None:
        if path not in self.sites.files:
            return self.answer(404)
        data, start = self.sites.files[path], 0
        if wanted := self.headers.get("Range"):
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
        if (limit := self.sites.cut.pop(path, None)) is not None:
            self.send_response(200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data[:limit])
            self.close_connection = True
            return None
        return self.answer(206 if start else 200, data[start:], ETag='"v1"')

    def git(self, path: str) -> None:
        parts = urlsplit(self.path)
        environment = {
            "PATH": os.environ["PATH"],
            "GIT_PROJECT_ROOT": str(self.sites.folder),
            "GIT_HTTP_EXPORT_ALL": "1",
            "PATH_INFO": path.removeprefix("/git"),
            "QUERY_STRING": parts.query,
            "REQUEST_METHOD": self.command,
            "CONTENT_TYPE": self.headers.get("Content-Type", ""),
            "HTTP_CONTENT_ENCODING": self.headers.get("Content-Encoding", ""),
            "GIT_PROTOCOL": self.headers.get("Git-Protocol", ""),
        }
        body = self.body()
        environment["CONTENT_LENGTH"] = str(len(body))
        done = subprocess.run(
            ["git", "http-backend"], env=environment, input=body, capture_output=True, check=True
        )
        head, _, data = done.stdout.partition(b"\r\n\r\n")
        fields = dict(line.split(": ", 1) for line in head.decode().split("\r\n"))
        status = int(fields.pop("Status", "200").split()[0])
        self.answer(status, data, **{key.replace("-", "_"): value for key, value in fields.items()})

    def hub(self, path: str) -> None:
        words = path.strip("/").split("/")
        if words[0] == "api":
            kind, name, rest = words[1], "/".join(words[2:4]), words[4:]
        else:
            kind = words.pop(0) if words[0] == "datasets" else "models"
            name, rest = "/".join(words[:2]), words[2:]
        status, headers = self.sites.answers.get(name, (200, {}))
        if status != 200:
            if "Location" in headers:
                headers = {**headers, "Location": self.path.replace(name, headers["Location"].strip("/"))}
            return self.answer(
                status, b"{}", **{key.replace("-", "_"): text for key, text in headers.items()}
            )
        repo = self.sites.repos.get(f"{kind}/{name}")
        if repo is None:
            return self.answer(401, b"{}", X_Error_Code="RepoNotFound")
        if words[0] == "api" and rest[:1] == ["commits"]:
            return self.say([_commit(commit) for commit in repo.commits])
        revision = "/".join(rest[1:]) if words[0] == "api" else rest[1]
        commit = repo.find(revision or "main")
        if commit is None:
            return self.answer(404, b"{}", X_Error_Code="RevisionNotFound")
        if words[0] == "api":
            return self.say(
                {
                    "id": name,
                    "sha": commit,
                    "siblings": [
                        {"rfilename": path, "blobId": _git_blob(data), "size": len(data)}
                        for path, data in repo.commits[commit].items()
                    ],
                    "cardData": {"license": repo.licence} if repo.licence else None,
                }
            )
        return self.resolve(repo.commits[commit], commit, "/".join(rest[2:]))

    def resolve(self, files: dict[str, bytes], commit: str, name: str) -> None:
        if name not in files:
            return self.answer(404, X_Error_Code="EntryNotFound")
        return self.answer(200, files[name], X_Repo_Commit=commit, ETag=f'"{_git_blob(files[name])}"')


def _git_blob(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()


def _commit(commit: str) -> dict[str, object]:
    return {"id": commit, "title": "", "message": "", "authors": [], "date": "2026-01-01T00:00:00.000Z"}


class _Server(ThreadingHTTPServer):
    def handle_error(self, *_: object) -> None:
        """A client that hangs up is no fault of the test."""


@contextmanager
def serve_sites(folder: Path) -> Iterator[Sites]:
    """Serve git repositories below `folder`, and whatever the test puts into the sites."""
    handler = type("Handler", (_Handler,), {})
    server = _Server(("127.0.0.1", 0), handler)
    sites = Sites(f"http://127.0.0.1:{server.server_port}", folder)
    handler.sites = sites  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    try:
        yield sites
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
