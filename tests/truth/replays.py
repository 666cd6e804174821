"""Record a population through the recorder, and judge each variant against its calibrated target."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from repro.compare import compare
from repro.run.calibrate import controls, harmless
from repro.tolerance import ToleranceSpec
from repro.trace import PhaseTrace, Trace, is_deterministic
from repro.verdict import Comparability, Outcome, Verdict
from tests.compare.recording import record, recorded_phase
from tests.recorder.resume_world import BUGS, SOUND, judged, record_resumes
from tests.truth.population import KERNELS, LAST_BIT, Population

__all__ = ["Judged", "judge_population", "judge_resumes"]

PROGRAMS = Path(__file__).parent / "programs"
RUNS = 7
STEPS = "16"


@dataclass(frozen=True)
class Judged:
    """One replay of known worth, and what the verdict was."""

    variant: str
    kind: Literal["harmless", "faulty"]
    verdict: Verdict
    changed: bool
    """Whether any bit differed; a mistake that changes nothing is none."""

    @property
    def right(self) -> bool | None:
        """Whether the verdict is right, None where it says that it cannot tell."""
        if self.verdict.outcome == Outcome.INCOMPARABLE:
            return None
        return self.verdict.reproduced == (self.kind == "harmless")


@dataclass(frozen=True)
class _Recorded:
    """Where a variant's traces lie: of the run, and of its probe."""

    full: Path
    probe: Path | None

    def phases(self, prefix: str = "") -> list[PhaseTrace]:
        """As phases below a name such as `calibration/threads-1`, or as the run's own."""
        name = prefix or "full"
        found = [recorded_phase(self.full, name)]
        return found if self.probe is None else [*found, recorded_phase(self.probe, f"probe/{name}")]


def _record(
    population: Population, variants: Mapping[str, str], folder: Path, environment: Mapping[str, str]
) -> dict[str, _Recorded]:
    """Record variants in one process tree; twice where there is a probe."""
    folder.mkdir(parents=True)
    found: dict[str, dict[str, Path]] = {}
    for part in ("full", "probe") if population.probe else ("full",):
        settings = {"REPRO_STEPS": STEPS, **environment}
        bit = population.last_bit
        if part == "probe":
            settings["REPRO_PROBE"], bit = "fp32", LAST_BIT["float32"]
        lines = [
            f"{n} {population.always} {line.format(bit=bit)}" for n, line in enumerate(variants.values())
        ]
        said = record(str(PROGRAMS / population.program), lines, folder / part, **settings)
        for line in said.splitlines():
            number, pid = line.split()
            (path,) = (folder / part).glob(f"proc-*-{pid}.jsonl")
            found.setdefault(number, {})[part] = path
    paths = [found[str(number)] for number in range(len(variants))]
    return {
        name: _Recorded(path["full"], path.get("probe")) for name, path in zip(variants, paths, strict=True)
    }


def _target(population: Population, folder: Path) -> tuple[_Recorded, Trace]:
    """Record the target and its calibration as `repro capture --calibrate` would."""
    own = _record(population, {"full": ""}, folder / "full", {})["full"]
    phases = own.phases()
    for variant in (*harmless(RUNS, "cpu", {"OMP_NUM_THREADS": "1"}), *controls()):
        # The programs set their own number of threads, so that one variant needs no process of its own.
        threads = "threads=2" if "OMP_NUM_THREADS" in variant.environment else ""
        made = _record(population, {"": threads}, folder / variant.name, variant.environment)[""]
        if not variant.name.startswith("control/") or _differ(own, made):
            phases += made.phases(variant.name)
    return own, Trace(phases=tuple(phases))


def _differ(first: _Recorded, second: _Recorded) -> bool:
    lines = [list(filter(is_deterministic, one.full.open("rb"))) for one in (first, second)]
    return lines[0] != lines[1]


def _variants(
    population: Population, folder: Path
) -> Iterator[tuple[str, Literal["harmless", "faulty"], _Recorded]]:
    for name, one in _record(population, population.harmless(), folder / "harmless", {}).items():
        yield name, "harmless", one
    for kernels, environment in KERNELS.items():
        ways = {kernels: "", f"{kernels}, own kernels": population.kernels}
        for name, one in _record(population, ways, folder / kernels, environment).items():
            yield name, "harmless", one
    for name, one in _record(population, population.faults, folder / "faulty", {}).items():
        yield name, "faulty", one


def judge_population(population: Population, folder: Path) -> Iterator[Judged]:
    """Record a pilot with all its variants, and judge each as a replay on another stack."""
    own, target = _target(population, folder / "target")
    for name, kind, made in _variants(population, folder):
        verdict = compare(
            target,
            Trace(phases=tuple(made.phases())),
            tolerance=ToleranceSpec(),
            environment=Comparability(relation="across"),
        )
        yield Judged(name, kind, verdict, _differ(own, made))


def judge_resumes(folder: Path) -> Iterator[Judged]:
    """Record a run that is interrupted, resumed in ways that forget something and in ways that do not."""
    record_resumes(folder)
    for way in (*SOUND, *BUGS):
        yield Judged(way, "harmless" if way in SOUND else "faulty", judged(folder, way), changed=way in BUGS)
