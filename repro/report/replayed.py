"""A replay as it was kept: what a report can say of it."""

from __future__ import annotations

from dataclasses import dataclass

from repro.host import HostFacts
from repro.manifest import PhaseRecord
from repro.trace import Trace
from repro.verdict import Verdict

__all__ = ["Replayed"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A verdict, and whatever was kept of the replay that it judges."""

    name: str
    """What a person calls it, such as the name of its folder."""
    verdict: Verdict
    phases: tuple[PhaseRecord, ...] = ()
    trace: Trace | None = None
    host: HostFacts | None = None
    """The machine it ran on and the userspace it loaded; None where that was not kept."""
