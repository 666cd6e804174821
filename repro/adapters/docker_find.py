"""Find the container engine a person means: what they named first, then the usual places."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import requests
from docker.auth import AuthConfig
from docker.context import ContextAPI
from docker.errors import DockerException

from repro.errors import EngineError

__all__ = ["Place", "connect", "places"]

PRIVATE_SOCKET = "/run/repro-engine/docker.sock"
"""Where `scripts/engine` puts the engine it starts."""

_PROBE_SECONDS = 10
_ANSWER_SECONDS = 600
_REMEDY = "start Docker or Podman, name one in DOCKER_HOST, or go without an image: `--runtime host`"


@dataclass(frozen=True, slots=True)
class Place:
    """An address where an engine may be. A person named it themselves, or it is a usual place."""

    host: str
    named_by: str | None = None
    tls: Any = None


def _context(environment: Mapping[str, str]) -> Place | None:
    """The docker command's current context, if it is not the default one."""
    folder = Path(environment.get("DOCKER_CONFIG") or Path(environment.get("HOME", "/")) / ".docker")
    name = environment.get("DOCKER_CONTEXT")
    if name is None and not (folder / "config.json").is_file():
        return None
    try:
        context = ContextAPI.get_context(name)
    except Exception as error:  # noqa: BLE001 - the library raises bare Exception for a damaged file
        raise EngineError(
            "context-broken",
            f"the docker context cannot be read: {error}",
            where=str(folder),
            remedy="choose another with `docker context use`, or set DOCKER_HOST",
        ) from None
    if context is None:
        raise EngineError(
            "context-broken",
            f"there is no docker context {name or 'of the name in config.json'}",
            where=str(folder),
            remedy="choose another with `docker context use`, or set DOCKER_HOST",
        )
    if context.Name == "default":
        return None
    return Place(str(context.Host), f"docker context {context.Name}", context.TLSConfig)


def _usual(environment: Mapping[str, str]) -> Iterator[str]:
    home = environment.get("HOME", "/")
    runtime = environment.get("XDG_RUNTIME_DIR") or f"/run/user/{os.getuid()}"
    yield "/var/run/docker.sock"
    yield f"{runtime}/docker.sock"
    yield f"{home}/.docker/run/docker.sock"
    yield f"{home}/.docker/desktop/docker.sock"
    yield PRIVATE_SOCKET
    yield "/run/podman/podman.sock"
    yield f"{runtime}/podman/podman.sock"


def places(environment: Mapping[str, str]) -> list[Place]:
    """List where to look, in order. What a person named leaves no second choice."""
    if host := environment.get("DOCKER_HOST"):
        return [Place(host, "DOCKER_HOST")]
    if (context := _context(environment)) is not None:
        return [context]
    return [Place(f"unix://{path}") for path in _usual(environment) if Path(path).exists()]


def _knock(host: str) -> None:
    """Connect to a socket once ourselves: the library leaves a socket open that refuses."""
    if host.startswith("unix://"):
        with socket.socket(socket.AF_UNIX) as link:
            link.settimeout(_PROBE_SECONDS)
            link.connect(host.removeprefix("unix://"))


def _open(place: Place, environment: Mapping[str, str]) -> docker.DockerClient:
    """Connect and ask for the version, first with little patience."""
    _knock(place.host)
    for seconds in (_PROBE_SECONDS, _ANSWER_SECONDS):
        options: dict[str, Any] = {"version": "auto", "timeout": seconds, "use_ssh_client": True}
        if place.named_by == "DOCKER_HOST":
            client = docker.from_env(environment=dict(environment), **options)
        else:
            client = docker.DockerClient(base_url=place.host, tls=place.tls or False, **options)
        if seconds == _PROBE_SECONDS:
            client.close()
    # A build is not given registry credentials, and a broken helper must not stop it: the library asks
    # every helper before each build. What needs credentials passes them itself.
    client.api._auth_configs = AuthConfig({})  # type: ignore[attr-defined]
    return client


def _is_refusal(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, PermissionError) or "Permission denied" in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


def connect(environment: Mapping[str, str] | None = None) -> tuple[docker.DockerClient, str]:
    """Connect to the first engine that answers; return the client and the address.

    Raises:
        EngineError: `engine-absent`, `engine-refused` or `context-broken`.
    """
    environment = os.environ if environment is None else environment
    refused: list[str] = []
    candidates = places(environment)
    for place in candidates:
        try:
            return _open(place, environment), place.host
        except (DockerException, requests.exceptions.RequestException, OSError, ValueError) as error:
            if _is_refusal(error):
                refused.append(place.host)
    if refused:
        raise EngineError(
            "engine-refused",
            "the container engine is there, but you may not use it",
            where=refused[0],
            remedy="join the group that owns its socket (often `docker`), or use a rootless engine",
        )
    named = candidates[0].named_by if candidates else None
    raise EngineError(
        "engine-absent",
        f"no container engine answers at {candidates[0].host}" if named else "no container engine answers",
        where=named,
        remedy=_REMEDY,
    )
