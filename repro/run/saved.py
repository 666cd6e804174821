"""Open what the pilot saved in a process of its own, and hold it against what the run needed."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from repro import recorder
from repro.job import Job, Mount
from repro.ports import OnLine, Runtime
from repro.run.phase import RECORDER, TRACE, WORKSPACE, job_limits
from repro.run.pilot import PilotRun
from repro.run.project import Project
from repro.saved import PARTS, OpenedFile, SavedPart, SavedState
from repro.trace import PhaseTrace, event_name

__all__ = ["Needed", "conclude", "needed", "open_checkpoint"]

_PROGRAM = f"{RECORDER}/inspect/saved.py"
_LISTING = "saved.json"
_TIMEOUT_S = 600.0
_MOST_BYTES = 64 << 20
_RNG = re.compile(rb'"rng":(\{[^{}]*\})')
_RATE = re.compile(rb'"lr":"([^"]*)"')
_NOT_PARAMETER = re.compile(r"^(module|_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")
_CPU_GENERATORS = frozenset({"python", "numpy", "torch"})


@dataclass(slots=True)
class Needed:
    """What a run shows that a restart depends on."""

    scaler: bool = False
    rates: set[bytes] = field(default_factory=set)
    """Learning rates that were seen, all of a step together."""
    states: dict[str, set[str]] = field(default_factory=dict)
    """States of each generator that were seen."""
    parameters: frozenset[str] = frozenset()

    def take(self, line: bytes) -> None:
        """Take in one line of a trace."""
        name = event_name(line)
        if name == b"step":
            self.scaler |= b'"scaler":{' in line
            if b'"optimizers"' in line:
                self.rates.add(b" ".join(_RATE.findall(line)))
            if (found := _RNG.search(line)) is not None:
                for generator, state in json.loads(found[1]).items():
                    self.states.setdefault(generator, set()).add(state)
        elif name == b"model":
            self.parameters |= frozenset(json.loads(line)["params"])

    def draws(self, generators: Iterable[str]) -> bool:
        """Say whether any of these generators moved between steps."""
        return any(len(self.states.get(name, ())) > 1 for name in generators)


def needed(phase: PhaseTrace) -> Needed:
    """Read what every rank's trace shows; a generator of one rank that moved counts."""
    result = Needed()
    for file in phase.ranks:
        one = Needed()
        for line in file.lines():
            one.take(line)
        result.scaler |= one.scaler
        result.rates = max(result.rates, one.rates, key=len)
        result.parameters |= one.parameters
        for name, states in one.states.items():
            known = result.states.get(name, set())
            result.states[name] = max(known, states, key=len)
    return result


def _not_needed(name: str, run: Needed) -> str | None:
    """Say why a run does not depend on a part, or None where it does."""
    if name == "scaler":
        return None if run.scaler else "no gradient scaler was used"
    if name == "scheduler":
        return None if len(run.rates) > 1 else "the learning rate never changed"
    if name == "rng.accelerators":
        return None if set(run.states) - _CPU_GENERATORS else "no accelerator was used"
    if name.startswith("rng."):
        return None if run.draws([name[4:]]) else "nothing was drawn from it between steps"
    return None


def _bare(name: str) -> str:
    while (shorter := _NOT_PARAMETER.sub("", name)) != name:
        name = shorter
    return name


def _incomplete(names: Iterable[str], run: Needed) -> str | None:
    """Say which trained parameters a saved model lacks."""
    saved = {_bare(name) for name in names}
    tails = {name.partition(".")[2] for name in saved}
    lacking = sorted(
        name
        for name in run.parameters
        if name not in saved | tails
        and name.partition(".")[2] not in saved
        and not name.startswith("optimizer.")
    )
    if not lacking or len(lacking) == len(run.parameters):
        return None  # none by their names: the program saves them under others
    return f"{len(lacking)} of {len(run.parameters)} parameters are not in it: {', '.join(lacking[:5])}"


def conclude(listing: Mapping[str, Any], run: Needed, *, world_size: int) -> SavedState:
    """Hold what was found in a checkpoint against what the run needed.

    Args:
        listing: what `repro/recorder/inspect/saved.py` wrote.
        run: what the run shows.
        world_size: ranks, each with generators of its own.
    """
    files = tuple(OpenedFile.parse(file) for file in listing["files"])
    unread = [file.path for file in files if file.error is not None]
    parts = []
    for name, effect in PARTS.items():
        places, unneeded = tuple(listing["parts"].get(name, ())), _not_needed(name, run)
        if places:
            note = _incomplete(listing["names"], run) if name == "model" else None
            count = int(listing["counts"].get(name, 0))
            if name.startswith("rng.") and unneeded is None and count < world_size:
                note = f"{count} of {world_size} ranks' states are there: the others draw anew"
            parts.append(SavedPart(name=name, status="present", places=places, note=note))
        elif unneeded is not None:
            parts.append(SavedPart(name=name, status="not-applicable", note=unneeded))
        elif unread:
            note = f"it may lie in what could not be opened: {', '.join(unread[:3])}"
            parts.append(SavedPart(name=name, status="unknown", note=note))
        else:
            parts.append(SavedPart(name=name, status="absent", note=effect))
    return SavedState(parts=tuple(parts), files=files)


def _job(project: Project, checkpoint: Path, scratch: Path) -> Job:
    inside = f"{WORKSPACE}/checkpoint/{checkpoint.name}"
    return Job(
        argv=("python", _PROGRAM, inside, f"{TRACE}/{_LISTING}"),
        environment={"HOME": "/tmp", "LANG": "C.UTF-8", "PYTHONDONTWRITEBYTECODE": "1"},  # noqa: S108
        workdir=WORKSPACE,
        image=project.image,
        mounts=(
            Mount(source=str(recorder.folder()), target=RECORDER),
            Mount(source=str(checkpoint), target=inside),
            Mount(source=str(scratch), target=TRACE, writable=True),
        ),
        limits=job_limits(project.spec),
        timeout_s=_TIMEOUT_S,
    )


def _unopened(place: str, why: str) -> dict[str, Any]:
    failed = {"path": place, "opened": None, "error": why}
    return {"files": [failed], "parts": {}, "counts": {}, "names": []}


def open_checkpoint(
    project: Project, run: PilotRun, trace: PhaseTrace, *, runtime: Runtime, on_line: OnLine
) -> PilotRun:
    """Return the run with what its checkpoint holds; a checkpoint that cannot be opened fails nothing.

    The process has no network, not the recorder, and the checkpoint read-only; it may execute what the
    pilot pickled, where the pilot itself just ran.

    Args:
        project: what the pilot ran from.
        run: what it left behind.
        trace: a phase that shows what the run needed.
        runtime: where to open it: the pilot's own image or environment.
        on_line: is told what the process prints.
    """
    settings = project.spec.pilot.checkpoint
    if run.checkpoint is None or settings is None:
        return run
    place = run.folder / "outputs" / "interrupted" / settings.path
    scratch = run.folder / "raw" / "saved"
    scratch.mkdir(parents=True)
    result = runtime.run(_job(project, place, scratch), on_line=on_line)
    listing = scratch / _LISTING
    if result.exit_code == 0 and listing.is_file() and listing.stat().st_size <= _MOST_BYTES:
        told = json.loads(listing.read_bytes())
    else:
        told = _unopened(
            settings.path, f"{result.ended} {result.exit_code}: {' '.join(result.tail[-1:])}"[:300]
        )
    saved = conclude(told, needed(trace), world_size=trace.world_size)
    return replace(run, checkpoint=run.checkpoint.model_copy(update={"saved": saved}))
