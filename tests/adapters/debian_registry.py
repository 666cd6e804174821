"""Debian's own `docker-registry`, a real one, on loopback."""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest
import requests

__all__ = ["push", "push_manifest", "serve_registry"]


@contextmanager
def serve_registry(folder: Path, *, htpasswd: str | None = None) -> Iterator[str]:
    """Serve from an empty folder on a free port until the block ends; yield host and port.

    Args:
        htpasswd: `user:bcrypt` of the one who may come in; None lets everybody.
    """
    program = shutil.which("docker-registry")
    if program is None:
        pytest.skip("docker-registry is not installed here")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    folder.mkdir(exist_ok=True)
    storage = {"filesystem": {"rootdirectory": str(folder)}}
    config: dict[str, object] = {
        "version": "0.1",
        "storage": storage,
        "http": {"addr": f"127.0.0.1:{port}"},
    }
    if htpasswd is not None:
        (folder / "htpasswd").write_text(htpasswd + "\n")
        config["auth"] = {"htpasswd": {"realm": "here", "path": str(folder / "htpasswd")}}
    (folder / "config.yml").write_text(json.dumps(config))
    with subprocess.Popen(
        [program, "serve", str(folder / "config.yml")], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as process:
        try:
            host = f"127.0.0.1:{port}"
            for _ in range(200):
                if _answers(host):
                    break
                time.sleep(0.05)
            yield host
        finally:
            process.kill()


def _answers(host: str) -> bool:
    try:
        return requests.get(f"http://{host}/v2/", timeout=5).status_code in (200, 401)
    except requests.exceptions.ConnectionError:
        return False


def push(host: str, repository: str, data: bytes) -> str:
    """Push a blob; return its digest."""
    digest = "sha256:" + hashlib.sha256(data).hexdigest()
    start = requests.post(f"http://{host}/v2/{repository}/blobs/uploads/", timeout=30)
    done = requests.put(start.headers["Location"], params={"digest": digest}, data=data, timeout=30)
    done.raise_for_status()
    return digest


def push_manifest(host: str, repository: str, tag: str, tree: Mapping[str, object]) -> str:
    """Push a manifest under a tag; return its digest."""
    data = json.dumps({"schemaVersion": 2, **tree}).encode()
    kind = {"Content-Type": str(tree["mediaType"])}
    url = f"http://{host}/v2/{repository}/manifests/{tag}"
    requests.put(url, data=data, headers=kind, timeout=30).raise_for_status()
    return "sha256:" + hashlib.sha256(data).hexdigest()
