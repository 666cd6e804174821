"""Sections of tables: cost, environment, packages, image, inputs, checks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any

from repro.attest.outcome import Verification
from repro.host import HostFacts
from repro.lock import Lock
from repro.manifest import Manifest, PhaseRecord
from repro.measurement import measure_phase
from repro.report.markup import Html, join, table, tag
from repro.report.measurement import measurement_lines
from repro.report.page.curves import SIGNED, Read
from repro.report.replayed import Replayed
from repro.report.verification import MARKS
from repro.report.words import count, duration, short, size
from repro.trace import Trace

__all__ = ["checks_section", "cost_section", "environment_section", "image_section", "packages_section"]

_MOST = 2000
"""Rows that a table holds; a run folder may name as many things as it likes."""

_NOT_SHOWN = ("evidence", "no_answer", "userspace.packages")


def _bar(part: float, *, class_: str = "bar") -> Html:
    return tag("i", class_=class_, style=f"width:{max(0.0, min(1.0, part)) * 100:.1f}%")


def _memory(value: int | None) -> str:
    return "unknown" if value is None else size(value)


def cost_section(manifest: Manifest, replays: Sequence[Replayed], read: Read, trace: Trace | None) -> Html:
    """Time and memory per phase and run; the signed run's in detail."""
    phases: list[tuple[str | None, PhaseRecord]] = [(None, phase) for phase in manifest.ordinary]
    phases += [(replay.name, phase) for replay in replays for phase in replay.phases]
    longest = max((phase.milliseconds for _, phase in phases), default=0) or 1
    rows = [_cost_row(run, phase, read, longest) for run, phase in phases[:_MOST]]
    head = ("phase", "run", "time", "per step", "waiting for data", "recorder", "memory", "on the device")
    note = "Memory is the largest of any rank. Waiting and recorder are shares of the time of all steps."
    parts = [table(head, rows), tag("p", note, class_="note")]
    for measured in [measure_phase(phase) for phase in trace.phases] if trace else []:
        parts += [tag("h3", measured.phase), *(tag("p", line) for line in measurement_lines(measured))]
    return join(*parts)


def _cost_row(run: str | None, phase: PhaseRecord, read: Read, longest: int) -> tuple[str, ...]:
    series = read.get((run, phase.name))
    time = join(duration(phase.milliseconds), _bar(phase.milliseconds / longest))
    if series is None:
        return (phase.name, run or SIGNED, time, *["unknown"] * 5)
    cost = series.cost
    if not cost.timed_steps or not cost.step_seconds:
        shares = ["unknown"] * 3
    else:
        shares = [
            f"{cost.step_seconds / cost.timed_steps * 1000:.3g} ms",
            f"{cost.data_seconds / cost.step_seconds:.1%}",
            f"{cost.recorder_seconds / cost.step_seconds:.1%}",
        ]
    return (phase.name, run or SIGNED, time, *shares, _memory(cost.memory_bytes), _memory(cost.device_bytes))


def _flat(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Leaves of a tree by dotted name; unknown ones are left out."""
    if value is None or name in _NOT_SHOWN:
        return
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from _flat(inner, f"{name}.{key}" if name else key)
    elif isinstance(value, list) and any(isinstance(inner, dict) for inner in value):
        for index, inner in enumerate(value):
            yield from _flat(inner, f"{name}.{index}")
    elif isinstance(value, list):
        yield name, " ".join(str(inner) for inner in value)
    else:
        yield name, str(value).lower() if isinstance(value, bool) else str(value)


def _facts(host: HostFacts | None) -> dict[str, str]:
    return dict(islice(_flat(host.tree()), _MOST)) if host else {}


def _versions(host: HostFacts | None) -> dict[str, str]:
    return dict((host.userspace.packages if host else None) or {})


def _differing(signed: dict[str, str], other: dict[str, str]) -> list[tuple[str, str, str]]:
    names = sorted(signed.keys() | other.keys())
    rows = ((name, signed.get(name, "unknown"), other.get(name, "unknown")) for name in names)
    return [(name, a, b) for name, a, b in rows if a != b][:_MOST]


def _compared(manifest: Manifest, replay: Replayed) -> Iterator[Html]:
    if replay.host is None:
        yield tag("p", "What machine it ran on was not kept.")
        return
    head = ("fact", "signed", "replay")
    for what, read in (("fact of the environment", _facts), ("package", _versions)):
        rows = _differing(read(manifest.host), read(replay.host))
        told = (
            f"{count(len(rows), what)} differ{'s' if len(rows) == 1 else ''}"
            if rows
            else f"No {what} differs"
        )
        yield tag("p", f"{told}.".replace("fact of the environments", "facts of the environment"))
        if rows:
            yield table((what.split()[0], *head[1:]), rows)


def environment_section(manifest: Manifest, replays: Sequence[Replayed]) -> Html:
    """What differs, replay by replay; then everything that is known of the signed run's machine."""
    parts: list[Html] = []
    for replay in replays:
        parts += [tag("h3", replay.name), *_compared(manifest, replay)]
    rows: list[tuple[str, ...]] = [(name, value) for name, value in _facts(manifest.host).items()]
    rows += [(f"variable {name}", value) for name, value in islice(manifest.environment.items(), _MOST)]
    known = tag("summary", f"Everything known of the signed run's machine ({count(len(rows), 'fact')})")
    return join(*parts, tag("details", known, table((), rows)))


def packages_section(manifest: Manifest, lock: Lock | None) -> Html:
    """The wheels of the lock, else the versions that the run saw."""
    locked = lock.accelerators.get(manifest.accelerator) if lock else None
    if locked is None:
        versions = _versions(manifest.host)
        told = count(len(versions), "package") if versions else "Packages are unknown"
        listed = table(("package", "version"), list(islice(versions.items(), _MOST)))
        return join(
            tag("p", f"{told}."), tag("details", tag("summary", "List"), listed) if versions else None
        )
    files = locked.packages.files
    rows = [
        (file.name, file.version, size(file.size), "asked for" if file.requested else "", short(file.digest))
        for file in files[:_MOST]
    ]
    total = size(sum(file.size for file in files))
    asked = sum(file.requested for file in files)
    platform = f"Python {locked.packages.platform.python}, {locked.packages.platform.architecture}"
    return join(
        tag(
            "p",
            f"{count(len(files), 'wheel')}, {total}, {asked} asked for by name; {platform}.",
        ),
        tag("details", tag("summary", "List"), table(("package", "version", "size", "", "sha256"), rows)),
    )


def image_section(manifest: Manifest) -> Html:
    """Layers with their sizes, those of the base first."""
    record = manifest.image
    if record is None:
        return tag(
            "p", "There was no image: the run was on the host, in a virtual environment made from the lock."
        )
    identity = record.identity
    largest = max(identity.layer_sizes, default=0) or 1
    rows: list[tuple[str, ...]] = []
    for index, (diff_id, num_bytes) in enumerate(zip(identity.diff_ids, identity.layer_sizes, strict=False)):
        bar = join(size(num_bytes), _bar(num_bytes / largest))
        rows.append((str(index + 1), "base" if index < record.base_layers else "ours", bar, short(diff_id)))
    platform, engine = (
        f"{identity.os}/{identity.architecture}",
        f"{record.builder.engine} {record.builder.version}",
    )
    return join(
        tag(
            "p",
            f"{platform}, {size(identity.size)}, built by {engine}, rules {record.rules}.",
        ),
        table(("layer", "of", "size", "sha256"), rows[:_MOST]),
        tag("p", "config ", tag("code", identity.config_digest), class_="note"),
        tag("p", "manifest ", tag("code", identity.manifest_digest), class_="note"),
    )


def checks_section(verification: Verification | None) -> Html:
    """The check list, who signed, and who else replayed."""
    if verification is None:
        return tag(
            "p", "Nobody checked this folder for this page. `repro verify` does, and `repro report --trust`."
        )
    rows: list[tuple[str, ...]] = [
        (
            tag(
                "span",
                MARKS[check.state] if check.wanted else "–",
                class_=check.state if check.wanted else "idle",
            ),
            check.name,
            join(check.detail, tag("code", check.code) if check.code else None),
        )
        for check in verification.checks[:_MOST]
    ]
    rows += [("–", "warning", warning) for warning in verification.warnings[:_MOST]]
    rows += [("–", "unsigned", name) for name in verification.unsigned[:20]]
    parts = [table(("", "check", "found"), rows, class_="checks")]
    if verification.replays:
        said: list[tuple[str, ...]] = [
            (
                one.signature.principal or one.signature.bundle,
                one.result or "unknown",
                "counts" if one.counts else "does not count",
                one.reason,
            )
            for one in verification.replays[:_MOST]
        ]
        parts += [tag("h3", "Signed replays"), table(("who", "result", "", "why"), said)]
    return join(*parts)
