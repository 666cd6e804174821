"""A run as SLSA provenance v1: what was asked, what it was made from, and what came out.

The format is that of the SLSA specification, `provenance/v1`. The build type is this project's own and is
described in `docs/report.md`.
"""

from __future__ import annotations

from typing import Any, Final

from repro.digest import Digest
from repro.lock import AcceleratorLock, ArtifactLock, Lock
from repro.manifest import Manifest
from repro.report.export.statement import descriptor, file_descriptor, statement, subjects

__all__ = ["BUILD_TYPE", "slsa_statement"]

PREDICATE_TYPE: Final = "https://slsa.dev/provenance/v1"
BUILD_TYPE: Final = "https://repro-manifest/capture/v1"
BUILDER: Final = "https://repro-manifest/repro"


def _artifact(artifact: ArtifactLock) -> list[dict[str, Any]]:
    """The revision where there is one, then every file by its own digest."""
    revision = (
        []
        if artifact.commit is None
        else [{"name": artifact.name, "uri": artifact.requested, "digest": {"gitCommit": artifact.commit}}]
    )
    return revision + [descriptor(f"{artifact.name}/{file.path}", file.digest) for file in artifact.files]


def _base(locked: AcceleratorLock) -> dict[str, Any]:
    base = locked.base
    return descriptor("base", base.manifest_digest or base.config_digest, uri=base.requested)


def _dependencies(lock: Lock, locked: AcceleratorLock) -> list[dict[str, Any]]:
    source = lock.source
    commit = [{"name": "source", "digest": {"gitCommit": source.git.commit}}] if source.git else []
    wheels = (
        descriptor(file.filename, file.digest, uri=f"pkg:pypi/{file.name}@{file.version}")
        for file in locked.packages.files
    )
    return [
        _base(locked),
        file_descriptor(locked.dockerfile),
        *wheels,
        *(one for artifact in (*lock.models, *lock.datasets) for one in _artifact(artifact)),
        *commit,
        *(file_descriptor(file) for file in source.files),
    ]


def _definition(manifest: Manifest, lock: Lock) -> dict[str, Any]:
    return {
        "buildType": BUILD_TYPE,
        "externalParameters": {
            "project": manifest.project,
            "accelerator": manifest.accelerator,
            "spec": file_descriptor(manifest.spec),
            "lock": file_descriptor(manifest.lock),
            "seed": manifest.seed,
            "determinism": manifest.determinism,
            "commands": {phase.name: list(phase.command) for phase in manifest.phases},
        },
        "internalParameters": {
            "runtime": manifest.runtime,
            "environment": manifest.environment,
            "limits": manifest.limits,
        },
        "resolvedDependencies": _dependencies(lock, lock.accelerators[manifest.accelerator]),
    }


def _details(manifest: Manifest) -> dict[str, Any]:
    versions = {"repro": manifest.tool.version}
    if manifest.image is not None:
        versions[manifest.image.builder.engine] = manifest.image.builder.version
    started = min((phase.started_at for phase in manifest.phases), default=None)
    metadata = {"invocationId": manifest.run_id, "startedOn": started, "finishedOn": manifest.created_at}
    return {
        "builder": {"id": BUILDER, "version": versions},
        "metadata": {key: value for key, value in metadata.items() if value is not None},
        "byproducts": [file_descriptor(file) for file in manifest.files],
    }


def slsa_statement(manifest: Manifest, manifest_digest: Digest, lock: Lock) -> dict[str, Any]:
    """Write the provenance as an in-toto statement, not signed.

    Subjects are the manifest, the image, the traces and the files of the checkpoint.

    Args:
        manifest: the signed run.
        manifest_digest: digest of the bytes of `manifest.json`.
        lock: the run's lock; it holds the accelerator of the manifest.
    """
    made = [file for phase in manifest.phases for file in phase.trace]
    made += manifest.checkpoint.files if manifest.checkpoint else ()
    return statement(
        subjects(manifest, manifest_digest) + [file_descriptor(file) for file in made],
        PREDICATE_TYPE,
        {"buildDefinition": _definition(manifest, lock), "runDetails": _details(manifest)},
    )
