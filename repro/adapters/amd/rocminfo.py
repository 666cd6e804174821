"""`rocminfo`: the agents that the HSA runtime sees, which is what HIP will use."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.amd.fold import Row, fold
from repro.adapters.reading import Reading, silent
from repro.host import AmdDriver, Device, OsFacts

__all__ = ["read_rocminfo"]

_AGENT = re.compile(r"Agent [0-9]{1,3}")
_ENTRY = re.compile(r"([A-Za-z][A-Za-z .()/]{0,40}?):(.*)")
_ISA = re.compile(r"amdgcn-amd-amdhsa--(gfx[0-9a-f]{3,5})((?::[a-z]+[+-])*|(?:\+[a-z-]+)*)")
"""Features as `:sramecc+:xnack-`; before ROCm 4 as `+sram-ecc`, those that are on."""
_COUNT = re.compile(r"([0-9]{1,9})(?:\(0x[0-9a-fA-F]+\))?(?: (KB))?")
_MODULE = re.compile(r"ROCk module version (\S+) is loaded")


@dataclass(slots=True)
class _Agent:
    """First value of each entry: those of the agent itself come before those of its pools and ISAs."""

    entries: dict[str, str] = field(default_factory=dict)
    isa: re.Match[str] | None = None
    pool_kib: int | None = None
    in_coarse_pool: bool = False


def read_rocminfo(text: str, source: str) -> Reading:
    """Read the whole output, or any lines picked from it that still name device types."""
    lines = cells.complete_lines(text)
    agents = _agents(lines)
    gpus = [agent for agent in agents if agent.entries.get("Device Type") == "GPU"]
    module = next((match for line in lines if (match := _MODULE.fullmatch(line.strip()))), None)
    head = next(
        (
            line.partition(":")[2]
            for line in lines
            if line.startswith(("Runtime Version:", "  Runtime Version:"))
        ),
        None,
    )
    number, origin = values.driver(module[1] if module else None)
    wsl = any("WSL environment detected" in line for line in lines)
    if agents and not gpus:
        return silent("amd", source, "no-devices", "rocminfo lists no agent that is a GPU")
    return Reading(
        source=source,
        amd=AmdDriver(version=number, origin=origin, hsa_runtime=cells.version(head)),
        devices=fold(_row(agent, index) for index, agent in enumerate(gpus)) if gpus else None,
        os=OsFacts(wsl=True) if wsl else None,
    )


def _agents(lines: list[str]) -> list[_Agent]:
    agents: list[_Agent] = []
    headed = any(_AGENT.fullmatch(line.strip()) for line in lines)
    for line in lines:
        if _AGENT.fullmatch(line.strip()):
            agents.append(_Agent())
            continue
        match = _ENTRY.fullmatch(line.strip())
        if match is None:
            continue
        key, value = match[1], match[2].strip()
        if not headed and (not agents or key in agents[-1].entries) and key in ("Name", "Device Type"):
            agents.append(_Agent())
        if agents:
            _take(agents[-1], key, value)
    return agents


def _take(agent: _Agent, key: str, value: str) -> None:
    agent.entries.setdefault(key, value)
    if key == "Name" and agent.isa is None:
        agent.isa = _ISA.fullmatch(value)
    elif key == "Segment":
        agent.in_coarse_pool = "GLOBAL" in value and "COARSE" in value
    elif key == "Size" and agent.in_coarse_pool and agent.pool_kib is None:
        size = _COUNT.fullmatch(value)
        agent.pool_kib = int(size[1]) if size and size[2] else None


def _row(agent: _Agent, index: int) -> Row:
    entries = agent.entries
    units, chip = _count(entries, "Compute Unit"), _count(entries, "Chip ID")
    place, domain = _count(entries, "BDFID"), _count(entries, "Domain")
    device = Device(
        vendor="amd",
        index=index,
        name=values.name(entries.get("Marketing Name")),
        arch=agent.isa[1] if agent.isa else values.arch(entries.get("Name")),
        features=_features(agent.isa[2]) if agent.isa else None,
        memory_mib=None if agent.pool_kib is None else agent.pool_kib >> 10,
        compute_units=units,
        pci=None if domain is None or place is None else values.address(domain, place),
        pci_device_id=f"0x{chip:04x}" if chip and chip < 1 << 16 else None,
        id=values.unique_id(entries.get("Uuid")),
    )
    if place is None:
        return Row(device)
    return Row(device, values.partition_of(place), values.address(domain or 0, place).rpartition(".")[0])


def _features(text: str) -> tuple[str, ...]:
    if text.startswith("+"):
        return tuple(f"{part.replace('-', '')}+" for part in text[1:].split("+"))
    return tuple(part for part in text.split(":") if part)


def _count(entries: dict[str, str], key: str) -> int | None:
    match = _COUNT.fullmatch(entries.get(key, ""))
    return int(match[1]) if match else None
