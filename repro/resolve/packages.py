"""Requirement files → the exact wheels of one accelerator, and the files that say so."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.digest import digest_bytes
from repro.errors import LockError
from repro.lock import BaseLock, PackageFile, PackageLock, Platform
from repro.ports import Progress, Resolver
from repro.resolution import Inputs, Resolution
from repro.resolve.files import hash_files
from repro.resolve.indexes import used_indexes
from repro.resolve.render import pylock_text, requirements_text
from repro.resolve.requirements import read_inputs
from repro.spec import AcceleratorSpec

__all__ = ["LockedPackages", "documents_of", "lock_packages", "platform_of"]

_MACHINES = {"amd64": "x86_64", "arm64": "aarch64"}
"""The OCI image specification's names, and the kernel's for the same machines."""

_OLDEST_LIBC = "glibc 2.28"
"""Taken where nothing is known of the base's C library: what current PyTorch wheels ask for, and no more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LockedPackages:
    """Packages of one accelerator, and the files they are written to."""

    packages: PackageLock
    documents: dict[str, bytes]


def platform_of(spec: AcceleratorSpec, base: BaseLock) -> Platform:
    """Return what wheels must fit: the base image's machine and C library, and its Python."""
    return Platform(
        python=spec.python,
        os=base.os,
        architecture=_MACHINES.get(base.architecture, base.architecture),
        libc=base.libc or _OLDEST_LIBC,
        python_full=base.python,
    )


def documents_of(accelerator: str) -> dict[str, str]:
    """Return the paths of an accelerator's package locks, by the field of `PackageLock` with their digest."""
    return {
        "requirements": f"locks/requirements.{accelerator}.txt",
        "pylock": f"locks/pylock.{accelerator}.toml",
        "compiled": f"locks/compiled.{accelerator}.txt",
    }


def read(spec: AcceleratorSpec, root: Path, platform: Platform) -> tuple[Inputs, tuple[str, ...]]:
    """Read an accelerator's requirement files; return them and warnings."""
    inputs, _, warnings = read_inputs(root, spec.requirements, spec.constraints, spec.indexes, platform)
    return inputs, warnings


def _require_closed(inputs: Inputs, resolution: Resolution) -> None:
    missing = [file.name for file in resolution.files if file.name not in (inputs.closed or ())]
    if inputs.closed is not None and missing:
        raise LockError(
            "lock-incomplete",
            f"packages of {', '.join(inputs.requirements)} need {', '.join(missing)}, which it does not have",
            where="accelerators.*.requirements",
            remedy="make that lock again with the tool that wrote it",
        )


def lock_packages(
    accelerator: str,
    spec: AcceleratorSpec,
    base: BaseLock,
    *,
    root: Path,
    resolver: Resolver,
    previous: Sequence[PackageFile],
    upgrade: Sequence[str] | None,
    progress: Progress,
) -> LockedPackages:
    """Resolve an accelerator's requirements for its base image.

    Raises:
        LockError: what is required cannot be had, or not without doubt.
        NetworkError: an index does not answer, or refuses.
    """
    platform = platform_of(spec, base)
    inputs, warnings = read(spec, root, platform)
    resolution = resolver.resolve(
        inputs, platform=platform, previous=previous, upgrade=upgrade, progress=progress
    )
    _require_closed(inputs, resolution)
    texts = {
        "requirements": requirements_text(accelerator, platform, resolution.files, resolution.compiled),
        "pylock": pylock_text(accelerator, platform, resolution.files),
        "compiled": resolution.compiled,
    }
    documents = {documents_of(accelerator)[field]: text.encode() for field, text in texts.items()}
    packages = PackageLock(
        platform=platform,
        indexes=used_indexes(inputs, resolution, root),
        **{field: digest_bytes(text.encode()) for field, text in texts.items()},
        inputs=hash_files([(path, root / path) for path in sorted(inputs.documents)]),
        resolver=resolution.tools,
        pip=resolution.pip,
        files=resolution.files,
        warnings=(*warnings, *resolution.warnings),
    )
    return LockedPackages(packages=packages, documents=documents)
