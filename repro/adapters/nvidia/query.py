"""`nvidia-smi --query-gpu=… --format=csv`, with any columns in any order."""

from __future__ import annotations

import csv
import re

from repro.adapters import cells
from repro.adapters.nvidia import values
from repro.adapters.reading import Reading
from repro.host import Device, NvidiaDriver

__all__ = ["COLUMNS", "looks_like_query", "read_query"]

COLUMNS = "index,name,uuid,pci.bus_id,driver_version,memory.total,compute_cap,mig.mode.current"
"""What the probe asks for: every column is known to drivers since 510."""

_UNIT = re.compile(r"\s*\[([^\]]*)\]\s*\Z")
_CAPABILITY = re.compile(r"([0-9]{1,2})\.([0-9]{1,2})")
_TELLING = frozenset(
    {"index", "name", "gpu_name", "uuid", "gpu_uuid", "driver_version", "pci.bus_id", "gpu_bus_id"}
)


def _header(line: str) -> list[tuple[str, str | None]]:
    names = []
    for cell in line.split(","):
        unit = _UNIT.search(cell)
        names.append((_UNIT.sub("", cell).strip().casefold(), unit[1] if unit else None))
    return names


def looks_like_query(line: str) -> bool:
    """Say whether a line is the header of a query's answer."""
    names = {name for name, _ in _header(line)}
    return bool(names & _TELLING) and all(re.fullmatch(r"[a-z0-9_.]+", name) for name in names)


def read_query(text: str, source: str) -> Reading:
    """Read the header and one row a device. A row with another number of cells is left out."""
    lines = [line for line in cells.complete_lines(text) if line.strip() and "\0" not in line]
    start = next((place for place, line in enumerate(lines) if looks_like_query(line)), None)
    if start is None:
        return Reading(source=source)
    header = _header(lines[start])
    rows = []
    for line in lines[start + 1 :]:
        found = _row(line)
        if len(found) == len(header):
            rows.append(dict(zip((name for name, _ in header), found, strict=True)))
    units = {name: unit for name, unit in header if unit}
    drivers = {cells.version(row.get("kmd_version") or row.get("driver_version")) for row in rows}
    driver = drivers.pop() if len(drivers) == 1 else None
    return Reading(
        source=source,
        nvidia=NvidiaDriver(version=driver),
        devices=tuple(_device(row, units) for row in rows),
    )


def _row(line: str) -> list[str]:
    try:
        return next(csv.reader([line], skipinitialspace=True), [])
    except csv.Error:
        return []


def _device(row: dict[str, str], units: dict[str, str]) -> Device:
    def cell(*names: str) -> str | None:
        return next((value for name in names if (value := cells.known(row.get(name))) is not None), None)

    capability = _CAPABILITY.fullmatch(cell("compute_cap") or "")
    return Device(
        vendor="nvidia",
        index=cells.integer(cell("index")),
        name=cell("name", "gpu_name"),
        arch=f"sm_{capability[1]}{capability[2]}" if capability else None,
        memory_mib=cells.megabytes(cell("memory.total"), units.get("memory.total", "MiB")),
        pci=cells.pci_address(cell("pci.bus_id", "gpu_bus_id")),
        pci_device_id=values.device_id(cell("pci.device_id")),
        id=cell("uuid", "gpu_uuid"),
        state=values.state_of(row.get("name", row.get("gpu_name"))),
        mig=cells.switch(cell("mig.mode.current")),
        ecc=cells.switch(cell("ecc.mode.current")),
        driver_model=cell("driver_model.current"),
        vbios=values.vbios(cell("vbios_version")),
        persistence=cells.switch(cell("persistence_mode")),
        compute_mode=cell("compute_mode"),
        power_limit_mw=cells.milliwatts(cell("power.limit", "enforced.power.limit")),
        application_graphics_mhz=cells.integer(cell("clocks.applications.graphics")),
        application_memory_mhz=cells.integer(cell("clocks.applications.memory")),
        max_graphics_mhz=cells.integer(cell("clocks.max.graphics")),
        max_memory_mhz=cells.integer(cell("clocks.max.memory")),
        pcie_generation=cells.integer(cell("pcie.link.gen.max")),
        pcie_width=cells.integer(cell("pcie.link.width.max")),
    )
