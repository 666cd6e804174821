"""What one source said of a machine, before the sources are put together."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from repro.adapters.cells import printable
from repro.host import (
    AmdDriver,
    CpuFacts,
    Device,
    Link,
    NoAnswer,
    NoAnswerKind,
    Note,
    NvidiaDriver,
    OsFacts,
    Vendor,
)
from repro.userspace import Userspace

__all__ = ["Reading", "refusal", "silent"]

_MAX_SAID = 200


@dataclass(frozen=True, kw_only=True, slots=True)
class Reading:
    """Facts of one source. `Device.id` holds the vendor's raw id here; it leaves salted."""

    source: str
    rank: int = 0
    """Place among the vendor's sources: where two disagree, the lower is believed."""
    nvidia: NvidiaDriver | None = None
    amd: AmdDriver | None = None
    devices: tuple[Device, ...] | None = None
    """Null where the source lists no devices by its nature; empty where it listed none."""
    links: tuple[Link, ...] = ()
    userspace: Userspace | None = None
    cpu: CpuFacts | None = None
    os: OsFacts | None = None
    no_answer: tuple[NoAnswer, ...] = ()
    notes: tuple[Note, ...] = ()


def refusal(
    text: str, table: Iterable[tuple[str, NoAnswerKind]], *, vendor: Vendor, source: str
) -> NoAnswer | None:
    """Find the first sentence of `table`, patterns in order of meaning, that a text holds.

    Returns:
        the kind with the line that holds it, or None where no sentence is there.
    """
    for pattern, kind in table:
        if match := re.search(pattern, text, re.IGNORECASE):
            start = text.rfind("\n", 0, match.start()) + 1
            end = text.find("\n", match.end())
            line = text[start : len(text) if end < 0 else end]
            return NoAnswer(vendor=vendor, source=source, kind=kind, said=_quoted(line))
    return None


def silent(vendor: Vendor, source: str, kind: NoAnswerKind, said: str | None = None) -> Reading:
    """Return the reading of a source that had no answer."""
    answer = NoAnswer(vendor=vendor, source=source, kind=kind, said=_quoted(said or ""))
    return Reading(source=source, no_answer=(answer,))


def _quoted(line: str) -> str | None:
    return printable(line.strip()[:_MAX_SAID]) or None
