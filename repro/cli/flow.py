"""What several commands do on their way: open the project, its cache, its image, its runtime."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from repro.adapters.cache import FileCache, cache_folder
from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.adapters.venv import HostRuntime
from repro.build.build import build_image
from repro.build.plan import make_plan
from repro.cli.console import Console
from repro.cli.project import Locked, Written, choose, read_lock, read_spec
from repro.errors import LockError
from repro.image import EngineInfo, ImageRecord
from repro.ports import Runtime
from repro.resolve import check
from repro.run import Project

__all__ = ["Ready", "file_cache", "locked_project", "ready"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Ready:
    """A project with its image built, and what it runs in."""

    project: Project
    runtime: Runtime
    image: ImageRecord | None
    engine: EngineInfo | None


def file_cache() -> FileCache:
    """Open this person's cache of content-addressed files."""
    return FileCache(cache_folder(os.environ))


def locked_project(root: Path, accelerator: str | None) -> tuple[Written, Locked, str]:
    """Read a project whose lock is fresh, and the name of the accelerator to work on.

    Raises:
        SpecError: `repro.yaml` has flaws.
        LockError: `lock-missing`, `lock-invalid`, or `lock-stale` with every reason.
    """
    written = read_spec(root)
    name = choose(written.spec, accelerator)
    locked = read_lock(root, [name])
    freshness = check(written.spec, locked.lock, written.root, accelerators=[name])
    if not freshness.fresh:
        raise LockError(
            "lock-stale",
            "; ".join(freshness.reasons),
            where=str(root / "repro.lock"),
            remedy=f"lock again with `repro lock -a {name}`",
        )
    return written, locked, name


def _artifacts(written: Written, locked: Locked) -> dict[str, Path]:
    return {a.name: written.root / a.target for a in (*locked.lock.models, *locked.lock.datasets)}


def _project(written: Written, locked: Locked, name: str, image: ImageRecord | None) -> Project:
    return Project(
        root=written.root,
        spec=written.spec,
        lock=locked.lock,
        accelerator=name,
        image=image.identity.config_digest if image else None,
        artifacts=_artifacts(written, locked),
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
        runtime = HostRuntime(plan, cache=cache, progress=console)
        yield Ready(project=_project(written, locked, name, None), runtime=runtime, image=None, engine=None)
        return
    with DockerEngine.connect() as engine:
        image = build_image(plan, engine=engine, cache=cache, root=written.root, progress=console)
        yield Ready(
            project=_project(written, locked, name, image),
            runtime=DockerRuntime(engine.client),
            image=image,
            engine=engine.info(),
        )
