"""Read what the kernel shows of accelerators and of the machine, below any root folder."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from repro.adapters import amd, nvidia
from repro.adapters.amd import drm, kfd
from repro.adapters.reading import Reading, silent
from repro.adapters.system import cpu_facts, os_facts, read_file, read_files
from repro.host import Vendor

__all__ = ["Found", "read_amd", "read_nvidia", "read_pci", "read_system"]

Found = tuple[Reading, str | None, str]
"""What was read; the path it stands for, None where it is no evidence; the raw text."""

_PCI_VENDORS: dict[str, Vendor] = {"0x10de": "nvidia", "0x1002": "amd"}
_DISPLAY_CLASSES = ("0x0300", "0x0302", "0x0380", "0x1200")
_PCI_RANK = 9
_KFD = "sys/class/kfd/kfd/topology/nodes"
_KFD_FILES = ("properties", "gpu_id", "name", "mem_banks/*/properties", "io_links/*/properties")


def read_nvidia(root: Path) -> Iterator[Found]:
    """Read the loaded kernel module's version."""
    path = "proc/driver/nvidia/version"
    if text := read_file(root / path):
        yield nvidia.read(text, f"/{path}"), f"/{path}", text


def read_amd(root: Path) -> Iterator[Found]:
    """Read the amdgpu module, the release of ROCm, the kfd topology and the devices' own folders."""
    module = root / "sys/module/amdgpu"
    kernel = (read_file(root / "proc/sys/kernel/osrelease") or "").strip() or None
    files = read_files(module, ("version", "initstate")) if module.is_dir() else None
    yield drm.read_module(files, kernel), *_evidence("/sys/module/amdgpu", files or {})
    path = "opt/rocm/.info/version"
    if text := read_file(root / path):
        yield amd.read_release(text, f"/{path}"), f"/{path}", text
    if (root / _KFD).is_dir():
        nodes = _kfd_nodes(root / _KFD)
        texts = {f"{number}/{name}": text for number, node in nodes.items() for name, text in node.items()}
        yield kfd.read_topology(nodes), *_evidence(f"/{_KFD}", texts)
    else:
        yield silent("amd", "kfd", "tool-missing"), None, ""
    cards = {
        (card / "device").resolve().name: card / "device" for card in root.glob("sys/class/drm/card[0-9]*")
    }
    found = {name: read_files(card, drm.CARD_FILES) for name, card in cards.items()}
    texts = {f"{name}/{file}": text for name, files in found.items() for file, text in files.items()}
    yield drm.read_cards(found), *_evidence("/sys/class/drm", texts)


def _evidence(path: str, texts: Mapping[str, str]) -> tuple[str | None, str]:
    """Return several small files as one text: those of a line behind their name, others below it."""
    lines = []
    for name, text in sorted(texts.items()):
        body = text.strip()
        lines.append(f"{name}: {body}\n" if "\n" not in body else f"{name}:\n{body}\n")
    return (path if lines else None), "".join(lines)


def _kfd_nodes(folder: Path) -> dict[int, dict[str, str]]:
    nodes: dict[int, dict[str, str]] = {}
    for node in folder.iterdir():
        if re.fullmatch(r"[0-9]{1,6}", node.name):
            paths = [path.relative_to(node).as_posix() for name in _KFD_FILES for path in node.glob(name)]
            nodes[int(node.name)] = read_files(node, paths)
    return nodes


def read_pci(root: Path, listed: set[Vendor]) -> Iterator[Found]:
    """Read display controllers of vendors that listed nothing: such a machine is no plain one."""
    driven: dict[Vendor, bool] = {}
    for device in root.glob("sys/bus/pci/devices/*"):
        vendor = _PCI_VENDORS.get((read_file(device / "vendor") or "").strip())
        if vendor and (read_file(device / "class") or "").startswith(_DISPLAY_CLASSES):
            driver = (device / "driver").resolve().name
            driven[vendor] = driven.get(vendor, False) or driver in ("nvidia", "amdgpu")
    for vendor in sorted(driven.keys() - listed):
        kind = silent(vendor, "pci bus", "device-access-lost" if driven[vendor] else "driver-not-loaded")
        yield replace(kind, rank=_PCI_RANK), None, ""


def read_system(root: Path, environment: Mapping[str, str]) -> Iterator[Found]:
    """Read processor and operating system."""
    files = read_files(root)
    if root == Path("/"):
        files.setdefault("proc/sys/kernel/osrelease", os.uname().release)
    nodes = len(list(root.glob("sys/devices/system/node/node[0-9]*")))
    cpu = cpu_facts(
        files,
        architecture=platform.machine() or None,
        usable_threads=len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None,
        numa_nodes=nodes or None,
    )
    libc = os.confstr("CS_GNU_LIBC_VERSION") if "CS_GNU_LIBC_VERSION" in os.confstr_names else None
    first = files.get("proc/cpuinfo", "").partition("\n\n")[0]
    yield (
        Reading(source="kernel", cpu=cpu, os=os_facts(files, libc=libc, environment=environment)),
        "/proc/cpuinfo" if first else None,
        first,
    )
