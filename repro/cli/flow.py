"""Bring what a lock names, build the image or the virtual environment, open what runs the pilot in it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.adapters.inputs import artifact_sources
from repro.adapters.pip import PipResolver
from repro.build.build import build_image, held_record
from repro.build.plan import make_plan
from repro.cli.console import Console
from repro.cli.project import Locked, Written, file_cache
from repro.image import EngineInfo, ImageRecord
from repro.ports import Runtime
from repro.resolve import hold
from repro.run import Project

__all__ = ["Ready", "Supply", "bring", "ready"]

Supply = Callable[[DockerEngine], ImageRecord | None]
"""Brings an image into an engine; None where it has none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A project with its image built, and what it runs in."""

    project: Project
    runtime: Runtime
    image: ImageRecord | None
    engine: EngineInfo | None


def _project(
    written: Written, locked: Locked, name: str, image: ImageRecord | None, artifacts: Mapping[str, Path]
) -> Project:
    return Project(
        root=written.root,
        spec=written.spec,
        lock=locked.lock,
        accelerator=name,
        image=image.identity.config_digest if image else None,
        artifacts=artifacts,
    )


def bring(written: Written, locked: Locked, accelerators: list[str], console: Console) -> dict[str, Path]:
    """Bring what the lock names onto this machine; return where each model and data set lies.

    Raises:
        LockError: what can be had now is not what is locked.
        NetworkError: what is missing cannot be reached.
    """
    cache = file_cache()
    return hold(
        locked.lock,
        accelerators,
        root=written.root,
        cache=cache,
        resolver=PipResolver(cache),
        sources=artifact_sources(),
        progress=console,
    )


@contextmanager
def ready(
    written: Written,
    locked: Locked,
    name: str,
    *,
    kind: str,
    console: Console,
    supply: Supply | None = None,
) -> Iterator[Ready]:
    """Build the image or get the virtual environment, and open what runs the pilot in it.

    Where the engine holds the image already, no wheel is fetched.

    Args:
        supply: brings an image that was built elsewhere.

    Raises:
        LockError: what can be had now is not what is locked.
        EngineError: there is no engine, or it went away.
        BuildError: the image cannot be built.
    """
    cache = file_cache()
    plan = make_plan(locked.lock, name)
    if kind == "host":
        from repro.adapters.host_runtime import HostRuntime

        project = _project(written, locked, name, None, bring(written, locked, [name], console))
        runtime = HostRuntime(plan, cache=cache, progress=console)
        yield Ready(project=project, runtime=runtime, image=None, engine=None)
        return
    with DockerEngine.connect() as engine:
        image = (supply(engine) if supply else None) or held_record(plan, engine=engine, cache=cache)
        artifacts = bring(written, locked, [] if image else [name], console)
        image = image or build_image(plan, engine=engine, cache=cache, root=written.root, progress=console)
        yield Ready(
            project=_project(written, locked, name, image, artifacts),
            runtime=DockerRuntime(engine),
            image=image,
            engine=engine.info(),
        )
