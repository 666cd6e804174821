"""Models and data sets: from a reference that may move to files by content."""

from __future__ import annotations

import shutil
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Literal

from packaging.utils import canonicalize_name

from repro.digest import hex_of
from repro.errors import LockError
from repro.lock import AcceleratorLock, ArtifactLock, FileLock
from repro.ports import ArtifactSource, Cache, Progress
from repro.resolution import Found, Reference
from repro.resolve.contents import examine
from repro.resolve.dvc import check_dvc
from repro.resolve.files import hash_files, list_tree
from repro.resolve.places import tree_digest
from repro.spec import ArtifactSpec

__all__ = ["Artifacts"]

Role = Literal["model", "dataset"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Artifacts:
    """Locks models and data sets, and keeps the files of those that lie elsewhere."""

    root: Path
    cache: Cache
    sources: Mapping[str, ArtifactSource]
    progress: Progress

    def lock(
        self, artifact: ArtifactSpec, role: Role, accelerators: Mapping[str, AcceleratorLock]
    ) -> ArtifactLock:
        """Lock one artifact by its content.

        Raises:
            LockError: as the sources say, or `input-missing`, `artifact-empty`, `wheel-not-locked`,
                `wheel-ambiguous`, or as `list_tree` and `examine` say.
            NetworkError: as the sources say.
        """
        if artifact.kind == "path":
            found = Found(requested=artifact.reference)
            return self._describe(artifact, self.root / artifact.reference, found)
        with self._incoming() as folder:
            found = self._bring(artifact, role, accelerators, folder)
            locked = self._describe(artifact, folder, found)
            self._settle(folder, locked.files)
        return locked

    def _describe(self, artifact: ArtifactSpec, place: Path, found: Found) -> ArtifactLock:
        listed = list_tree(place)
        if not listed:
            raise LockError(
                "artifact-empty",
                f"{found.requested} holds no file",
                where=artifact.name,
                remedy="put the files there, or correct the reference in repro.yaml",
            )
        examined = examine(listed, where=found.requested)
        sums, absent = check_dvc(place, listed, where=found.requested)
        self.progress.start(f"hash {artifact.name}", total=sum(path.stat().st_size for _, path in listed))
        files = hash_files(listed, self.progress)
        default = artifact.reference if artifact.kind == "path" else f"inputs/{artifact.name}"
        return ArtifactLock(
            name=artifact.name,
            kind=artifact.kind,
            requested=found.requested,
            resolved=found.resolved,
            requested_revision=artifact.revision,
            commit=found.commit,
            target=artifact.target or default,
            files=files,
            total_bytes=sum(file.size for file in files),
            licence=found.licence,
            hints={**found.hints, **sums},
            warnings=(*found.warnings, *examined, *absent),
        )

    def _bring(
        self,
        artifact: ArtifactSpec,
        role: Role,
        accelerators: Mapping[str, AcceleratorLock],
        folder: Path,
    ) -> Found:
        if artifact.kind == "wheel":
            self._unpack(artifact.reference, accelerators, folder)
            return Found(requested=artifact.reference)
        reference = Reference(text=artifact.reference, revision=artifact.revision, role=role)
        return self.sources[artifact.kind].materialise(reference, folder, self.progress)

    def bring_again(
        self, locked: ArtifactLock, role: Role, accelerators: Mapping[str, AcceleratorLock]
    ) -> Path:
        """Bring the files of a locked artifact into the cache once more, and return their place.

        Raises:
            LockError: kind `artifact-differs` where other bytes come than are locked.
        """
        with self._incoming() as folder:
            if locked.kind == "wheel":
                self._unpack(locked.requested, accelerators, folder)
            else:
                reference = Reference(
                    text=locked.resolved or locked.requested,
                    revision=locked.commit or locked.requested_revision,
                    role=role,
                )
                self.sources[locked.kind].materialise(reference, folder, self.progress)
            files = hash_files(list_tree(folder))
            if files != locked.files:
                raise LockError(
                    "artifact-differs",
                    f"{locked.requested} no longer gives the files that are locked",
                    where=locked.name,
                    remedy="get the files from whoever made the lock, or lock again",
                )
            return self._settle(folder, files)

    @contextmanager
    def _incoming(self) -> Iterator[Path]:
        """Make an empty folder on the cache's file system; whoever wants it moves it away."""
        parent = self.cache.folder / "incoming"
        parent.mkdir(parents=True, exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=parent))
        try:
            yield folder
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def _settle(self, folder: Path, files: tuple[FileLock, ...]) -> Path:
        """Move brought files to the place that their content names, unless they lie there already."""
        place = self.cache.folder / "inputs" / hex_of(tree_digest(files))
        place.parent.mkdir(parents=True, exist_ok=True)
        with self._incoming() as aside:
            if place.is_dir():
                if hash_files(list_tree(place)) == files:
                    return place
                place.rename(aside / "spoilt")
            folder.rename(place)
        return place

    def _unpack(self, reference: str, accelerators: Mapping[str, AcceleratorLock], folder: Path) -> None:
        """Take `PACKAGE:FOLDER` out of the locked wheel of that package, the same for every accelerator."""
        package, _, inside = reference.partition(":")
        wheels = {
            file.digest: file
            for locked in accelerators.values()
            for file in locked.packages.files
            if file.name == canonicalize_name(package)
        }
        if not wheels:
            raise LockError(
                "wheel-not-locked",
                f"no accelerator has the package {package}",
                where=reference,
                remedy="require the package in a requirements file",
            )
        if len(wheels) > 1:
            raise LockError(
                "wheel-ambiguous",
                f"the accelerators have different wheels of {package}",
                where=reference,
                remedy="require one version of the package, the same for every accelerator",
            )
        (wheel,) = wheels.values()
        held = self.cache.path(wheel.digest)
        if held is None:
            raise LockError("wheel-not-held", f"{wheel.filename} is not in the cache", where=reference)
        start = PurePosixPath(inside)
        with zipfile.ZipFile(held) as archive:
            for member in archive.infolist():
                path = PurePosixPath(member.filename)
                if member.is_dir() or not path.is_relative_to(start) or ".." in path.parts:
                    continue
                place = folder / path.relative_to(start)
                place.parent.mkdir(parents=True, exist_ok=True)
                with archive.open(member) as source, place.open("xb") as target:
                    shutil.copyfileobj(source, target, 1 << 20)
