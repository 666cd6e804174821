"""Run the pilot: full; up to the checkpoint, where the process ends; resumed in a new process.

Each phase is one job with no network. The recorder is mounted beside the pilot,
never part of the image, and writes one file per process; what it wrote is merged
into `trace/<phase>/rank-<n>.jsonl`.
"""

from __future__ import annotations

import json
import secrets
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from repro import recorder
from repro.digest import digest_stream
from repro.errors import RunError
from repro.job import Job, JobResult, Limits, Mount
from repro.lock import FileLock, Lock
from repro.manifest import CheckpointRecord, PhaseRecord
from repro.ports import Clock, OnLine, Runtime
from repro.recorder import knobs
from repro.spec import Spec
from repro.trace import event_name

__all__ = ["PilotRun", "Project", "pilot_environment", "run_command", "run_pilot"]

WORKSPACE = "/workspace"
RECORDER = "/repro/recorder"
TRACE = "/repro/trace"

OnPhase = Callable[[str], None]


@dataclass(frozen=True, kw_only=True, slots=True)
class Project:
    """What a pilot runs from."""

    root: Path
    """Folder of `repro.yaml`; models and data sets of kind `path` lie below it."""
    spec: Spec
    lock: Lock
    accelerator: str
    image: str | None
    """Config digest of the image, or None on the host."""
    artifacts: Mapping[str, Path]
    """Where each model and data set of the lock lies on this machine, by name."""


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
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONUNBUFFERED": "1",
        "TRANSFORMERS_OFFLINE": "1",
        "TZ": "UTC",
    }
    environment.update(knobs.environment(spec.determinism, accelerator=accelerator, seed=spec.seed))
    environment.update(spec.accelerators[accelerator].environment)  # type: ignore[index]
    environment.update(spec.pilot.environment)
    return environment


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


def _limits(spec: Spec) -> Limits:
    limits = spec.limits
    return Limits(memory_bytes=limits.memory, cpus=limits.cpus, shm_bytes=limits.shm, tmp_bytes=limits.tmp)


@dataclass(kw_only=True, slots=True)
class _Phase:
    """One job and the trace it leaves."""

    project: Project
    name: str
    command: Sequence[str]
    folder: Path
    outputs: Path
    stop_after: int | None = None
    first_step: int = 0

    def job(self, environment: Mapping[str, str], nonce: str) -> Job:
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
            environment={**environment, **recorded},
            workdir=WORKSPACE,
            image=self.project.image,
            mounts=tuple(_mounts(self.project, scratch, self.outputs)),
            limits=_limits(spec),
            timeout_s=float(spec.pilot.timeout),
            accelerator=self.project.accelerator,  # type: ignore[arg-type]
        )

    def run(
        self, runtime: Runtime, clock: Clock, environment: Mapping[str, str], on_line: OnLine
    ) -> PhaseRecord:
        nonce = secrets.token_hex(8)
        started = clock.now()
        result = runtime.run(self.job(environment, nonce), on_line=on_line)
        _require_success(self.name, result)
        files, steps, world = merge(self.folder / "raw" / self.name, self.folder / "trace" / self.name, nonce)
        _require_steps(self.name, steps, self._expected_steps())
        return PhaseRecord(
            name=self.name,  # type: ignore[arg-type]
            command=tuple(self.command),
            started_at=started.strftime("%Y-%m-%dT%H:%M:%SZ"),
            milliseconds=round(result.seconds * 1000),
            exit_code=result.exit_code,
            first_step=self.first_step,
            steps=steps,
            world_size=world,
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


def merge(raw: Path, target: Path, nonce: str) -> tuple[tuple[FileLock, ...], int, int]:
    """Keep the file of each rank that took steps, as `rank-<n>.jsonl`.

    Returns:
        the files with paths from the folder above `trace`, the steps of each rank, the world size.

    Raises:
        RunError: `recorder-absent`, `trace-ambiguous`, `ranks-missing` or `ranks-disagree`.
    """
    heads = 0
    ranks: dict[int, tuple[Path, int, int]] = {}
    for path in sorted(raw.glob("proc-*.jsonl")):
        head, steps = _survey(path)
        heads += head is not None and head.get("nonce") == nonce
        if head is None or steps == 0:
            continue
        if (rank := int(head["rank"])) in ranks:
            raise RunError(
                "trace-ambiguous", f"two processes took steps as rank {rank}", where=str(path.name)
            )
        ranks[rank] = (path, steps, int(head["world"]))
    if not heads:
        raise RunError(
            "recorder-absent",
            "the recorder did not load in any process",
            remedy="start the pilot with a Python that reads PYTHONPATH (no -E, -I or -S) and has torch",
        )
    if not ranks:
        raise RunError(
            "steps-absent", "no optimizer step was seen", remedy="let the pilot train at least one step"
        )
    world = max(size for _, _, size in ranks.values())
    if sorted(ranks) != list(range(world)):
        raise RunError("ranks-missing", f"ranks {sorted(ranks)} were recorded of a world of {world}")
    if len(counts := {steps for _, steps, _ in ranks.values()}) > 1:
        raise RunError("ranks-disagree", f"ranks recorded different numbers of steps: {sorted(counts)}")
    target.mkdir(parents=True)
    files = []
    for rank, (path, _, _) in sorted(ranks.items()):
        place = target / f"rank-{rank}.jsonl"
        shutil.copyfile(path, place)
        with place.open("rb") as stream:
            digest, size = digest_stream(stream)
        files.append(FileLock(path=f"trace/{target.name}/{place.name}", size=size, digest=digest))
    return tuple(files), counts.pop(), world


def _survey(path: Path) -> tuple[dict[str, object] | None, int]:
    """Return the last head before the first step of a raw trace file, and how many steps it holds."""
    head: dict[str, object] | None = None
    steps = 0
    with path.open("rb") as stream:
        for line in stream:
            name = event_name(line)
            if name == b"head" and not steps:
                head = json.loads(line)
            steps += name == b"step"
    return head, steps


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
    project: Project, folder: Path, *, runtime: Runtime, clock: Clock, on_phase: OnPhase, on_line: OnLine
) -> PilotRun:
    """Run every phase of the pilot and keep its traces below `folder`, which must be empty.

    Raises:
        RunError: the pilot failed, hung, was not recorded, or left no checkpoint.
        EngineError: the engine went away.
    """
    pilot = project.spec.pilot
    environment = pilot_environment(project.spec, project.accelerator)
    phases: list[PhaseRecord] = []

    def run(name: str, command: Sequence[str], outputs: str, **options: int) -> None:
        on_phase(name)
        phase = _Phase(
            project=project,
            name=name,
            command=command,
            folder=folder,
            outputs=folder / "outputs" / outputs,
            **options,
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
    return PilotRun(phases=tuple(phases), checkpoint=checkpoint, folder=folder, environment=environment)


def run_command(
    project: Project, command: Sequence[str], folder: Path, *, runtime: Runtime, on_line: OnLine
) -> JobResult:
    """Run any command in the pilot's surroundings, recorded where it trains, and say how it ended."""
    phase = _Phase(
        project=project, name="command", command=command, folder=folder, outputs=folder / "outputs"
    )
    environment = pilot_environment(project.spec, project.accelerator)
    return runtime.run(phase.job(environment, secrets.token_hex(8)), on_line=on_line)
