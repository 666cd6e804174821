"""Build the image, or the virtual environment, and open what runs the pilot in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.build.build import build_image
from repro.build.plan import make_plan
from repro.cli.console import Console
from repro.cli.project import Locked, Written, file_cache
from repro.image import EngineInfo, ImageRecord
from repro.ports import Runtime
from repro.resolve.places import places
from repro.run import Project

__all__ = ["Ready", "ready"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A project with its image built, and what it runs in."""

    project: Project
    runtime: Runtime
    image: ImageRecord | None
    engine: EngineInfo | None


def _project(written: Written, locked: Locked, name: str, image: ImageRecord | None) -> Project:
    return Project(
        root=written.root,
        spec=written.spec,
        lock=locked.lock,
        accelerator=name,
        image=image.identity.config_digest if image else None,
        artifacts=places(locked.lock, written.root, file_cache()),
    )


@contextmanager
def ready(written: Written, locked: Locked, name: str, *, kind: str, console: Console) -> Iterator[Ready]:
    """Build the image, or get the virtual environment, and open what runs the pilot.

    Raises:
        EngineError: there is no engine, or it went away.
        BuildError: the image cannot be built.
    """
    cache = file_cache()
    plan = make_plan(locked.lock, name)
    if kind == "host":
        from repro.adapters.host_runtime import HostRuntime

        runtime = HostRuntime(plan, cache=cache, progress=console)
        yield Ready(project=_project(written, locked, name, None), runtime=runtime, image=None, engine=None)
        return
    with DockerEngine.connect() as engine:
        image = build_image(plan, engine=engine, cache=cache, root=written.root, progress=console)
        yield Ready(
            project=_project(written, locked, name, image),
            runtime=DockerRuntime(engine),
            image=image,
            engine=engine.info(),
        )
