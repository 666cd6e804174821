"""Texts of our own, in the form of many tools and releases, and how they are read."""

from __future__ import annotations

from pathlib import Path

from repro.adapters import amd, nvidia
from repro.adapters.cells import decode
from repro.adapters.reading import Reading
from repro.adapters.torchenv import read_collect_env

FIXTURES = Path(__file__).parent / "fixtures"
TEXTS = sorted(path for path in FIXTURES.rglob("*") if path.is_file())


def read_any(text: str, kind: str, name: str) -> Reading:
    """Read a text the way the probe does, by the tool it is of."""
    if name == "nvml.json":
        return nvidia.read_nvml(text, "nvml")
    if kind == "nvidia":
        return nvidia.read(text, "nvidia-smi")
    if kind == "amd":
        return amd.read(text, name)
    return read_collect_env(text)


def read_fixture(name: str) -> Reading:
    path = FIXTURES / name
    return read_any(decode(path.read_bytes()), path.parent.name, path.name)
