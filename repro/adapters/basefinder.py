"""`BaseFinder`: what the engine holds comes first, as `docker run` would have it; then the registry."""

from __future__ import annotations

import os
from collections.abc import Mapping

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.reference import parse_reference
from repro.adapters.registry import Registry
from repro.errors import EngineError, LockError, NetworkError, ReproError
from repro.image import HeldImage
from repro.lock import BaseLock
from repro.ports import OnLine

__all__ = ["MachineBaseFinder"]


class MachineBaseFinder:
    """Looks in the engine of this machine, where there is one, and in registries."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, *, warn: OnLine = lambda _: None
    ) -> None:
        self._environment = os.environ if environment is None else environment
        self._warn = warn

    def find(self, reference: str, *, architecture: str) -> BaseLock:
        """Resolve a mutable reference.

        Raises:
            LockError: `base-not-found`, `base-platform-absent` or `base-reference-invalid`.
            NetworkError: the registry did not answer as it should.
        """
        parse_reference(reference)
        held = self._held(reference, architecture)
        if held is not None and (locked := self._from_engine(reference, held)) is not None:
            return locked
        try:
            return self._from_registry(reference, reference, architecture)
        except NetworkError as error:
            if error.kind != "registry-unreachable":
                raise
            raise LockError(
                "base-not-found",
                "no engine here holds the image, and its registry cannot be reached",
                where=reference,
                remedy="load or pull the image with the engine, or lock where the registry can be reached",
            ) from None

    def _held(self, reference: str, architecture: str) -> HeldImage | None:
        try:
            with DockerEngine.connect(self._environment) as engine:
                held = engine.inspect(reference)
        except EngineError as error:
            self._warn(f"no engine was asked for {reference}: {error.message}")
            return None
        return held if held is not None and held.architecture == architecture else None

    def _from_engine(self, reference: str, held: HeldImage) -> BaseLock | None:
        """Lock what the engine holds, with the digests its registry knows it by, where that can be told."""
        if held.config_digest is None or held.diff_ids is None:
            return None
        known: dict[str, str | None] = {}
        for repo_digest in held.repo_digests:
            try:
                there = self._from_registry(repo_digest, reference, held.architecture)
            except ReproError as error:
                self._warn(f"{repo_digest}: {error.message}")
                continue
            if there.config_digest == held.config_digest:
                known = {"index_digest": there.index_digest, "manifest_digest": there.manifest_digest}
                break
        return BaseLock(
            requested=reference,
            source="engine",
            config_digest=held.config_digest,
            diff_ids=held.diff_ids,
            os=held.os,
            architecture=held.architecture,
            **known,
        )

    def _from_registry(self, reference: str, requested: str, architecture: str) -> BaseLock:
        with Registry(parse_reference(reference), self._environment) as registry:
            if registry.login.problem is not None:
                self._warn(f"going on without credentials: {registry.login.problem}")
            return registry.base(requested, architecture=architecture)
