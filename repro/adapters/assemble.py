"""Put what the sources said together: first known value wins, and every disagreement is kept.

Pure. Sources are believed in the order of their rank; a device of one source is
that of another by PCI address, else by unique id, else by index.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

from repro.adapters.nvidia.branches import is_newer, native_cuda
from repro.adapters.reading import Reading
from repro.adapters.scrub import Scrubber
from repro.host import (
    AmdDriver,
    Claim,
    Conflict,
    CpuFacts,
    Device,
    EngineFacts,
    Evidence,
    HostDriver,
    HostFacts,
    Note,
    NvidiaDriver,
    OsFacts,
    Partition,
    Vendor,
)
from repro.noun import Noun
from repro.userspace import Userspace

__all__ = ["assemble"]

_N = TypeVar("_N", bound=Noun)
_Said = list[tuple[str, _N]]
"""What each source says of one thing, the most believed first."""

_DENIALS = frozenset({"no-devices", "driver-not-loaded"})
"""Kinds of no answer that another source's devices contradict."""

_APART = frozenset({"vendor", "index", "name_start", "partitions", "id"})
"""Fields in which sources may differ without disagreeing, or that are put together on their own."""


def assemble(
    readings: Iterable[Reading],
    *,
    scrubber: Scrubber | None = None,
    engine: EngineFacts | None = None,
    evidence: Sequence[Evidence] = (),
    overrides: Mapping[str, str] | None = None,
) -> HostFacts:
    """Return the facts of one machine.

    Args:
        readings: of any number of sources, of any vendors.
        scrubber: salts the ids; that with the public salt where none is given.
        overrides: variables set here that change what a tool or runtime reports.
    """
    ordered = sorted(readings, key=lambda reading: reading.rank)
    conflicts: list[Conflict] = []

    def merged(fact: str, kind: type[_N], said: Iterable[tuple[str, _N | None]]) -> _N | None:
        present = [(source, value) for source, value in said if value is not None]
        return _merge(fact, kind, present, conflicts) if present else None

    nvidia = merged("driver.nvidia", NvidiaDriver, ((reading.source, reading.nvidia) for reading in ordered))
    amd = merged("driver.amd", AmdDriver, ((reading.source, reading.amd) for reading in ordered))
    if nvidia is not None:
        nvidia = nvidia.model_copy(update={"cuda_native": native_cuda(nvidia.version)})
    devices = tuple(
        device
        for vendor in ("nvidia", "amd")
        for device in _devices(vendor, ordered, scrubber or Scrubber(), conflicts)
    )
    facts = HostFacts(
        os=merged("os", OsFacts, ((reading.source, reading.os) for reading in ordered)) or OsFacts(),
        cpu=merged("cpu", CpuFacts, ((reading.source, reading.cpu) for reading in ordered)) or CpuFacts(),
        driver=HostDriver(
            nvidia=None if nvidia == NvidiaDriver() else nvidia, amd=None if amd == AmdDriver() else amd
        ),
        userspace=merged("userspace", Userspace, ((reading.source, reading.userspace) for reading in ordered))
        or Userspace(),
        devices=devices,
        links=next((reading.links for reading in ordered if reading.links), ()),
        engine=engine,
        overrides=dict(overrides or {}),
        no_answer=tuple(answer for reading in ordered for answer in reading.no_answer),
        conflicts=tuple(conflicts),
        evidence=tuple(evidence),
    )
    notes = (*(note for reading in ordered for note in reading.notes), *_notes(facts))
    return facts.model_copy(update={"notes": notes})


def _merge(fact: str, kind: type[_N], said: _Said[_N], conflicts: list[Conflict]) -> _N:
    """Return one noun of the first known value of each field; note where later sources say something else."""
    chosen: dict[str, Any] = {}
    for name in kind.model_fields:
        known = [(source, value) for source, noun in said if (value := getattr(noun, name)) is not None]
        if not known:
            continue
        chosen[name] = known[0][1]
        if name not in _APART and any(value != known[0][1] for _, value in known):
            claims = tuple(Claim(source=source, value=_shown(value)) for source, value in known)
            conflicts.append(Conflict(fact=f"{fact}.{name}", claims=claims))
    return said[0][1].model_copy(update=chosen)


def _shown(value: Any) -> str:
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _devices(
    vendor: Vendor, ordered: Sequence[Reading], scrubber: Scrubber, conflicts: list[Conflict]
) -> list[Device]:
    groups: list[_Said[Device]] = []
    counts: list[Claim] = []
    for reading in ordered:
        listed = [device for device in reading.devices or () if device.vendor == vendor]
        denied = [
            answer.kind for answer in reading.no_answer if answer.vendor == vendor and answer.kind in _DENIALS
        ]
        if listed or denied:
            counts.append(Claim(source=reading.source, value=str(len(listed)) if listed else denied[0]))
        _join(groups, reading.source, listed)
    if groups and len({claim.value for claim in counts}) > 1:
        conflicts.append(Conflict(fact=f"devices of {vendor}", claims=tuple(counts)))
    return [_device(group, scrubber, conflicts) for group in groups]


def _join(groups: list[_Said[Device]], source: str, listed: Sequence[Device]) -> None:
    """Add a source's devices to the groups they belong to; each group takes one of them."""
    taken: set[int] = set()
    for device in listed:
        place = _home(groups, taken, device)
        if place is None:
            place = len(groups)
            groups.append([])
        taken.add(place)
        groups[place].append((source, device))


def _home(groups: list[_Said[Device]], taken: set[int], device: Device) -> int | None:
    for belongs in (_by_pci, _by_id, _by_index):
        for place, group in enumerate(groups):
            if place not in taken and belongs(device, group):
                return place
    return None


def _by_pci(device: Device, group: _Said[Device]) -> bool:
    return device.pci is not None and any(other.pci == device.pci for _, other in group)


def _by_id(device: Device, group: _Said[Device]) -> bool:
    return device.id is not None and any(
        (other.id or "").casefold() == device.id.casefold() for _, other in group
    )


def _by_index(device: Device, group: _Said[Device]) -> bool:
    """Index counts only where address and id are not known of both: each tool has its own order."""
    if device.pci and any(other.pci for _, other in group):
        return False
    if device.id and any(other.id for _, other in group):
        return False
    return device.index is not None and any(other.index == device.index for _, other in group)


def _device(group: _Said[Device], scrubber: Scrubber, conflicts: list[Conflict]) -> Device:
    first = group[0][1]
    place = next((device.pci for _, device in group if device.pci), str(first.index))
    fact = f"{first.vendor} device {place}"
    merged = _merge(fact, Device, group, conflicts)
    starts = [(source, device.name_start) for source, device in group if device.name_start]
    if merged.name and any(not merged.name.startswith(start) for _, start in starts):
        claims = (
            Claim(source=group[0][0], value=merged.name),
            *(Claim(source=s, value=f"{n}…") for s, n in starts),
        )
        conflicts.append(Conflict(fact=f"{fact}.name", claims=claims))
    update: dict[str, Any] = {
        "id": scrubber.stable_id(merged.id) if merged.id else None,
        "partitions": _partitions(fact, group, scrubber, conflicts),
    }
    if merged.name:
        update["name_start"] = None
    if any(device.state == "error" for _, device in group):
        update["state"] = "error"
    return merged.model_copy(update=update)


def _partitions(
    fact: str, group: _Said[Device], scrubber: Scrubber, conflicts: list[Conflict]
) -> tuple[Partition, ...]:
    """Put partitions together by their index, which every source that lists them gives."""
    said: dict[int | None, _Said[Partition]] = {}
    for source, device in group:
        for part in device.partitions:
            said.setdefault(part.index, []).append((source, part))
    counts = [(source, len(device.partitions)) for source, device in group if device.partitions]
    if len({count for _, count in counts}) > 1:
        claims = tuple(Claim(source=source, value=str(count)) for source, count in counts)
        conflicts.append(Conflict(fact=f"{fact}.partitions", claims=claims))
    merged = [
        _merge(f"{fact}.partition {index}", Partition, parts, conflicts) for index, parts in said.items()
    ]
    return tuple(
        part.model_copy(update={"id": scrubber.stable_id(part.id) if part.id else None}) for part in merged
    )


def _notes(facts: HostFacts) -> list[Note]:
    """Return what follows from the facts as a whole."""
    notes = [
        Note(kind="gpu-error-state", message=f"GPU {_place(device)} is in an error state")
        for device in facts.devices
        if device.state == "error"
    ]
    nvidia = facts.driver.nvidia or NvidiaDriver()
    driver, cuda, native, tool = nvidia.version, nvidia.cuda, nvidia.cuda_native, nvidia.smi_version
    if facts.devices_of("nvidia") and driver is None:
        notes.append(
            Note(kind="driver-version-absent", message="no source names the NVIDIA driver's version")
        )
    if cuda and native and is_newer(cuda, native):
        message = (
            f"CUDA {cuda} is newer than the {native} of driver {driver}: "
            "a compat layer was loaded, and outside of this container it will be another version"
        )
        notes.append(Note(kind="cuda-forward-compat", message=message))
    if tool and driver and tool != driver:
        message = f"nvidia-smi is {tool} and the driver {driver}, as under WSL"
        notes.append(Note(kind="tool-differs-from-driver", message=message))
    if override := facts.overrides.get("HSA_OVERRIDE_GFX_VERSION"):
        message = (
            f"HSA_OVERRIDE_GFX_VERSION is {override}: programs see another target than the kernel states"
        )
        notes.append(Note(kind="gfx-override", message=message))
    return notes


def _place(device: Device) -> str:
    return f"{device.index} ({device.pci})" if device.pci else f"{device.index}"
