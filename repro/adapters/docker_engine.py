"""`Engine` by the docker SDK: builds with no network, and nothing left behind."""

from __future__ import annotations

import os
import re
import uuid
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from typing import Any, Literal, Self

import docker
from docker.errors import DockerException, ImageNotFound

from repro.adapters.buildkit import build_by_buildkit, cache_removed
from repro.adapters.docker_build import Following, Leftovers, with_prefix
from repro.adapters.docker_contents import saved_config_digest
from repro.adapters.docker_errors import known, speaking_to
from repro.adapters.docker_find import connect
from repro.adapters.reference import parse_reference
from repro.adapters.registry_login import login
from repro.digest import CHUNK_BYTES, hex_of, is_digest
from repro.errors import BuildError, EngineError
from repro.image import Builder, EngineInfo, HeldImage
from repro.ports import OnLine

__all__ = ["DockerEngine"]


_LOADED = re.compile(r"^Loaded image(?: ID)?: (\S+)$")


class DockerEngine:
    """A reachable engine. Close it, or use it as a context manager."""

    def __init__(self, client: docker.DockerClient, host: str, *, buildkit: bool = False) -> None:
        self.client: Any = client  # the stubs know neither streams as build contexts nor every call's types
        self._buildkit = buildkit
        self._address = host
        self._host = re.sub(r"//[^/@]*@", "//", host)
        self._info: EngineInfo | None = None
        self._configs: dict[str, str | None] = {}

    @classmethod
    def connect(cls, environment: Mapping[str, str] | None = None, *, buildkit: bool = False) -> Self:
        """Find the engine a person means: DOCKER_HOST, the docker context, then the usual sockets.

        Args:
            environment: where to look; None means this process's own.
            buildkit: build by BuildKit, through the docker command.

        Raises:
            EngineError: `engine-absent`, `engine-refused` or `context-broken`.
        """
        return cls(*connect(environment), buildkit=buildkit)

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

    @property
    def builder(self) -> Builder:
        """What builds here."""
        if self.info().store == "podman":
            return "buildah"
        return "buildkit" if self._buildkit else "classic"

    def inspect(self, reference: str) -> HeldImage | None:
        """Return what the engine knows of an image, or None where it has none by that name or id."""
        held = self._look(reference)
        return self._told(held) if held is not None else None

    def find(self, config_digest: str, *, diff_ids: Sequence[str] | None = None) -> HeldImage | None:
        """Return the image with this config digest, or None where it is not held."""
        if self.info().store != "containerd":
            held = self.inspect(config_digest)
            return held if held is not None and held.config_digest == config_digest else None
        for image in self._candidates(config_digest):
            held = self._look(image)
            if held is None or (diff_ids and held.diff_ids and held.diff_ids != tuple(diff_ids)):
                continue
            if (told := self._told(held)).config_digest == config_digest:
                return told
        return None

    def _look(self, reference: str) -> HeldImage | None:
        with speaking_to(self.client, f"looking at image {reference}"):
            try:
                said = self.client.api.inspect_image(reference)
            except ImageNotFound:
                return None
        return _held(said, self.info().store)

    def _candidates(self, config_digest: str) -> list[str]:
        """Every image: first those tagged as we tag ours, then the smallest."""
        with speaking_to(self.client, "listing images"):
            images = self.client.api.images()
        likely = f":{hex_of(config_digest)[:12]}"
        unlikely = {
            image["Id"]: not any(tag.endswith(likely) for tag in image["RepoTags"] or ()) for image in images
        }
        images.sort(key=lambda image: (unlikely[image["Id"]], image["Size"]))
        return [image["Id"] for image in images]

    def _told(self, held: HeldImage) -> HeldImage:
        """Complete what a containerd store says of an image by what it saves, once for each image."""
        if held.config_digest is not None:
            return held
        if held.id not in self._configs:
            with closing(self.save(held.id)) as archive:
                self._configs[held.id] = saved_config_digest(archive, held.id)
        return held.model_copy(update={"config_digest": self._configs[held.id]})

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
        if self._buildkit:
            return self._build_by_buildkit(context, arguments, on_line)
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
                use_config_proxy=False,
            )
            with closing(stream):
                for item in stream:
                    following.take(item)
            leftovers.wanted = following.image()
        return leftovers.wanted

    def _build_by_buildkit(
        self, context: Iterator[bytes], arguments: Mapping[str, str], on_line: OnLine
    ) -> str:
        if self.info().store == "podman":
            raise EngineError(
                "buildkit-absent", "Podman has no BuildKit", remedy="build without `--builder buildkit`"
            )
        held = self._look(arguments["BASE"])
        named = held is not None and bool(held.tags or held.repo_digests)
        base, tag = (f"repro/{what}:{uuid.uuid4().hex[:12]}" for what in ("base", "build"))
        with speaking_to(self.client, "building"), cache_removed(self.client):
            try:
                self.client.api.tag(arguments["BASE"], *base.split(":"))
                build_by_buildkit(
                    self._address, context, arguments={**arguments, "BASE": base}, on_line=on_line, tag=tag
                )
                return with_prefix(self.client.api.inspect_image(tag)["Id"])
            except BaseException:
                self._untag(tag)
                raise
            finally:
                if named:  # else the image would go with its only name
                    self._untag(base)

    def _untag(self, tag: str) -> None:
        """Remove a tag, and the image if the tag was its only name and nothing else stands on it."""
        with suppress(DockerException, OSError):
            self.client.api.remove_image(tag, noprune=True)

    def save(self, image: str) -> Generator[bytes]:
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
        cdi_folders=tuple(info.get("CDISpecDirs") or ()),
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
