"""`BaseFinder`: what the engine holds comes first, as `docker run` would have it; then the registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TypeVar

from repro.adapters.baseclaims import mismatches
from repro.adapters.baselayers import Contents, as_stream, contents, read_layer
from repro.adapters.basesaved import SavedBase, read_saved
from repro.adapters.docker_engine import DockerEngine
from repro.adapters.reference import parse_reference
from repro.adapters.registry import Registry, RegistryImage
from repro.errors import EngineError, LockError, NetworkError, ReproError
from repro.image import HeldImage
from repro.lock import BaseLock
from repro.ports import OnLine

__all__ = ["MachineBaseFinder"]

_T = TypeVar("_T")


class MachineBaseFinder:
    """Looks in the engine of this machine, where there is one, and in registries; reads what it found."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, warn: OnLine = lambda _: None
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._warn = warn

    def find(self, reference: str, *, architecture: str) -> BaseLock:
        """Resolve a mutable reference, and read the image it leads to.

        Raises:
            LockError: `base-not-found`, `base-platform-absent`, `base-reference-invalid`, `base-unreadable`
                or `base-layer-differs`.
            NetworkError: the registry did not answer as it should.
        """
        parse_reference(reference)
        held = self._ask_engine(reference, lambda engine: engine.inspect(reference))
        if held is not None and held.architecture == architecture:
            saved = self._ask_engine(reference, lambda engine: read_saved(engine.save(held.id), reference))
            if saved is not None:
                return self._from_engine(reference, held, saved)
        try:
            return self._from_registry(reference, architecture)
        except NetworkError as error:
            if error.kind != "registry-unreachable":
                raise
            raise LockError(
                "base-not-found",
                "no engine here holds the image, and its registry cannot be reached",
                where=reference,
                remedy="load or pull the image with the engine, or lock where the registry can be reached",
            ) from None

    def _ask_engine(self, reference: str, ask: Callable[[DockerEngine], _T]) -> _T | None:
        try:
            with DockerEngine.connect(self._environment) as engine:
                return ask(engine)
        except EngineError as error:
            self._warn(f"no engine was asked for {reference}: {error.message}")
            return None

    def _from_engine(self, reference: str, held: HeldImage, saved: SavedBase) -> BaseLock:
        """Lock what the engine holds, with the digests its registry knows it by, where that can be told."""
        known: dict[str, str | None] = {}
        for repo_digest in held.repo_digests:
            try:
                with self._registry(repo_digest) as registry:
                    there = registry.base(reference, architecture=held.architecture).lock
            except ReproError as error:
                self._warn(f"{repo_digest}: {error.message}")
                continue
            if there.config_digest == saved.config_digest:
                known = {"index_digest": there.index_digest, "manifest_digest": there.manifest_digest}
                break
        inside = contents(saved.layers, saved.environment)
        return BaseLock(
            requested=reference,
            source="engine",
            config_digest=saved.config_digest,
            diff_ids=tuple(layer.diff_id for layer in saved.layers),
            os=held.os,
            architecture=held.architecture,
            **known,
            **asdict(inside),
            warnings=tuple(mismatches(reference, saved.environment, inside)),
        )

    def _registry(self, reference: str) -> Registry:
        registry = Registry(parse_reference(reference), self._environment)
        if registry.login.problem is not None:
            self._warn(f"going on without credentials: {registry.login.problem}")
        return registry

    def _from_registry(self, reference: str, architecture: str) -> BaseLock:
        with self._registry(reference) as registry:
            image = registry.base(reference, architecture=architecture)
            inside, unread = self._read(registry, image)
        told = (*unread, *mismatches(reference, image.environment, inside))
        return image.lock.model_copy(update={**asdict(inside), "warnings": told})

    def _read(self, registry: Registry, image: RegistryImage) -> tuple[Contents, tuple[str, ...]]:
        """Read every layer that the registry serves, each against its diff id."""
        expected = image.lock.diff_ids
        layers = []
        for number, (blob, diff_id) in enumerate(zip(image.layers, expected, strict=False), start=1):
            self._warn(f"reading layer {number} of {len(expected)} of {image.lock.requested}")
            layer = read_layer(as_stream(registry.blob(blob)))
            if layer is None:
                return Contents(), (f"layer {number} is in a form that is not read here: contents unknown",)
            if layer.diff_id != diff_id:
                raise LockError(
                    "base-layer-differs",
                    f"layer {number} of the image is {layer.diff_id}, its config says {diff_id}",
                    where=image.lock.requested,
                    remedy="ask another registry; do not use what this one gave",
                )
            layers.append(layer)
        if len(layers) != len(expected):
            return Contents(), ("the registry names fewer layers than the config: contents unknown",)
        return contents(layers, image.environment), ()
