"""The boxes of plain `nvidia-smi`, of every column set since driver 346.

The last resort: names are cut, and nothing of the architecture is there.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Literal

from repro.adapters import cells
from repro.adapters.reading import Reading
from repro.host import Device, NvidiaDriver, Partition

__all__ = ["read_table"]

_BANNER = re.compile(
    r"\|\s*NVIDIA-SMI\s+(\S+)\s+(?:Driver|KMD) Version:\s*(\S+)(?:\s+CUDA(?: UMD)? Version:\s*(\S+))?\s*\|"
)
_FIRST_CELL = re.compile(r"([0-9]{1,3})\s+(\S.*?)\s+(\S+)")
_SECOND_CELL = re.compile(r"(\S+)(?:\s+(\S+))?")
_MEMORY = re.compile(r"\S+\s*/\s*([0-9]{1,9}MiB)")
_MIG_CELL = re.compile(r"([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})\s+([0-9]{1,3})")
_LEADING_INTEGER = re.compile(r"([0-9]{1,4})\b.*")
_MODELS = frozenset({"WDDM", "TCC", "MCDM"})


@dataclass(slots=True)
class _Row:
    """One device's lines, each as cells."""

    index: int
    lines: list[list[str]] = field(default_factory=list)

    def cell(self, line: int, column: int) -> str:
        return self.lines[line][column] if line < len(self.lines) else ""


def _cells(line: str) -> list[str] | None:
    """Return the cells of a row that is closed on both sides."""
    body = line.strip()
    if len(body) < 2 or not (body.startswith("|") and body.endswith("|")):
        return None
    return [cell.strip() for cell in body[1:-1].split("|")]


def read_table(text: str, source: str) -> Reading:
    """Read the whole output: banner, box of devices, box of MIG devices."""
    lines = cells.complete_lines(text)
    banner = next((match for line in lines if (match := _BANNER.fullmatch(line.strip()))), None)
    smi, driver, cuda = (cells.version(part) for part in banner.groups()) if banner else (None, None, None)
    rows, has_mig, has_model = _device_rows(lines)
    partitions = _mig_rows(lines)
    devices = tuple(_device(row, partitions, has_mig=has_mig, has_model=has_model) for row in rows)
    return Reading(
        source=source,
        nvidia=NvidiaDriver(version=driver, cuda=cuda, smi_version=smi),
        devices=devices or None,
    )


def _device_rows(lines: list[str]) -> tuple[list[_Row], bool, bool]:
    """Return the rows of the box headed `GPU  Name`, and whether it has MIG and driver model columns."""
    rows: list[_Row] = []
    inside = has_mig = has_model = below_rule = False
    for line in lines:
        body = line.strip()
        if re.match(r"\|\s*GPU\s+Name\s", body):
            inside, has_model = True, "Driver-Model" in body or "TCC/WDDM" in body
        elif inside and body.startswith("|="):
            below_rule = True
        elif inside and not below_rule:
            has_mig = has_mig or "MIG M." in body
        elif below_rule:
            found = _cells(body)
            if found is None:
                if not body.startswith(("+-", "|-")):
                    break
            elif len(found) == 3:
                _take(rows, found)
            else:
                break
    return rows, has_mig, has_model


def _take(rows: list[_Row], found: list[str]) -> None:
    first = _FIRST_CELL.fullmatch(found[0])
    second = _SECOND_CELL.fullmatch(found[1])
    address = second[1] if second else ""
    if first and (cells.pci_address(address) or address in ("N/A", "ERR!")):
        rows.append(_Row(int(first[1]), [found]))
    elif rows:
        rows[-1].lines.append(found)


def _device(row: _Row, partitions: dict[int, list[Partition]], *, has_mig: bool, has_model: bool) -> Device:
    first = _FIRST_CELL.fullmatch(row.cell(0, 0))
    assert first is not None
    name, start = _name(first[2])
    memory = _MEMORY.fullmatch(row.cell(1, 1))
    persistence = None if has_model else cells.switch(first[3])
    return Device(
        vendor="nvidia",
        index=row.index,
        name=name,
        name_start=start,
        memory_mib=cells.megabytes(memory[1]) if memory else None,
        pci=cells.pci_address(row.cell(0, 1).split(" ")[0]),
        state=_state(row, first[2]),
        mig=cells.switch(row.cell(2, 2)) if has_mig else None,
        driver_model=first[3] if has_model and first[3] in _MODELS else None,
        persistence=persistence,
        partitions=tuple(partitions.get(row.index, ())),
    )


def _name(cell: str) -> tuple[str | None, str | None]:
    """Return the whole name, or how a cut name begins."""
    if cell.endswith("..."):
        return None, cells.known(cell.removesuffix("..."))
    return cells.known(cell), None


def _state(row: _Row, name: str) -> Literal["ok", "error"]:
    """Return `error` for a device that has no name to give, or several readings of `ERR!`."""
    complaints = sum(cell.count("ERR!") for line in row.lines for cell in line)
    return "error" if cells.is_error(name) or complaints > 1 else "ok"


def _mig_rows(lines: list[str]) -> dict[int, list[Partition]]:
    """Return MIG devices by the index of their GPU. The table has no profiles."""
    result: dict[int, list[Partition]] = {}
    inside = False
    for line in lines:
        body = line.strip()
        if body.startswith("| MIG devices:"):
            inside = True
        elif inside and not body.startswith(("|", "+")):
            break
        elif (
            inside and (found := _cells(body)) and len(found) >= 3 and (ids := _MIG_CELL.fullmatch(found[0]))
        ):
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
