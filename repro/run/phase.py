"""One phase: one job, and the trace it leaves."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from repro import recorder
from repro.errors import RunError
from repro.job import Job, Limits, Mount
from repro.manifest import PhaseRecord
from repro.ports import Clock, OnLine, Runtime
from repro.run.ending import require_success
from repro.run.merge import merge
from repro.run.project import Project
from repro.spec import Spec

__all__ = ["RECORDER", "TRACE", "WORKSPACE", "Phase", "job_limits"]

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


def job_limits(spec: Spec) -> Limits:
    """Return what each job of the pilot may use: what is written, and our own choice for the rest."""
    written = spec.limits
    ours = Limits()
    return Limits(
        memory_bytes=written.memory,
        cpus=written.cpus,
        shm_bytes=written.shm,
        tmp_bytes=written.tmp,
        pids=written.processes or ours.pids,
        open_files=written.open_files or ours.open_files,
        locked_bytes=written.locked_memory,
        stack_bytes=written.stack,
    )


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
        if modules := self._module_steps():
            recorded["REPRO_MODULES"] = modules
        return Job(
            argv=tuple(self.command),
            environment={**environment, **recorded, **self.settings, **self.perturbation},
            workdir=WORKSPACE,
            image=self.project.image,
            mounts=tuple(_mounts(self.project, scratch, self.outputs)),
            limits=job_limits(spec),
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
        require_success(self.name, result)
        only_end = self.settings.get("REPRO_RECORD") == "end"
        files, steps, world = merge(
            self.folder,
            self.name,
            nonce,
            command=self.command,
            only_end=only_end,
            accelerator=self.project.accelerator,
        )
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

    def _module_steps(self) -> str:
        """Steps whose module calls are recorded, as this process counts them."""
        steps = (step - self.first_step for step in self.project.spec.record.modules or ())
        return ",".join(str(step) for step in steps if step > 0)

    def _expected_steps(self) -> int:
        return (self.stop_after or self.project.spec.pilot.steps) - self.first_step


def _require_steps(phase: str, steps: int, expected: int) -> None:
    if steps != expected:
        raise RunError(
            "steps-differ",
            f"{steps} steps were recorded where repro.yaml says {expected}",
            where=f"phase {phase}",
            remedy="make pilot.steps and the pilot's own configuration agree",
        )
