"""Lock → plan: everything that decides an image's bytes, and nothing else."""

from __future__ import annotations

from packaging.utils import parse_wheel_filename

from repro.build.normalise import RULES
from repro.digest import digest_bytes
from repro.image import BuildPlan
from repro.lock import FileLock, Lock, PackageFile

__all__ = ["EPOCH", "VENV", "WORKSPACE", "make_plan", "requirements_text"]

EPOCH = 1767225600
"""2026-01-01T00:00:00Z: the one time stamp in our images. Any fixed time would do."""

WORKSPACE = "/workspace"
"""Where the pilot's source lies in the image, and its working folder."""

VENV = "/opt/venv"
"""Where the locked packages lie in the image."""


def _wheel(file: PackageFile) -> FileLock:
    return FileLock(path=file.filename, size=file.size, digest=file.digest)


def requirements_text(wheels: tuple[FileLock, ...]) -> bytes:
    """Return pip's input: one line and one hash for each wheel, in order of name."""
    lines = []
    for wheel in wheels:
        name, version, _, _ = parse_wheel_filename(wheel.path)
        lines.append(f"{name}=={version} --hash={wheel.digest}\n")
    return "".join(sorted(lines)).encode()


def make_plan(lock: Lock, accelerator: str) -> BuildPlan:
    """Plan the image of one locked accelerator."""
    locked = lock.accelerators[accelerator]
    base = locked.base
    wheels = tuple(sorted((_wheel(file) for file in locked.packages.files), key=lambda wheel: wheel.path))
    arguments = {
        "BASE": base.config_digest,
        "BASE_CONFIG": base.config_digest,
        "BASE_DIGEST": base.manifest_digest or "unknown",
        "BASE_NAME": base.requested,
        "EPOCH": str(EPOCH),
        "PACKAGES_DIGEST": digest_bytes(requirements_text(wheels)),
        "TITLE": lock.name,
    }
    return BuildPlan(
        name=lock.name,
        accelerator=accelerator,
        architecture=base.architecture,
        python=locked.packages.platform.python,
        epoch=EPOCH,
        base_reference=base.requested,
        base_manifest_digest=base.manifest_digest,
        base_config_digest=base.config_digest,
        base_diff_ids=base.diff_ids,
        dockerfile=locked.dockerfile,
        arguments=arguments,
        pip=_wheel(locked.packages.pip),
        wheels=wheels,
        source=tuple(sorted(lock.source.files, key=lambda file: file.path)),
        rules=RULES,
    )
