from __future__ import annotations

import hashlib
import json
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repro.adapters import docker_find
from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_find import Place, connect, places
from repro.errors import EngineError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's home, where the docker library looks too; and no usual socket of this machine."""
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_CONFIG", "XDG_RUNTIME_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.fixture
def alone(home: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """No engine at any usual place but below the person's home."""
    usual = docker_find._usual
    monkeypatch.setattr(
        docker_find, "_usual", lambda env: (path for path in usual(env) if path.startswith(str(home)))
    )
    return home


def _context(home: Path, name: str, host: str) -> None:
    place = home / ".docker" / "contexts" / "meta" / hashlib.sha256(name.encode()).hexdigest()
    place.mkdir(parents=True)
    meta = {"Name": name, "Metadata": {}, "Endpoints": {"docker": {"Host": host, "SkipTLSVerify": False}}}
    (place / "meta.json").write_text(json.dumps(meta))


def _configure(home: Path, **config: object) -> None:
    (home / ".docker").mkdir(exist_ok=True)
    (home / ".docker" / "config.json").write_text(json.dumps(config))


@contextmanager
def _listening(path: Path, answer: bytes) -> Iterator[None]:
    """A socket whose server says one thing to everybody."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        server.settimeout(0.1)
        stop = threading.Event()

        def serve() -> None:
            while not stop.is_set():
                try:
                    link, _ = server.accept()
                except TimeoutError:
                    continue
                with link:
                    link.settimeout(1)
                    if link.recv(4096):
                        link.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def test_what_a_person_names_comes_first_and_alone(home: Path) -> None:
    _context(home, "remote", "tcp://192.0.2.7:2376")
    _configure(home, currentContext="remote")
    assert places({**os.environ, "DOCKER_HOST": "unix:///x.sock"}) == [Place("unix:///x.sock", "DOCKER_HOST")]
    assert places(dict(os.environ)) == [Place("tcp://192.0.2.7:2376", "docker context remote")]
    _context(home, "other", "unix:///other.sock")
    named = places({**os.environ, "DOCKER_CONTEXT": "other"})
    assert named == [Place("unix:///other.sock", "docker context other")]


def test_the_default_context_means_the_usual_sockets(alone: Path) -> None:
    _configure(alone, currentContext="default", auths={})
    assert places(dict(os.environ)) == []
    (alone / ".docker" / "run").mkdir()
    (alone / ".docker" / "run" / "docker.sock").touch()
    assert places(dict(os.environ)) == [Place(f"unix://{alone}/.docker/run/docker.sock")]


@pytest.mark.parametrize("damage", ["missing", "broken"])
def test_a_context_that_cannot_be_read_is_named(home: Path, damage: str) -> None:
    _configure(home, currentContext="lost")
    if damage == "broken":
        _context(home, "lost", "unix:///x.sock")
        next((home / ".docker" / "contexts" / "meta").glob("*/meta.json")).write_text("{")
    with pytest.raises(EngineError) as broken:
        places(dict(os.environ))
    assert broken.value.kind == "context-broken"


def test_no_engine_has_a_name_and_a_remedy(alone: Path) -> None:
    with pytest.raises(EngineError) as absent:
        connect(dict(os.environ))
    assert absent.value.kind == "engine-absent"
    assert absent.value.remedy is not None
    assert "--runtime host" in absent.value.remedy
    with pytest.raises(EngineError) as named:
        connect({**os.environ, "DOCKER_HOST": f"unix://{alone}/none.sock"})
    assert (named.value.kind, named.value.where) == ("engine-absent", "DOCKER_HOST")
    for odd in ("nonsense://x", "tcp://127.0.0.1:9", "unix://"):
        with pytest.raises(EngineError) as refused:
            connect({**os.environ, "DOCKER_HOST": odd})
        assert refused.value.kind == "engine-absent"


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 500 no\r\nContent-Length: 0\r\n\r\n", b"SSH-2.0\r\n"])
def test_what_is_no_engine_is_not_taken_for_one(alone: Path, answer: bytes) -> None:
    with _listening(alone / "odd.sock", answer), pytest.raises(EngineError) as absent:
        connect({**os.environ, "DOCKER_HOST": f"unix://{alone}/odd.sock"})
    assert absent.value.kind == "engine-absent"


def test_a_socket_that_may_not_be_used_is_not_an_absent_engine(
    alone: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(host: str) -> None:
        raise PermissionError(13, "Permission denied", host)

    monkeypatch.setattr(docker_find, "_knock", refuse)
    with pytest.raises(EngineError) as refused:
        connect({**os.environ, "DOCKER_HOST": "unix:///run/x.sock"})
    assert (refused.value.kind, refused.value.where) == ("engine-refused", "unix:///run/x.sock")
    assert refused.value.remedy


@pytest.mark.engine
def test_a_broken_credential_helper_does_not_stop_an_engine(
    engine: DockerEngine, home: Path, tmp_path: Path
) -> None:
    _configure(home, credsStore="no-such-helper", auths={"registry.example.org": {}})
    host = engine.info().host
    with DockerEngine.connect({**os.environ, "DOCKER_HOST": host}) as found:
        assert found.info().name == engine.info().name
        assert found.client.api._auth_configs.is_empty


@pytest.mark.engine
def test_the_engine_says_who_it_is(engine: DockerEngine) -> None:
    info = engine.info()
    assert info.name in ("docker", "podman")
    assert info.version[0].isdigit()
    assert engine.inspect("no-such-image:at-all") is None
    assert engine.find("sha256:" + "0" * 64) is None
