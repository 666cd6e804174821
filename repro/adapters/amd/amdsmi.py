"""`amd-smi static`, `list`, `partition` and `version`, as text and as JSON, ROCm 5.7 to 7.

Both forms hold one tree; JSON names and text headings differ in case alone. Since
ROCm 7 the list of devices lies below `gpu_data`.
"""

from __future__ import annotations

import json
import re
from typing import Any

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.amd.fold import Row, fold
from repro.adapters.reading import Reading, silent
from repro.host import AmdDriver, Device

__all__ = ["read_json", "read_text", "read_versions"]

_VERSION_PART = re.compile(
    r"(AMDSMI Tool|AMDSMI Library version|ROCm version|amdgpu version):\s*([^|\n]*?)\s*(?=\||\n)",
    re.IGNORECASE,
)
_GPU = re.compile(r"GPU: ([0-9]{1,3})")
_PARTITION_HEAD = re.compile(r"GPU_ID\s+MEMORY\s+ACCELERATOR_TYPE\b.*")


def read_versions(text: str, source: str) -> Reading:
    """Read the line of `amd-smi version`, past whatever was logged before it."""
    found = {match[1].casefold(): match[2] for match in _VERSION_PART.finditer(text)}
    return Reading(source=source, amd=_driver(
        found.get("amdgpu version"),
        tool=found.get("amdsmi tool"),
        library=found.get("amdsmi library version"),
        rocm=found.get("rocm version"),
    ))  # fmt: skip


def _driver(
    version: str | None, *, tool: str | None = None, library: str | None = None, rocm: str | None = None
) -> AmdDriver:
    number, origin = values.driver(version)
    return AmdDriver(
        version=number,
        origin=origin,
        rocm=values.release(rocm),
        smi_tool=values.release(tool),
        smi_library=values.release(library),
    )


def read_json(text: str, source: str) -> Reading:
    """Read any JSON of `amd-smi`; what is printed before it is left aside."""
    start = re.search(r"^[\[{]", text, re.MULTILINE)
    try:
        tree, _ = json.JSONDecoder().raw_decode(text[start.start() :] if start else "")
    except (ValueError, RecursionError):
        return silent("amd", source, "unreadable", "the JSON is cut short")
    entries = [_folded(entry) for entry in _entries(tree) if isinstance(entry, dict)]
    versions = next((entry for entry in entries if "amdsmi_library_version" in entry), None)
    if versions is not None:
        return Reading(source=source, amd=_driver(
            _leaf(versions, "amdgpu_version"),
            tool=_leaf(versions, "version"),
            library=_leaf(versions, "amdsmi_library_version"),
            rocm=_leaf(versions, "rocm_version"),
        ))  # fmt: skip
    return _reading(entries, source)


def _entries(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        listed = next(
            (tree[key] for key in ("gpu_data", "current_partition") if isinstance(tree.get(key), list)), None
        )
        return [tree] if listed is None else listed
    return tree if isinstance(tree, list) else []


def _folded(entry: dict[str, Any]) -> dict[str, Any]:
    """Return an entry with lower-case keys, two levels deep, which is all that is read."""
    return {
        key.casefold(): {name.casefold(): value for name, value in part.items()}
        if isinstance(part, dict)
        else part
        for key, part in entry.items()
    }


def read_text(text: str, source: str) -> Reading:
    """Read the indented text; or the table of `amd-smi partition`."""
    lines = cells.complete_lines(text)
    entries: list[dict[str, Any]] = []
    section: dict[str, Any] | None = None
    for line in lines:
        if match := _GPU.fullmatch(line.strip()):
            entries.append({"gpu": match[1]})
            section = None
            continue
        key, colon, value = line.strip().partition(":")
        if not entries or not colon:
            continue
        indent = len(line) - len(line.lstrip(" "))
        key = key.strip().casefold()
        if indent <= 4 and not value.strip():
            section = entries[-1].setdefault(key, {})
        elif indent <= 4:
            entries[-1].setdefault(key, value.strip())
        elif isinstance(section, dict) and value.strip():
            section.setdefault(key, value.strip())
    return _reading(_partition_table(lines) or entries, source)


def _partition_table(lines: list[str]) -> list[dict[str, Any]]:
    entries = []
    inside = False
    for line in lines:
        words = line.split()
        if _PARTITION_HEAD.fullmatch(line.strip()):
            inside = True
        elif inside and len(words) >= 3 and words[0].isascii() and words[0].isdigit():
            entries.append(
                {
                    "gpu_id": words[0],
                    "memory": words[1],
                    "accelerator_type": words[2],
                    "partition_id": words[-1],
                }
            )
        elif inside:
            break
    return entries


def _leaf(entry: dict[str, Any], *paths: str) -> str | None:
    """Return the first known text at a path of at most two names; a number with its unit is text too."""
    for path in paths:
        value: Any = entry
        for key in path.split("/"):
            value = value.get(key) if isinstance(value, dict) else None
        if isinstance(value, dict) and "value" in value:
            value = f"{value['value']} {value.get('unit') or ''}".strip()
        if isinstance(value, int) and not isinstance(value, bool):
            value = str(value)
        if isinstance(value, str) and cells.known(value) is not None:
            return value
    return None


def _reading(entries: list[dict[str, Any]], source: str) -> Reading:
    entries = [entry for entry in entries if cells.integer(_leaf(entry, "gpu", "gpu_id")) is not None]
    drivers = [_leaf(entry, "driver/version", "driver/driver_version") for entry in entries]
    number, origin = values.driver(next((text for text in drivers if text), None))
    return Reading(
        source=source,
        amd=AmdDriver(version=number, origin=origin) if number or origin else None,
        devices=fold(_row(entry) for entry in entries) if entries else None,
    )


def _row(entry: dict[str, Any]) -> Row:
    name = _leaf(entry, "asic/market_name", "board/product_name")
    board = _leaf(entry, "vbios/part_number", "ifwi/part_number")
    compute = (
        _leaf(entry, "partition/compute_partition", "partition/accelerator_partition", "accelerator_type")
        or ""
    )
    memory = _leaf(entry, "partition/memory_partition", "memory") or ""
    generation = re.fullmatch(r"Gen ([1-9])", _leaf(entry, "bus/pcie_interface_version") or "")
    device = Device(
        vendor="amd",
        index=cells.integer(_leaf(entry, "gpu", "gpu_id")),
        name=values.name(name),
        arch=values.arch(_leaf(entry, "asic/target_graphics_version")),
        memory_mib=cells.megabytes(_leaf(entry, *_VRAM), "MB"),
        compute_units=cells.integer(_leaf(entry, "asic/num_compute_units")),
        pci=cells.pci_address(_leaf(entry, "bus/bdf", "bdf")),
        pci_device_id=values.device_id(_leaf(entry, "asic/device_id")),
        pci_subsystem_id=values.device_id(_leaf(entry, "asic/subsystem_id")),
        id=values.unique_id(_leaf(entry, "asic/asic_serial")),
        compute_partition=compute if values.COMPUTE_PARTITION.fullmatch(compute) else None,
        memory_partition=memory if values.MEMORY_PARTITION.fullmatch(memory) else None,
        virtualization=values.virtualization(name, board),
        vbios=cells.known(board or _leaf(entry, "vbios/version", "ifwi/version")),
        power_limit_mw=cells.milliwatts(_leaf(entry, "limit/socket_power", "limit/power_cap")),
        pcie_generation=int(generation[1]) if generation else None,
        pcie_width=cells.integer(_leaf(entry, "bus/max_pcie_width")),
        numa_node=cells.integer(_leaf(entry, "numa/node")),
    )
    return Row.at(device, cells.integer(_leaf(entry, "partition/partition_id", "partition_id")))


_VRAM = ("vram/size", "vram/vram_size", "vram/size_mb", "vram/vram_size_mb")
