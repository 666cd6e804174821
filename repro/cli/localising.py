"""`repro replay --localize`: the step in which a replay parts from what was signed, module by module."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

from repro.adapters.clock import SystemClock
from repro.adapters.tracefiles import open_trace
from repro.cli.console import Console
from repro.cli.flow import Ready, ready
from repro.cli.project import Locked, Written
from repro.compare import locate, module_events, self_replay
from repro.run import run_modules
from repro.trace import PhaseTrace, Trace
from repro.verdict import Outcome, Verdict

__all__ = ["Localising"]

_PHASE = "full"


def _repeats(full: PhaseTrace, first_steps: PhaseTrace) -> bool:
    """Whether the first steps came out again to the bit."""
    return self_replay(full, first_steps).outcome == Outcome.BITWISE


@dataclass(frozen=True, kw_only=True, slots=True)
class Localising:
    """What is needed to run the step again on both sides."""

    signed: tuple[Written, Locked]
    accelerator: str
    opened: Ready
    """What the replay ran in."""
    current: bool
    """Whether that is the project as it stands, and not as it was signed."""
    runtime: str
    folder: Path
    console: Console

    def of(self, verdict: Verdict, target: Trace, candidate: Trace) -> Verdict:
        """Add where the two part to a verdict.

        Raises:
            RunError: the pilot failed.
            EngineError: the engine went away.
            BuildError: the signed image cannot be built.
        """
        first = verdict.first_divergence
        if verdict.outcome != Outcome.DIVERGED or first is None:
            return self._noted(verdict, "Nothing to localize: the replay does not diverge.")
        if first.phase != _PHASE:
            return self._noted(verdict, f"Not localized: modules are compared in phase {_PHASE} alone.")
        step = max(1, first.step)
        sides = target.phase(_PHASE), candidate.phase(_PHASE)
        if not all(module_events(side, 0, step) for side in sides):
            reason, sides = self._made_again(step, *sides)
            if reason:
                return self._noted(verdict, reason)
        across = verdict.environment == "across"
        calm = [one for one in target.phases if across and "calibration" in one.name.split("/")]
        found = locate(*sides, step, harmless=calm)
        if found is None:
            return self._noted(
                verdict,
                f"In step {step} every module returns the same, forward and backward: what differs is the "
                "optimizer, what it is told, or something outside every module.",
            )
        return self._noted(verdict.model_copy(update={"located": found}), found.sentence)

    def _noted(self, verdict: Verdict, note: str) -> Verdict:
        return verdict.model_copy(update={"notes": (note, *verdict.notes)})

    def _made_again(
        self, step: int, target: PhaseTrace, candidate: PhaseTrace
    ) -> tuple[str | None, tuple[PhaseTrace, PhaseTrace]]:
        """Run both up to the step, with modules; say why not where the signed one does not come out again."""
        with self._signed_side() as signed_side:
            a = self._run(signed_side, "target", step)
        b = self._run(self.opened, "candidate", step)
        if not _repeats(target, a):
            return (
                f"Not localized: run again as it was signed the pilot does not come to step {step} again, "
                "so there is nothing to compare modules with. Capturing with record.modules keeps them.",
                (a, b),
            )
        if not _repeats(candidate, b):
            return "Not localized: the replay does not repeat itself up to that step.", (a, b)
        return None, (a, b)

    @contextmanager
    def _signed_side(self) -> Iterator[Ready]:
        again = ready(*self.signed, self.accelerator, kind=self.runtime, console=self.console)
        with again if self.current else nullcontext(self.opened) as side:
            yield side

    def _run(self, side: Ready, name: str, step: int) -> PhaseTrace:
        self.console.start(f"run: up to step {step}, module by module, {name}")
        record = run_modules(
            side.project,
            self.folder,
            f"modules/{name}",
            step,
            runtime=side.runtime,
            clock=SystemClock(),
            on_line=lambda line: self.console.advance(0, note=line),
        )
        return open_trace(self.folder, [record]).phase(record.name)
