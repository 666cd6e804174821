"""What an engine says, in our words: a named error with a remedy for every refusal we know."""

from __future__ import annotations

import http.client
import json
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import docker
import requests
import urllib3
from docker.errors import APIError, DockerException, StreamParseError

from repro.errors import BuildError, EngineError, HostError, NetworkError, ReproError, RunError

__all__ = ["known", "speaking_to"]

Make = Callable[[str, str], ReproError]
"""(what was being done, what the engine said) → the error to raise."""

_BROKEN = (
    requests.exceptions.RequestException,
    urllib3.exceptions.HTTPError,
    http.client.HTTPException,
    StreamParseError,
    json.JSONDecodeError,
    ConnectionError,
    TimeoutError,
)
"""How a connection to an engine can end too soon."""

_TABLE: tuple[tuple[str, Make], ...] = (
    (
        r"no space left on device",
        lambda doing, _: EngineError(
            "disk-full",
            "the engine's disk is full",
            where=doing,
            remedy="free space in the engine's data folder: `docker system df` shows what takes it",
        ),
    ),
    (
        r"could not select device driver",
        lambda doing, _: EngineError(
            "gpu-toolkit-absent",
            "the engine cannot give containers an NVIDIA GPU",
            where=doing,
            remedy="install the NVIDIA Container Toolkit and restart the engine; `repro doctor` checks it",
        ),
    ),
    (
        r"unresolvable CDI devices|CDI device injection failed",
        lambda doing, _: EngineError(
            "gpu-toolkit-absent",
            "the engine knows no NVIDIA GPU by its CDI name",
            where=doing,
            remedy="describe the GPUs with `nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml`",
        ),
    ),
    (
        r"nvidia-container-cli|libnvidia-ml\.so|driver not loaded|no adapters found",
        lambda doing, _: HostError(
            "gpu-driver-absent",
            "the NVIDIA Container Toolkit found no working driver or GPU on the engine's machine",
            where=doing,
            remedy="check `nvidia-smi` on that machine; install or load the driver",
        ),
    ),
    (
        r"unknown runtime specified|unknown or invalid runtime name",
        lambda doing, _: EngineError(
            "gpu-toolkit-absent",
            "the engine has no runtime for NVIDIA GPUs",
            where=doing,
            remedy="install the NVIDIA Container Toolkit and restart the engine; `repro doctor` checks it",
        ),
    ),
    (
        r"error gathering device information|container create: stat /dev/|no such device",
        lambda doing, said: HostError(
            "device-absent",
            f"the engine's machine lacks a device: {_device(said)}",
            where=doing,
            remedy="load the accelerator's kernel driver, or run where the device is",
        ),
    ),
    (
        r"unable to find group",
        lambda doing, _: EngineError(
            "group-absent",
            "the image does not know a group by its name",
            where=doing,
            remedy="give groups by number",
        ),
    ),
    (
        r"error setting rlimit|minimum memory limit|range of cpus|unable to set memory limit",
        lambda doing, said: EngineError(
            "limit-refused",
            f"the engine's machine does not allow a limit that repro.yaml asks for: {_limit(said)}",
            where=doing,
            remedy="change it under limits in repro.yaml, or raise what that machine allows",
        ),
    ),
    (
        r"container-init binary not found",
        lambda doing, _: EngineError(
            "init-absent",
            "the engine has no init to start a container's command under",
            where=doing,
            remedy="install the package catatonit, or name another init as init_path in containers.conf",
        ),
    ),
    (
        r"bind source path does not exist|mounts denied",
        lambda doing, said: RunError(
            "mount-absent",
            f"the engine's machine does not have the folder {_mount(said)}",
            where=doing,
            remedy="use an engine on this machine, or put the project where the engine can see it",
        ),
    ),
    (
        r"manifest unknown|manifest for .* not found|name unknown|repository .* not found"
        r"|failed to resolve source metadata.*: not found",
        lambda doing, _: BuildError(
            "base-gone",
            "the registry no longer has this image",
            where=doing,
            remedy="name a base that exists in repro.yaml and lock again, or load a copy kept elsewhere",
        ),
    ),
    (
        r"pull access denied|unauthorized|authentication required|denied: requested access",
        lambda doing, _: NetworkError(
            "registry-refused",
            "the registry wants credentials for this image, or has no such image",
            where=doing,
            remedy="log in to the registry with `docker login`, or correct the name",
        ),
    ),
    (
        r"no such host|dial tcp|i/o timeout|connection refused|network is unreachable|tls handshake"
        r"|server misbehaving|certificate",
        lambda doing, _: NetworkError(
            "registry-unreachable",
            "the engine cannot reach the registry",
            where=doing,
            remedy="check the network, the proxy and the certificates of the engine's machine",
        ),
    ),
    (
        r"no such image",
        lambda doing, _: EngineError(
            "image-absent",
            "the engine does not hold the image",
            where=doing,
            remedy="build it with `repro build`",
        ),
    ),
)


def _device(said: str) -> str:
    found = re.search(r'custom device "([^"]+)"|stat (/dev/[^:\s]+)', said)
    return found[1] or found[2] if found else "the accelerator's"


_RLIMITS = {"3": "stack", "6": "processes", "7": "open_files", "8": "locked_memory"}
"""Numbers of the limits of a process in Linux, as engines say them: our names."""


def _limit(said: str) -> str:
    if found := re.search(r"rlimit type (\d+)", said):
        return _RLIMITS.get(found[1], f"number {found[1]}")
    return "cpus" if "cpus" in said.lower() else "memory"


def _mount(said: str) -> str:
    found = re.search(r"does not exist: (\S+)", said)
    return found[1] if found else "that is to be mounted"


def known(said: str, doing: str) -> ReproError | None:
    """Return the error for something an engine said, or None where we do not know it."""
    for pattern, make in _TABLE:
        if re.search(pattern, said, re.IGNORECASE):
            return make(doing, said)
    return None


def _first_line(text: str) -> str:
    return text.strip().partition("\n")[0][:300]


@contextmanager
def speaking_to(client: docker.DockerClient, doing: str) -> Iterator[None]:
    """Turn what goes wrong between us and an engine into a named error.

    Raises:
        ReproError: see `known`; else EngineError, kind `engine-gone` where the engine no longer answers,
            `engine-broke-off` where it does, `engine-failed` where it said something we do not know.
    """
    try:
        yield
    except APIError as error:
        said = str(error.explanation or error)
        raise known(said, doing) or EngineError(
            "engine-failed",
            f"the engine refused: {_first_line(said)}",
            where=doing,
            remedy="look at the engine's log; `repro doctor` says what it can do",
        ) from None
    except (*_BROKEN, DockerException):
        raise _broken(client, doing) from None


def _broken(client: docker.DockerClient, doing: str) -> EngineError:
    try:
        client.ping()
    except (*_BROKEN, DockerException):
        return EngineError(
            "engine-gone",
            "the container engine stopped answering",
            where=doing,
            remedy="start it again and repeat the command; nothing half-made was kept",
        )
    return EngineError(
        "engine-broke-off",
        "the container engine broke off, but still answers",
        where=doing,
        remedy="look at its log and at its free disk space, then repeat the command",
    )
