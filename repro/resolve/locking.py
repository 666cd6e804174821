"""Spec → Lock: every mutable reference becomes immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from repro.digest import pretty_json
from repro.errors import LockError
from repro.lock import AcceleratorLock, ArtifactLock, BaseLock, FileLock, Lock, PackageFile, SourceLock
from repro.ports import ArtifactSource, BaseFinder, Cache, Git, Progress, Resolver
from repro.resolve.artifacts import Artifacts, Role
from repro.resolve.asked import asked_by_accelerator, asked_by_all
from repro.resolve.dockerfile import check_dockerfile
from repro.resolve.files import IGNORED, hash_file
from repro.resolve.freshness import accelerator_reasons
from repro.resolve.holding import hold
from repro.resolve.packages import documents_of, lock_packages, platform_of
from repro.resolve.source import source_files
from repro.spec import ArtifactSpec, Spec

__all__ = ["LockResult", "lock"]


@dataclass(frozen=True, kw_only=True, slots=True)
class LockResult:
    """A lock, and what has to be written for it."""

    lock: Lock
    files: Mapping[str, bytes | None]
    """`repro.lock` and what changed below `locks/`, by path; None for a file to remove."""
    renewed: tuple[str, ...]
    """Accelerators that were resolved; the others are as they were."""
    warnings: tuple[str, ...]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Task:
    spec: Spec
    root: Path
    architecture: str
    resolver: Resolver
    base_finder: BaseFinder
    artifacts: Artifacts
    progress: Progress
    previous: Lock | None
    upgrade: Sequence[str] | None

    @property
    def renews_all(self) -> bool:
        return self.upgrade is not None and not self.upgrade

    def base(self, name: str, old: AcceleratorLock | None) -> BaseLock:
        """Keep the base where it was asked for in the same words, unless everything is to be renewed."""
        requested = self.spec.accelerators[name].base  # type: ignore[index]
        kept = old.base if old is not None and old.base.requested == requested else None
        if kept is not None and kept.architecture == self.architecture and not self.renews_all:
            return kept
        self.progress.start(f"find and read the base image of {name}")
        try:
            base = self.base_finder.find(requested, architecture=self.architecture)
        except LockError as error:
            if kept is None or error.kind != "base-not-found":
                raise
            digest = kept.manifest_digest or kept.config_digest
            remedy = f"lock without --upgrade: that keeps {digest}, which is asked for by digest"
            raise LockError(error.kind, error.message, where=error.where, remedy=remedy) from None
        wanted = self.spec.accelerators[name].python  # type: ignore[index]
        inside = ".".join((base.python or wanted).split(".")[:2])
        if inside != wanted:
            raise LockError(
                "base-python-differs",
                f"{requested} has Python {inside}, and wheels are wanted for {wanted}",
                where=f"accelerators.{name}.python",
                remedy=f'write python: "{inside}" there, or name another base',
            )
        return base

    def dockerfile(self, name: str) -> FileLock:
        """Lock the Dockerfile, which may stand on nothing that moves but the base."""
        spec = self.spec.accelerators[name]  # type: ignore[index]
        place = self.root / spec.dockerfile
        if not place.is_file():
            raise LockError(
                "dockerfile-missing",
                f"{spec.dockerfile} is not there",
                where=f"accelerators.{name}.dockerfile",
                remedy="write one with `repro init`, or correct the path",
            )
        text = place.read_text(encoding="utf-8", errors="replace")
        check_dockerfile(text, where=spec.dockerfile, base=spec.base)
        digest, size = hash_file(place)
        return FileLock(path=spec.dockerfile, size=size, digest=digest)

    def accelerator(self, name: str) -> tuple[AcceleratorLock, dict[str, bytes], bool]:
        """Return the lock of one accelerator, files to write, and whether it was made anew."""
        spec = self.spec.accelerators[name]  # type: ignore[index]
        old = self.previous.accelerators.get(name) if self.previous else None
        if (
            old is not None
            and self.upgrade is None
            and not accelerator_reasons(self.spec, old, name, self.root)
        ):
            return old, {}, False
        dockerfile = self.dockerfile(name)
        base = self.base(name, old)
        keep: Sequence[PackageFile] = ()
        if old is not None and old.packages.platform == platform_of(spec, base):
            keep = old.packages.files
        made = lock_packages(
            name,
            spec,
            base,
            root=self.root,
            resolver=self.resolver,
            previous=keep,
            upgrade=self.upgrade,
            progress=self.progress,
        )
        locked = AcceleratorLock(
            spec_digest=self.spec.accelerator_meaning(name),
            asked=asked_by_accelerator(self.spec, name),
            dockerfile=dockerfile,
            base=base,
            packages=made.packages,
        )
        return locked, made.documents, True

    def artifact(
        self, artifact: ArtifactSpec, role: Role, accelerators: Mapping[str, AcceleratorLock]
    ) -> ArtifactLock:
        """Keep what was asked for in the same words, unless everything is to be renewed."""
        key = f"{role}s.{artifact.name}"
        if self.previous is not None and artifact.kind != "path" and not self.renews_all:
            old = {item.name: item for item in (*self.previous.models, *self.previous.datasets)}
            if self.previous.asked.get(key) == asked_by_all(self.spec)[key]:
                return old[artifact.name]
        return self.artifacts.lock(artifact, role, accelerators)

    def source(self, git: Git) -> SourceLock:
        """Lock the source; where no byte changed, the commit it was first locked at stays."""
        files = source_files(self.spec, self.root)
        if self.previous is not None and self.previous.source.files == files:
            return self.previous.source
        return SourceLock(files=files, git=git.state(self.root))


def lock(
    spec: Spec,
    accelerators: Sequence[str],
    *,
    root: Path,
    architecture: str,
    resolver: Resolver,
    base_finder: BaseFinder,
    git: Git,
    cache: Cache,
    sources: Mapping[str, ArtifactSource],
    progress: Progress,
    previous: Lock | None = None,
    upgrade: Sequence[str] | None = None,
) -> LockResult:
    """Make every reference immutable, change no more than is asked, and bring what the lock names.

    Args:
        spec: what is wanted.
        accelerators: which of its accelerators to lock; others keep their lock.
        root: folder of `repro.yaml`.
        architecture: of the machine that will run, in the OCI image specification's words, such as `amd64`.
        cache: takes in what lies elsewhere.
        sources: for each kind of reference to a model or data set, what brings its files.
        previous: the lock that is there.
        upgrade: None keeps everything that still fits; names renew these packages; () renews every
            package, base image, model and data set.

    Raises:
        LockError: a reference could not be made immutable.
        NetworkError: what must be asked does not answer.
    """
    task = _Task(
        spec=spec,
        root=root,
        architecture=architecture,
        resolver=resolver,
        base_finder=base_finder,
        artifacts=Artifacts(root=root, cache=cache, sources=sources, progress=progress),
        progress=progress,
        previous=previous,
        upgrade=upgrade,
    )
    asked_for = _named(upgrade or ())
    source = task.source(git)
    kept = dict(previous.accelerators) if previous else {}
    files: dict[str, bytes | None] = {
        path: None for name in kept if name not in spec.accelerators for path in documents_of(name).values()
    }
    locked: dict[str, AcceleratorLock] = {
        name: old for name, old in kept.items() if name in spec.accelerators
    }
    renewed = []
    for name in accelerators:
        locked[name], documents, anew = task.accelerator(name)
        files |= documents
        renewed += [name] if anew else []
    there = {file.name for name in accelerators for file in locked[name].packages.files}
    if absent := [text for name, text in asked_for.items() if name not in there]:
        raise _unknown(f"no package {', '.join(absent)} is needed, so it cannot be renewed")
    models = tuple(task.artifact(artifact, "model", locked) for artifact in spec.models)
    datasets = tuple(task.artifact(artifact, "dataset", locked) for artifact in spec.datasets)
    made = Lock(
        name=spec.name,
        spec_digest=spec.meaning(),
        asked=asked_by_all(spec),
        ignored=IGNORED,
        seed=spec.seed,
        determinism=spec.determinism,
        source=source,
        models=models,
        datasets=datasets,
        accelerators=dict(sorted(locked.items())),
    )
    hold(
        made,
        accelerators,
        root=root,
        cache=cache,
        resolver=resolver,
        sources=sources,
        progress=progress,
    )
    if made != previous or files:
        files["repro.lock"] = pretty_json(made.tree())
    return LockResult(lock=made, files=files, renewed=tuple(renewed), warnings=_warnings(made, accelerators))


def _named(upgrade: Sequence[str]) -> dict[str, str]:
    """Return the normalised names of packages to renew, with the words they were asked for in."""
    try:
        return {canonicalize_name(Requirement(text).name): text for text in upgrade}
    except InvalidRequirement as error:
        raise _unknown(str(error).splitlines()[0]) from None


def _unknown(message: str) -> LockError:
    return LockError(
        "upgrade-unknown",
        message,
        where="--upgrade-package",
        remedy="correct the name, or require the package first",
    )


def _warnings(made: Lock, accelerators: Sequence[str]) -> tuple[str, ...]:
    locked = [(name, made.accelerators[name]) for name in accelerators]
    packages = [(name, (*item.base.warnings, *item.packages.warnings)) for name, item in locked]
    artifacts = [(artifact.name, artifact.warnings) for artifact in (*made.models, *made.datasets)]
    return tuple(f"{name}: {text}" for name, texts in (*packages, *artifacts) for text in texts)
