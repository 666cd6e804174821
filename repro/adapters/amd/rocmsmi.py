"""`rocm-smi`: its JSON, the long text of `-a` and other options, and the concise table of every release."""

from __future__ import annotations

import csv
import json
import re

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.amd.fold import Row, fold
from repro.adapters.reading import Reading, silent
from repro.host import AmdDriver, Device, Link

__all__ = ["read_csv", "read_json", "read_text"]

_CARD = re.compile(r"card([0-9]{1,3})")
_TEXT_ENTRY = re.compile(r"GPU\[([0-9]{1,3})\]\s*: ([^:]+?)\s*:\s*(.*)")
_DRIVER = re.compile(r"Driver version\s*:\s*(.*)", re.IGNORECASE)
_CONCISE_HEAD = re.compile(r"(?:GPU|Device)\s+.*\b(?:Temp|Perf)\b.*")
_CONCISE_ROW = re.compile(r"([0-9]{1,3})\s+(\S.*)")
_CONCISE_MODES = re.compile(r"(NPS[0-9]|N/A), +([A-Z]{3}|N/A)(?:, +([0-9]{1,2}))?(?=\s)")
_CONCISE_IDS = re.compile(r"(\[)?(0[xX][0-9a-fA-F]{1,4})\b")
"""In brackets stands the board's id; since ROCm 6.2 the device's, without."""
_NAME_ROOM = 20
_LINK = re.compile(r"\(topology\) link type between drm devices ([0-9]{1,3}) and ([0-9]{1,3})")

_Cards = dict[int, dict[str, str]]


def read_json(text: str, source: str) -> Reading:
    """Read `rocm-smi --json`. Only `card<n>` members are devices; `system` is not."""
    start = text.find("{")
    try:
        tree, _ = json.JSONDecoder().raw_decode(text[start:] if start >= 0 else "")
    except (ValueError, RecursionError):
        return silent("amd", source, "unreadable", "the JSON is cut short")
    cards: _Cards = {}
    system: dict[str, str] = {}
    for key, part in tree.items() if isinstance(tree, dict) else ():
        if not isinstance(part, dict):
            continue
        texts = {name.strip(" :").casefold(): value for name, value in part.items() if isinstance(value, str)}
        if match := _CARD.fullmatch(key):
            cards[int(match[1])] = texts
        elif key == "system":
            system = texts
    return _reading(cards, system, [], source)


def read_csv(text: str, source: str) -> Reading:
    """Read `rocm-smi --csv`, whose first column is headed `device`."""
    lines = [line for line in cells.complete_lines(text) if "\0" not in line]
    start = next((place for place, line in enumerate(lines) if line.startswith("device,")), len(lines))
    head, *rows = [*_rows(lines[start:])] or [[]]
    cards: _Cards = {}
    system: dict[str, str] = {}
    for row in rows:
        if len(row) != len(head):
            continue
        texts = {name.casefold(): cell for name, cell in zip(head, row, strict=True)}
        if match := _CARD.fullmatch(row[0]):
            cards[int(match[1])] = texts
        elif row[0] == "cardsystem":
            system = texts
    return _reading(cards, system, [], source)


def _rows(lines: list[str]) -> list[list[str]]:
    try:
        return [row for row in csv.reader(lines) if row]
    except csv.Error:
        return []


def read_text(text: str, source: str) -> Reading:
    """Read what `rocm-smi` prints for people."""
    cards: _Cards = {}
    system: dict[str, str] = {}
    lines = cells.complete_lines(text)
    for line in lines:
        if match := _TEXT_ENTRY.fullmatch(line.strip()):
            cards.setdefault(int(match[1]), {}).setdefault(match[2].casefold(), match[3])
        elif match := _DRIVER.fullmatch(line.strip()):
            system.setdefault("driver version", match[1])
    return _reading(cards, system, _concise(lines), source)


def _reading(cards: _Cards, system: dict[str, str], concise: list[Row], source: str) -> Reading:
    said = (part.get("driver version") for part in (system, *cards.values()))
    number, origin = values.driver(next((text for text in said if text), None))
    short = {row.device.index: row for row in concise}
    rows = [_row(index, card, short.get(index)) for index, card in sorted(cards.items()) if _is_device(card)]
    rows = rows or concise
    return Reading(
        source=source,
        amd=AmdDriver(version=number, origin=origin) if number or origin else None,
        devices=fold(rows) if rows else None,
        links=_links(system),
    )


def _is_device(card: dict[str, str]) -> bool:
    """Say whether an entry holds any fact; a hidden device leaves an empty one behind."""
    return any(cells.known(value) is not None for value in card.values())


def _links(system: dict[str, str]) -> tuple[Link, ...]:
    found = ((_LINK.fullmatch(key), value) for key, value in system.items())
    return tuple(
        Link(vendor="amd", first=int(match[1]), second=int(match[2]), kind=value)
        for match, value in found
        if match and value in ("XGMI", "PCIE")
    )


def _row(index: int, card: dict[str, str], short: Row | None) -> Row:
    board = card.get("vbios version")
    memory = card.get("vram total memory (b)")
    compute = cells.known(card.get("compute partition")) or ""
    nps = cells.known(card.get("memory partition")) or ""
    device = Device(
        vendor="amd",
        index=index,
        name=values.name(card.get("card series"), card.get("device name")),
        name_start=short.device.name_start if short else None,
        arch=values.arch(card.get("gfx version")),
        memory_mib=cells.megabytes(memory, "B"),
        pci=cells.pci_address(card.get("pci bus")),
        pci_device_id=values.device_id(card.get("device id") or card.get("gpu id")),
        pci_subsystem_id=values.device_id(card.get("subsystem id")),
        id=values.unique_id(card.get("unique id")),
        compute_partition=compute if values.COMPUTE_PARTITION.fullmatch(compute) else None,
        memory_partition=nps if values.MEMORY_PARTITION.fullmatch(nps) else None,
        virtualization=values.virtualization(board, card.get("card sku")),
        vbios=cells.known(board),
        power_limit_mw=cells.milliwatts(card.get("max graphics package power (w)")),
        numa_node=cells.integer(card.get("(topology) numa node")),
    )
    return Row.at(device, cells.integer(card.get("partition id")) if short is None else short.partition)


def _concise(lines: list[str]) -> list[Row]:
    """Return the rows of the concise table; a name stands on a line below its row, cut to 20 characters."""
    rows: list[Row] = []
    inside = False
    for line in lines:
        if _CONCISE_HEAD.fullmatch(line.strip()):
            inside = True
        elif rows and (line.startswith("=") or not line.strip()):
            break
        elif inside and (match := _CONCISE_ROW.fullmatch(line.rstrip())):
            rows.append(_concise_row(int(match[1]), match[2]))
        elif inside and rows and line.startswith("   ") and line.strip():
            rows[-1] = _named(rows[-1], line.strip())
    return rows


def _concise_row(index: int, rest: str) -> Row:
    number, modes = _CONCISE_IDS.search(rest), _CONCISE_MODES.search(rest)
    memory, compute, part = modes.groups() if modes else (None, None, None)
    is_board = number is not None and number[1] is not None
    device_id = values.device_id(number[2]) if number else None
    device = Device(
        vendor="amd",
        index=index,
        pci_device_id=None if is_board else device_id,
        pci_subsystem_id=device_id if is_board else None,
        compute_partition=compute if compute and values.COMPUTE_PARTITION.fullmatch(compute) else None,
        memory_partition=memory if memory and values.MEMORY_PARTITION.fullmatch(memory) else None,
    )
    return Row.at(device, None if part is None else int(part))


def _named(row: Row, text: str) -> Row:
    if row.device.name or row.device.name_start:
        return row
    whole = len(text) < _NAME_ROOM - 1
    update = {"name": values.name(text)} if whole else {"name_start": values.name(text)}
    return Row.at(row.device.model_copy(update=update), row.partition)
