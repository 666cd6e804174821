"""`Engine` by the docker SDK: the classic builder, no network, nothing left behind."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Literal, Self

import docker
from docker.errors import ImageNotFound

from repro.adapters.docker_build import Following, Leftovers, with_prefix
from repro.adapters.docker_errors import known, speaking_to
from repro.adapters.docker_find import connect
from repro.adapters.reference import parse_reference
from repro.adapters.registry_login import login
from repro.digest import CHUNK_BYTES, is_digest
from repro.errors import BuildError
from repro.image import EngineInfo, HeldImage
from repro.ports import OnLine

__all__ = ["DockerEngine"]

_LOADED = re.compile(r"^Loaded image(?: ID)?: (\S+)$")


class DockerEngine:
    """A reachable engine. Close it, or use it as a context manager."""

    def __init__(self, client: docker.DockerClient, host: str) -> None:
        self.client: Any = client  # the stubs know neither streams as build contexts nor every call's types
        self._host = re.sub(r"//[^/@]*@", "//", host)
        self._info: EngineInfo | None = None

    @classmethod
    def connect(cls, environment: Mapping[str, str] | None = None) -> Self:
        """Find the engine a person means: DOCKER_HOST, the docker context, then the usual sockets.

        Raises:
            EngineError: `engine-absent`, `engine-refused` or `context-broken`.
        """
        return cls(*connect(environment))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Let go of the connection."""
        self.client.close()

    def info(self) -> EngineInfo:
        """Say which engine this is."""
        if self._info is None:
            with speaking_to(self.client, "asking the engine who it is"):
                self._info = _describe(self.client.version(), self.client.info(), self._host)
        return self._info

    def inspect(self, reference: str) -> HeldImage | None:
        """Return what the engine knows of an image, or None where it has none by that name or id."""
        with speaking_to(self.client, f"looking at image {reference}"):
            try:
                return _held(self.client.api.inspect_image(reference), self.info().store)
            except ImageNotFound:
                return None

    def find(self, config_digest: str) -> HeldImage | None:
        """Return the image with this config digest, or None where it is not held."""
        if self.info().store != "containerd":
            held = self.inspect(config_digest)
            return held if held is not None and held.config_digest == config_digest else None
        with speaking_to(self.client, "listing images"):
            ids = {summary["Id"] for summary in self.client.api.images()}
        for image in sorted(ids):
            held = self.inspect(image)
            if held is not None and held.config_digest == config_digest:
                return held
        return None

    def pull(self, reference: str, *, on_line: OnLine) -> None:
        """Fetch an image, named by digest, from its registry."""
        name, _, digest = reference.partition("@")
        access = login(parse_reference(reference).registry, os.environ)
        auth = {"username": access.user, "password": access.secret} if access.user else None
        with speaking_to(self.client, f"fetching {reference}"):
            stream = self.client.api.pull(name, tag=digest, stream=True, decode=True, auth_config=auth)
            for item in stream:
                if said := item.get("error"):
                    raise known(said, reference) or BuildError(
                        "base-unfetched", f"the engine could not fetch it: {said}", where=reference
                    )
                on_line(f"{item.get('id', '')} {item.get('status', '')}".strip())

    def build(self, context: Iterator[bytes], *, arguments: Mapping[str, str], on_line: OnLine) -> str:
        """Build from a tar that holds `Dockerfile`, with no network and no cache; return the engine's id."""
        following = Following(on_line)
        bases = [value for value in arguments.values() if is_digest(value)]
        with speaking_to(self.client, "building"), Leftovers(self.client, following, bases) as leftovers:
            stream = self.client.api.build(
                fileobj=context,
                custom_context=True,
                buildargs=dict(arguments),
                network_mode="none",
                nocache=True,
                pull=False,
                rm=True,
                forcerm=True,
                decode=True,
            )
            with closing(stream):
                for item in stream:
                    following.take(item)
            leftovers.wanted = following.image()
        return leftovers.wanted

    def save(self, image: str) -> Iterator[bytes]:
        """Stream a docker-archive of an image."""
        with speaking_to(self.client, "saving the image"):
            yield from self.client.api.get_image(image, chunk_size=CHUNK_BYTES)

    def load(self, archive: Iterator[bytes]) -> str:
        """Load a docker-archive of one image; return the engine's own id."""
        loaded = ""
        with speaking_to(self.client, "loading the image"):
            for item in self.client.api.load_image(archive):
                if said := item.get("error"):
                    raise known(said, "loading the image") or BuildError(
                        "load-failed",
                        f"the engine could not load the image: {said}",
                        where="loading the image",
                    )
                if found := _LOADED.match(item.get("stream", "").strip()):
                    loaded = found[1]
            image = self.client.api.inspect_image(loaded)["Id"] if loaded else ""
        if not image:
            raise BuildError(
                "load-failed",
                "the engine took the image and named none",
                where="loading the image",
                remedy="look at the engine's log and at its free disk space",
            )
        return with_prefix(image)

    def remove(self, image: str) -> None:
        """Remove an image and what only it needs."""
        with speaking_to(self.client, "removing an image"):
            try:
                self.client.api.remove_image(image)
            except ImageNotFound:
                return


def _store(
    version: Mapping[str, Any], info: Mapping[str, Any]
) -> Literal["graphdriver", "containerd", "podman"]:
    components = {component.get("Name", "") for component in version.get("Components") or ()}
    if any("podman" in component.lower() for component in components):
        return "podman"
    status = {tuple(pair)[:2] for pair in info.get("DriverStatus") or ()}
    if ("driver-type", "io.containerd.snapshotter.v1") in status:
        return "containerd"
    return "graphdriver"


def _describe(version: Mapping[str, Any], info: Mapping[str, Any], host: str) -> EngineInfo:
    store = _store(version, info)
    return EngineInfo(
        name="podman" if store == "podman" else "docker",
        version=str(version["Version"]),
        store=store,
        host=host,
        rootless=any("rootless" in option for option in info.get("SecurityOptions") or ()),
        data_root=info.get("DockerRootDir") if host.startswith("unix://") else None,
        driver=info.get("Driver"),
        runtime=info.get("DefaultRuntime"),
        runtimes=tuple(sorted(info.get("Runtimes") or ())),
    )


def _held(image: Mapping[str, Any], store: str) -> HeldImage:
    identifier = with_prefix(image["Id"])
    config_digest: str | None = identifier
    if store == "containerd":
        annotations = (image.get("Descriptor") or {}).get("annotations") or {}
        stated = annotations.get("config.digest", "")
        config_digest = stated if is_digest(stated) else None
    layers = (image.get("RootFS") or {}).get("Layers")
    return HeldImage(
        id=identifier,
        config_digest=config_digest,
        diff_ids=tuple(layers) if layers else None,
        os=image.get("Os") or "",
        architecture=image.get("Architecture") or "",
        size=image.get("Size") or 0,
        tags=tuple(image.get("RepoTags") or ()),
        repo_digests=tuple(image.get("RepoDigests") or ()),
    )
