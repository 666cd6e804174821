"""Run the pilot's command in another way: bare, to prove recording; as fp32 probe; or module by module."""

from __future__ import annotations

from pathlib import Path

from repro.digest import digest_stream
from repro.manifest import PhaseRecord
from repro.ports import Clock, OnLine, Runtime
from repro.run.phase import Phase
from repro.run.pilot import pilot_environment
from repro.run.project import Project

__all__ = ["PROBE_STEPS", "files_written", "run_bare", "run_full", "run_modules", "run_probe"]

PROBE_STEPS = 10
"""Steps of the fp32 probe: enough for a difference in the computation, too few for one to grow."""


def run_full(
    project: Project, folder: Path, *, runtime: Runtime, clock: Clock, on_line: OnLine
) -> PhaseRecord:
    """Run the pilot once, recorded, without its other phases."""
    return _run(_phase(project, folder, "full"), runtime, clock, on_line)


def run_bare(
    project: Project, folder: Path, *, runtime: Runtime, clock: Clock, on_line: OnLine
) -> PhaseRecord:
    """Run the pilot with its seeds and settings, and with nothing of the recorder but a look at its end."""
    phase = _phase(project, folder, "bare")
    phase.settings["REPRO_RECORD"] = "end"
    return _run(phase, runtime, clock, on_line)


def run_probe(
    project: Project, folder: Path, *, runtime: Runtime, clock: Clock, on_line: OnLine
) -> PhaseRecord:
    """Run the pilot's first steps in float32: autocast, loss scaling and reduced products switched off."""
    phase = _phase(project, folder, "probe/full")
    phase.settings["REPRO_PROBE"] = "fp32"
    phase.stop_after = min(PROBE_STEPS, project.spec.pilot.steps)
    return _run(phase, runtime, clock, on_line)


def run_modules(
    project: Project, folder: Path, name: str, step: int, *, runtime: Runtime, clock: Clock, on_line: OnLine
) -> PhaseRecord:
    """Run the pilot up to a step and record every module call of that step."""
    phase = _phase(project, folder, name)
    phase.settings["REPRO_MODULES"] = str(step)
    phase.stop_after = step
    return _run(phase, runtime, clock, on_line)


def _phase(project: Project, folder: Path, name: str) -> Phase:
    outputs = folder / "outputs" / name
    return Phase(
        project=project, name=name, command=project.spec.pilot.command, folder=folder, outputs=outputs
    )


def _run(phase: Phase, runtime: Runtime, clock: Clock, on_line: OnLine) -> PhaseRecord:
    environment = pilot_environment(phase.project.spec, phase.project.accelerator)
    return phase.run(runtime, clock, environment, on_line)


def files_written(folder: Path) -> dict[str, tuple[str | None, str | None]]:
    """Digest what the program wrote, bare and in full, by path; None where a run did not write it."""
    sides = [_digests(folder / "outputs" / name) for name in ("bare", "full")]
    return {path: (sides[0].get(path), sides[1].get(path)) for path in sorted({*sides[0], *sides[1]})}


def _digests(root: Path) -> dict[str, str]:
    found = {}
    for path in sorted(path for path in root.rglob("*") if path.is_file() and not path.is_symlink()):
        with path.open("rb") as stream:
            found[path.relative_to(root).as_posix()] = str(digest_stream(stream)[0])
    return found
