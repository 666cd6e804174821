"""The boxes that plain `amd-smi` prints since ROCm 7: last resort, with cut names and versions."""

from __future__ import annotations

import re

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.amd.fold import Row, fold
from repro.adapters.reading import Reading
from repro.host import AmdDriver, Device

__all__ = ["read_table"]

_TOOL = re.compile(r"\|\s*AMD-SMI\s+(\S+)\s.*\|")
_PART = re.compile(r"(amdgpu|ROCm) version:\s*(\S+)", re.IGNORECASE)
_FIRST = re.compile(r"\|\s*(\S+)\s+(\S.*?)\s*\|[^|]*\|")
_SECOND = re.compile(r"\|\s*([0-9]{1,3})\s+\S+\s+\S+\s+(\S+)\s*\|([^|]*)\|")
_MEMORY = re.compile(r"[0-9]+/([0-9]{1,9} MB)")
_MODE = re.compile(r"([A-Z]{3})/(NPS[0-9])")
_ROOM = 8
"""Where several versions share a line, each is cut to this many characters."""


def read_table(text: str, source: str) -> Reading:
    """Read banner and devices."""
    lines = [line.strip() for line in cells.complete_lines(text)]
    tool: str | None = None
    versions: dict[str, str] = {}
    rows: list[Row] = []
    address: re.Match[str] | None = None
    for line in lines:
        if match := _TOOL.fullmatch(line):
            tool = values.release(match[1])
        if line.endswith("|"):
            parts = _PART.findall(line)
            crowded = len(parts) > 1
            versions |= {key.casefold(): value for key, value in parts if not (crowded and _is_cut(value))}
        if (match := _FIRST.fullmatch(line)) and cells.pci_address(match[1]):
            address = match
        elif address and (match := _SECOND.fullmatch(line)):
            rows.append(_row(address, match))
            address = None
    number, origin = values.driver(versions.get("amdgpu"))
    return Reading(
        source=source,
        amd=AmdDriver(
            version=number, origin=origin, rocm=values.release(versions.get("rocm")), smi_tool=tool
        ),
        devices=fold(rows) if rows else None,
    )


def _is_cut(value: str) -> bool:
    return len(value) >= _ROOM and not value.startswith("Linux")


def _row(first: re.Match[str], second: re.Match[str]) -> Row:
    memory, mode = _MEMORY.search(second[3]), _MODE.fullmatch(second[2])
    compute = mode[1] if mode and values.COMPUTE_PARTITION.fullmatch(mode[1]) else None
    name = None if first[2].startswith("...") else values.name(first[2])
    return Row.at(
        Device(
            vendor="amd",
            index=int(second[1]),
            name=name,
            memory_mib=cells.megabytes(memory[1]) if memory else None,
            pci=cells.pci_address(first[1]),
            compute_partition=compute,
            memory_partition=mode[2] if mode else None,
        ),
        None,
    )
