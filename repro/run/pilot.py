"""The pilot's phases in order, and what they leave behind."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro.digest import digest_stream
from repro.errors import RunError
from repro.job import JobResult
from repro.lock import FileLock
from repro.manifest import CheckpointRecord, PhaseRecord
from repro.ports import Clock, OnLine, Runtime
from repro.recorder import knobs
from repro.run.calibrate import controls, harmless
from repro.run.phase import Phase
from repro.run.project import Project
from repro.spec import Spec

__all__ = ["OnPhase", "PilotRun", "pilot_environment", "run_command", "run_pilot"]

OnPhase = Callable[[str], None]
"""Called with a phase's name as it begins."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PilotRun:
    """Everything a pilot left behind."""

    phases: tuple[PhaseRecord, ...]
    checkpoint: CheckpointRecord | None
    folder: Path
    """Holds `trace/<phase>/rank-<n>.jsonl`."""
    environment: dict[str, str]


def pilot_environment(spec: Spec, accelerator: str) -> dict[str, str]:
    """Return the variables a pilot starts with: ours, the determinism knobs, then the spec's own."""
    environment = {
        "HF_DATASETS_OFFLINE": "1",
        "HF_HUB_OFFLINE": "1",
        "HOME": "/tmp",  # noqa: S108 - a private tmpfs inside the job
        "LANG": "C.UTF-8",
        "LOGNAME": "repro",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TZ": "UTC",
        "USER": "repro",
    }
    environment.update(knobs.environment(spec.determinism, accelerator=accelerator, seed=spec.seed))
    environment.update(spec.accelerators[accelerator].environment)  # type: ignore[index]
    environment.update(spec.pilot.environment)
    return environment


def _checkpoint(project: Project, outputs: Path) -> CheckpointRecord:
    checkpoint = project.spec.pilot.checkpoint
    assert checkpoint is not None
    place = outputs / checkpoint.path
    paths = [place] if place.is_file() else sorted(path for path in place.rglob("*") if path.is_file())
    if not paths:
        raise RunError(
            "checkpoint-missing",
            f"no checkpoint lies at {checkpoint.path} after step {checkpoint.at_step}",
            where="phase interrupted",
            remedy="let the pilot save there after that step, or correct pilot.checkpoint in repro.yaml",
        )
    files = []
    for path in paths:
        with path.open("rb") as stream:
            digest, size = digest_stream(stream)
        files.append(FileLock(path=path.relative_to(outputs).as_posix(), size=size, digest=digest))
    return CheckpointRecord(at_step=checkpoint.at_step, files=tuple(files))


def run_pilot(
    project: Project,
    folder: Path,
    *,
    runtime: Runtime,
    clock: Clock,
    on_phase: OnPhase,
    on_line: OnLine,
    calibration_runs: int = 0,
) -> PilotRun:
    """Run every phase of the pilot and keep its traces below `folder`, which must be empty.

    Args:
        calibration_runs: how many times to run it again under perturbations that mean nothing; controls,
            which mean something, come on top. See `repro.run.calibrate`.

    Raises:
        RunError: the pilot failed, hung, was not recorded, or left no checkpoint.
        EngineError: the engine went away.
    """
    pilot = project.spec.pilot
    environment = pilot_environment(project.spec, project.accelerator)
    phases: list[PhaseRecord] = []

    def run(
        name: str,
        command: Sequence[str],
        outputs: str,
        *,
        stop_after: int | None = None,
        first_step: int = 0,
        perturbation: Mapping[str, str] | None = None,
    ) -> None:
        on_phase(name)
        phase = Phase(
            project=project,
            name=name,
            command=command,
            folder=folder,
            outputs=folder / "outputs" / outputs,
            stop_after=stop_after,
            first_step=first_step,
            perturbation=perturbation or {},
        )
        phases.append(phase.run(runtime, clock, environment, on_line))

    run("full", pilot.command, "full")
    checkpoint = None
    if pilot.resume is not None and pilot.checkpoint is not None:
        at_step = pilot.checkpoint.at_step
        run("interrupted", pilot.command, "interrupted", stop_after=at_step)
        checkpoint = _checkpoint(project, folder / "outputs" / "interrupted")
        resume = [word.replace("{checkpoint}", pilot.checkpoint.path) for word in pilot.resume]
        run("resumed", resume, "interrupted", first_step=at_step)
    if calibration_runs:
        for one in (*harmless(calibration_runs, project.accelerator, environment), *controls()):
            run(one.name, pilot.command, one.name, perturbation=one.environment)
    return PilotRun(phases=tuple(phases), checkpoint=checkpoint, folder=folder, environment=environment)


def run_command(
    project: Project, command: Sequence[str], folder: Path, *, runtime: Runtime, on_line: OnLine
) -> JobResult:
    """Run any command in the pilot's surroundings, recorded where it trains, and say how it ended."""
    phase = Phase(project=project, name="command", command=command, folder=folder, outputs=folder / "outputs")
    environment = pilot_environment(project.spec, project.accelerator)
    return runtime.run(phase.job(environment, secrets.token_hex(8)), on_line=on_line)
