"""One phase: one job, and the trace it leaves."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro import recorder
from repro.errors import RunError
from repro.job import Job, JobResult, Limits, Mount
from repro.manifest import PhaseRecord
from repro.ports import Clock, OnLine, Runtime
from repro.run.merge import merge
from repro.run.project import Project
from repro.spec import Spec

__all__ = ["RECORDER", "TRACE", "WORKSPACE", "Phase", "limits_of"]

WORKSPACE = "/workspace"
"""Working folder of the pilot; its source lies here."""

RECORDER = "/repro/recorder"
TRACE = "/repro/trace"


def _mounts(project: Project, scratch: Path, outputs: Path) -> list[Mount]:
    mounts = [
        Mount(source=str(recorder.folder()), target=RECORDER),
        Mount(source=str(scratch), target=TRACE, writable=True),
    ]
    for name in project.spec.pilot.outputs:
        folder = outputs / name
        folder.mkdir(parents=True, exist_ok=True)
        mounts.append(Mount(source=str(folder), target=f"{WORKSPACE}/{name}", writable=True))
    for artifact in (*project.lock.models, *project.lock.datasets):
        mounts.append(
            Mount(source=str(project.artifacts[artifact.name]), target=f"{WORKSPACE}/{artifact.target}")
        )
    if project.image is None:
        mounts += [
            Mount(source=str(project.root / file.path), target=f"{WORKSPACE}/{file.path}")
            for file in project.lock.source.files
        ]
    return mounts


def limits_of(spec: Spec) -> Limits:
    """Return what a job of the project may use."""
    limits = spec.limits
    return Limits(memory_bytes=limits.memory, cpus=limits.cpus, shm_bytes=limits.shm, tmp_bytes=limits.tmp)


@dataclass(kw_only=True, slots=True)
class Phase:
    """One job and the trace it leaves."""

    project: Project
    name: str
    command: Sequence[str]
    folder: Path
    outputs: Path
    stop_after: int | None = None
    first_step: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    """More of the recorder's variables."""
    perturbation: Mapping[str, str] = field(default_factory=dict)
    """Variables that differ from those of the other phases, and why the numbers may."""

    def job(self, environment: Mapping[str, str], nonce: str) -> Job:
        """Describe the job, and make the folders it writes to."""
        spec = self.project.spec
        scratch = self.folder / "raw" / self.name
        scratch.mkdir(parents=True)
        recorded = {
            "PYTHONPATH": f"{RECORDER}/inject",
            "REPRO_DETERMINISM": spec.determinism,
            "REPRO_EVERY": str(spec.record.every),
            "REPRO_NONCE": nonce,
            "REPRO_SEED": str(spec.seed),
            "REPRO_STEPS": str(spec.pilot.steps - self.first_step),
            "REPRO_TRACE": TRACE,
        }
        if self.stop_after is not None:
            recorded["REPRO_STOP_AFTER"] = str(self.stop_after)
        return Job(
            argv=tuple(self.command),
            environment={**environment, **recorded, **self.settings, **self.perturbation},
            workdir=WORKSPACE,
            image=self.project.image,
            mounts=tuple(_mounts(self.project, scratch, self.outputs)),
            limits=limits_of(spec),
            timeout_s=float(spec.pilot.timeout),
            accelerator=self.project.accelerator,  # type: ignore[arg-type]
        )

    def run(
        self, runtime: Runtime, clock: Clock, environment: Mapping[str, str], on_line: OnLine
    ) -> PhaseRecord:
        """Run to the end, keep the trace, and refuse anything but the steps that were asked for."""
        nonce = secrets.token_hex(8)
        started = clock.now()
        result = runtime.run(self.job(environment, nonce), on_line=on_line)
        _require_success(self.name, result)
        only_end = self.settings.get("REPRO_RECORD") == "end"
        files, steps, world = merge(self.folder, self.name, nonce, command=self.command, only_end=only_end)
        if not only_end:
            _require_steps(self.name, steps, self._expected_steps())
        return PhaseRecord(
            name=self.name,
            command=tuple(self.command),
            started_at=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            milliseconds=round(result.seconds * 1000),
            exit_code=result.exit_code,
            first_step=self.first_step,
            steps=steps,
            world_size=world,
            network=result.network,
            perturbation=dict(self.perturbation),
            trace=files,
        )

    def _expected_steps(self) -> int:
        return (self.stop_after or self.project.spec.pilot.steps) - self.first_step


def _require_success(phase: str, result: JobResult) -> None:
    tail = "\n  ".join(result.tail)
    said = f"; its last lines were:\n  {tail}" if tail else ""
    if result.ended == "timeout":
        raise RunError(
            "pilot-timeout",
            f"the pilot was stopped after {result.seconds:.0f} s, with all its processes{said}",
            where=f"phase {phase}",
            remedy="raise pilot.timeout in repro.yaml, or find out what the pilot waits for",
        )
    if result.ended == "oom":
        raise RunError(
            "pilot-out-of-memory",
            f"the pilot ran out of memory{said}",
            where=f"phase {phase}",
            remedy="raise limits.memory in repro.yaml, or make the micro-batch smaller",
        )
    if result.exit_code != 0:
        raise RunError(
            "pilot-failed",
            f"the pilot exited with {result.exit_code}{said}",
            where=f"phase {phase}",
            remedy="mend the pilot; `repro run -- COMMAND` runs any command in the same image",
        )


def _require_steps(phase: str, steps: int, expected: int) -> None:
    if steps != expected:
        raise RunError(
            "steps-differ",
            f"{steps} steps were recorded where repro.yaml says {expected}",
            where=f"phase {phase}",
            remedy="make pilot.steps and the pilot's own configuration agree",
        )
