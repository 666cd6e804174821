"""The verbs as functions: each does what the command of its name does, and returns the noun.

Nothing is printed and nothing is asked. What a command says with exit code 3 or 4 is in what is returned;
what it says with exit code 1 is raised, as a `repro.errors.ReproError` with a `kind`. These names and their
parameters are stable; modules other than those of the nouns they return may change with any version.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from repro.adapters.docker_engine import DockerEngine
from repro.attest.outcome import Verification
from repro.attest.verify import Demands
from repro.build.build import build_image
from repro.build.plan import make_plan
from repro.cli.console import Console
from repro.cli.diff import told_apart
from repro.cli.flow import bring
from repro.cli.lock import is_fresh, renew
from repro.cli.project import choose, file_cache, locked_project, read_spec
from repro.cli.replay import replay_run
from repro.cli.runs import read_manifest
from repro.cli.verifying import verify_folder
from repro.image import ImageRecord
from repro.lock import Lock
from repro.manifest import Manifest
from repro.resolve.freshness import Freshness
from repro.verdict import Verdict

__all__ = ["build", "check", "compare", "lock", "manifest", "replay", "verify"]

Folder = str | os.PathLike[str]


def _names(project: Folder, accelerator: str | None) -> tuple[Path, list[str]]:
    root = Path(project)
    spec = read_spec(root).spec
    return root, [choose(spec, accelerator)] if accelerator else sorted(spec.accelerators)


def lock(project: Folder, accelerator: str | None = None, *, upgrade: Sequence[str] | None = None) -> Lock:
    """Turn every mutable reference of `repro.yaml` into an immutable one; write `repro.lock` and `locks/`.

    Args:
        project: folder that holds `repro.yaml`.
        accelerator: which one to lock; None is all.
        upgrade: packages to renew; an empty sequence is everything, None is nothing that still fits.
    """
    root, names = _names(project, accelerator)
    with Console(quiet=True) as console:
        asked = None if upgrade is None else tuple(upgrade)
        return renew(read_spec(root), names, console, upgrade=asked).lock


def check(project: Folder, accelerator: str | None = None, *, deep: bool = False) -> Freshness:
    """Say whether the lock still holds, offline; `deep` hashes large models and data sets too."""
    root, names = _names(project, accelerator)
    return is_fresh(read_spec(root), names, deep=deep)


def build(project: Folder, accelerator: str | None = None, *, fresh: bool = False) -> ImageRecord:
    """Build the locked image; `fresh` builds from nothing even where the engine holds it."""
    written, locked, name = locked_project(Path(project), accelerator)
    with Console(quiet=True) as console, DockerEngine.connect() as engine:
        bring(written, locked, [name], console)
        make = partial(build_image, make_plan(locked.lock, name), engine=engine, cache=file_cache())
        return make(root=written.root, progress=console, fresh=fresh)


def manifest(run: Folder) -> Manifest:
    """Read what a run folder says of itself. Nothing is verified."""
    return read_manifest(Path(run))


def verify(run: Folder, trust: Folder, *, demands: Demands | None = None) -> Verification:
    """Check a signed run folder offline, against your own trust policy."""
    return verify_folder(Path(run), Path(trust), demands)


def replay(
    run: Folder, trust: Folder, project: Folder, *, runtime: str = "image", image: str | None = None
) -> Verdict:
    """Verify a run, run it again, and judge it. Nothing runs before the run is verified.

    Args:
        run: signed run folder.
        trust: your own policy.
        project: folder whose data sets, and source for a rebuild, are used.
        runtime: `image`, or `host` for a run that was captured without one.
        image: where the signed image lies: `engine`, `oci://…`, an OCI image layout or an archive; None is
            the engine. Where it is not, it is rebuilt from the signed lock.

    Raises:
        TrustError: the run is not verified, by the code of the first check that failed.
    """
    with Console(quiet=True) as console:
        return replay_run(
            Path(run), Path(trust), Path(project), runtime=runtime, image=image, console=console
        )


def compare(first: Folder, second: Folder) -> Verdict:
    """Compare two run folders by the rule of the first. Nothing is verified."""
    return told_apart(Path(first), Path(second))[0]
