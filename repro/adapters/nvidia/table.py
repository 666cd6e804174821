"""The boxes of plain `nvidia-smi`, of every column set since driver 346.

The last resort: names are cut, and nothing of the architecture is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from repro.adapters import cells
from repro.adapters.reading import Reading
from repro.host import Device, NvidiaDriver, Partition

__all__ = ["read_table"]

_BANNER = re.compile(
    r"\|\s*NVIDIA-SMI\s+(\S+)\s+(?:Driver|KMD) Version:\s*(\S+)(?:\s+CUDA(?: UMD)? Version:\s*(\S+))?\s*\|"
)
_HEAD = re.compile(r"\|\s*GPU\s+Name\s+(Persistence-M|Driver-Model|TCC/WDDM)?")
_FIRST_CELL = re.compile(r"[0-9]{1,3}\s+\S.*")
_SECOND_CELL = re.compile(r"(\S+)(?:\s+(\S+))?")
_MEMORY = re.compile(r"\S+\s*/\s*([0-9]{1,9}MiB)")
_MIG_CELL = re.compile(r"([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})")
_LEADING_INTEGER = re.compile(r"([0-9]{1,4})\b.*")
_MODELS = frozenset({"WDDM", "TCC", "MCDM"})


@dataclass(slots=True)
class _Box:
    """The box of devices: what its columns are, and each device's lines as cells."""

    label: str | None = None
    """Heading of what stands right of the name, if anything does."""
    has_mig: bool = False
    rows: list[list[list[str]]] = field(default_factory=list)


def _cells(line: str) -> list[str] | None:
    """Return the cells of a row that is closed on both sides."""
    if len(line) < 2 or not (line.startswith("|") and line.endswith("|")):
        return None
    return [cell.strip() for cell in line[1:-1].split("|")]


def read_table(text: str, source: str) -> Reading:
    """Read the whole output: banner, box of devices, box of MIG devices."""
    lines = [line.strip() for line in cells.complete_lines(text)]
    banner = next((match for line in lines if (match := _BANNER.fullmatch(line))), None)
    smi, driver, cuda = (cells.version(part) for part in banner.groups()) if banner else (None, None, None)
    box = _device_box(lines)
    partitions = _mig_rows(lines)
    return Reading(
        source=source,
        nvidia=NvidiaDriver(version=driver, cuda=cuda, smi_version=smi),
        devices=tuple(_device(row, box, partitions) for row in box.rows) or None,
    )


def _device_box(lines: list[str]) -> _Box:
    """Return the box headed `GPU  Name`, which ends with the first line that has not its columns."""
    box = _Box()
    inside = below_rule = False
    for line in lines:
        found = _cells(line)
        if match := _HEAD.match(line):
            inside, box.label = True, match[1]
        elif inside and line.startswith("|="):
            below_rule = True
        elif inside and not below_rule:
            box.has_mig = box.has_mig or "MIG M." in line
        elif below_rule and found and len(found) == 3:
            _take(box, found)
        elif below_rule and not line.startswith(("+-", "|-")):
            break
    return box


def _take(box: _Box, found: list[str]) -> None:
    address = _SECOND_CELL.fullmatch(found[1])
    starts = address is not None and (cells.pci_address(address[1]) or address[1] in ("N/A", "ERR!"))
    if starts and _FIRST_CELL.fullmatch(found[0]):
        box.rows.append([found])
    elif box.rows:
        box.rows[-1].append(found)


def _device(row: list[list[str]], box: _Box, partitions: dict[int, list[Partition]]) -> Device:
    def cell(line: int, column: int) -> str:
        return row[line][column] if line < len(row) else ""

    index, rest = cell(0, 0).split(None, 1)
    text, mode = (rest, "") if box.label is None else _parted(rest)
    name, start = _name(text)
    memory = _MEMORY.fullmatch(cell(1, 1))
    complaints = sum(one.count("ERR!") for line in row for one in line)
    return Device(
        vendor="nvidia",
        index=int(index),
        name=name,
        name_start=start,
        memory_mib=cells.megabytes(memory[1]) if memory else None,
        pci=cells.pci_address(cell(0, 1).split()[0]),
        state="error" if cells.is_error(text) or complaints > 1 else "ok",
        mig=cells.switch(cell(2, 2)) if box.has_mig else None,
        driver_model=mode if mode in _MODELS else None,
        persistence=cells.switch(mode) if box.label == "Persistence-M" else None,
        partitions=tuple(partitions.get(int(index), ())),
    )


def _parted(text: str) -> tuple[str, str]:
    """Return the name and the last word, which stands below the label."""
    name, _, last = text.rpartition(" ")
    return name.strip(), last


def _name(cell: str) -> tuple[str | None, str | None]:
    """Return the whole name, or how a cut name begins."""
    if cell.endswith("..."):
        return None, cells.known(cell.removesuffix("..."))
    return cells.known(cell), None


def _mig_rows(lines: list[str]) -> dict[int, list[Partition]]:
    """Return MIG devices by the index of their GPU. The table has no profiles."""
    result: dict[int, list[Partition]] = {}
    inside = False
    for line in lines:
        found = _cells(line) or []
        ids = _MIG_CELL.fullmatch(found[0]) if len(found) >= 3 else None
        if line.startswith("| MIG devices:"):
            inside = True
        elif inside and not line.startswith(("|", "+")):
            break
        elif inside and ids:
            gpu, instance, compute, index = (int(part) for part in ids.groups())
            memory, units = _MEMORY.fullmatch(found[1]), _LEADING_INTEGER.fullmatch(found[2])
            result.setdefault(gpu, []).append(
                Partition(
                    kind="mig",
                    index=index,
                    memory_mib=cells.megabytes(memory[1]) if memory else None,
                    compute_units=int(units[1]) if units else None,
                    gpu_instance=instance,
                    compute_instance=compute,
                )
            )
    return result
