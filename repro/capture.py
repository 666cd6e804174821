"""Everything a run left behind becomes the content of one signed run folder."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repro import __version__, recorder
from repro.digest import digest_bytes, digest_json, pretty_json
from repro.host import HostFacts
from repro.image import ImageRecord
from repro.lock import ArtifactLock, FileLock, Lock
from repro.manifest import CalibrationRecord, InputRecord, Manifest, ToolRecord
from repro.ports import Clock
from repro.run import PilotRun, job_limits
from repro.spec import Spec
from repro.verdict import Verdict

__all__ = ["Captured", "capture"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Captured:
    """A run folder before it is written: small documents as bytes, traces as paths."""

    manifest: Manifest
    documents: Mapping[str, bytes]
    traces: Mapping[str, Path]


def _file(path: str, data: bytes) -> FileLock:
    return FileLock(path=path, size=len(data), digest=digest_bytes(data))


def _input(kind: str, artifact: ArtifactLock) -> InputRecord:
    listing = [file.tree() for file in sorted(artifact.files, key=lambda file: file.path)]
    return InputRecord.parse(
        {
            "kind": kind,
            "name": artifact.name,
            "requested": artifact.requested,
            "digest": digest_json(listing),
            "commit": artifact.commit,
        }
    )


def _inputs(lock: Lock, accelerator: str) -> tuple[InputRecord, ...]:
    base = lock.accelerators[accelerator].base
    return (
        InputRecord(kind="base", name="base", requested=base.requested, digest=base.config_digest),
        *(_input("model", artifact) for artifact in lock.models),
        *(_input("dataset", artifact) for artifact in lock.datasets),
    )


def _limits(spec: Spec) -> dict[str, int | None]:
    """What the jobs were given, by the names of `repro.yaml`."""
    given = job_limits(spec)
    return {
        "memory": given.memory_bytes,
        "cpus": spec.limits.cpus,
        "shm": given.shm_bytes,
        "tmp": given.tmp_bytes,
        "processes": given.pids,
        "open_files": given.open_files,
        "locked_memory": given.locked_bytes,
        "stack": given.stack_bytes,
    }


def capture(
    run: PilotRun,
    *,
    spec: Spec,
    lock: Lock,
    accelerator: str,
    documents: Mapping[str, bytes],
    image: ImageRecord | None,
    host: HostFacts,
    reproduced_itself: Verdict | None,
    resumed_exactly: Verdict | None,
    calibration: CalibrationRecord | None,
    sequence: int,
    clock: Clock,
) -> Captured:
    """Write the manifest of a run.

    Args:
        run: phases, traces and checkpoint of the pilot.
        documents: exact bytes of `repro.yaml`, `repro.lock` and the files below `locks/`.
        image: the image that ran, or None where the run was on the host.
        reproduced_itself: verdict of the interrupted phase against the full one.
        resumed_exactly: verdict of the resumed phase against the full one.
        calibration: how the calibration's phases are to be used; None where there are none.
        sequence: greater than that of every run of this project that it replaces.
    """
    traces = {file.path: run.folder / file.path for phase in run.phases for file in phase.trace}
    others = [
        _file(path, data) for path, data in documents.items() if path not in ("repro.yaml", "repro.lock")
    ]
    others += [file for phase in run.phases for file in phase.trace]
    tree: dict[str, Any] = {
        "schema": "https://repro-manifest/manifest/v1",
        "project": spec.name,
        "sequence": sequence,
        "created_at": clock.now().strftime("%Y-%m-%dT%H:%M:%SZ"),
        "tool": ToolRecord(version=__version__, recorder=recorder.digest()).tree(),
        "accelerator": accelerator,
        "runtime": "host" if image is None else "image",
        "image": image.tree() if image else None,
        "spec": _file("repro.yaml", documents["repro.yaml"]).tree(),
        "lock": _file("repro.lock", documents["repro.lock"]).tree(),
        "files": [file.tree() for file in sorted(others, key=lambda file: file.path)],
        "inputs": [record.tree() for record in _inputs(lock, accelerator)],
        "seed": spec.seed,
        "determinism": spec.determinism,
        "environment": run.environment,
        "limits": _limits(spec),
        "host": host.tree(),
        "phases": [phase.tree() for phase in run.phases],
        "checkpoint": run.checkpoint.tree() if run.checkpoint else None,
        "calibration": calibration.tree() if calibration else None,
        "reproduced_itself": reproduced_itself.tree() if reproduced_itself else None,
        "resumed_exactly": resumed_exactly.tree() if resumed_exactly else None,
        "tolerance": spec.tolerance.tree(),
        "redaction": "repro-redaction/1",
    }
    tree["run_id"] = digest_json(tree).removeprefix("sha256:")[:32]
    manifest = Manifest.parse(tree)
    return Captured(
        manifest=manifest,
        documents={**documents, "manifest.json": pretty_json(tree)},
        traces=traces,
    )
