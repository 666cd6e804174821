"""What AMD's tools say, whichever tool, form and release their text is of."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from repro.adapters import cells
from repro.adapters.amd import amdsmi, rocmsmi
from repro.adapters.amd.failures import find_failure
from repro.adapters.amd.rocminfo import read_rocminfo
from repro.adapters.amd.table import read_table
from repro.adapters.reading import Reading, silent
from repro.host import AmdDriver, NoAnswerKind

__all__ = ["read", "read_release"]

_FORMS: tuple[tuple[str, int, Callable[[str, str], Reading]], ...] = (
    (r'^\s*"(?:card[0-9]+|system)"\s*:|^\{"(?:card[0-9]+|system)"', 1, rocmsmi.read_json),
    (r"^device,", 1, rocmsmi.read_csv),
    (r"^[\[{]", 0, amdsmi.read_json),
    (r"^\|\s*AMD-SMI\s", 5, read_table),
    (r"AMDSMI Tool:", 0, amdsmi.read_versions),
    (r"^GPU: [0-9]+|^GPU_ID\s+MEMORY\s+ACCELERATOR_TYPE", 0, amdsmi.read_text),
    (r"^GPU\[[0-9]+\]|ROCm System Management Interface|^Driver version\s*:", 1, rocmsmi.read_text),
    (r"^\s*HSA Agents|^Agent [0-9]+|^\s*Device Type:", 4, read_rocminfo),
)
_INSTALLED = re.compile(r"/opt/rocm-([0-9]+\.[0-9]+(?:\.[0-9]+)?)/")
_BY_CODE: dict[int | None, NoAnswerKind] = {126: "permission-denied", 127: "tool-missing"}


def read(text: str, source: str, *, exit_code: int | None = None) -> Reading:
    """Read any output of `amd-smi`, `rocm-smi` or `rocminfo`.

    Args:
        exit_code: of the command; decides nothing but what a strange text means, for rocm-smi fails with 0.
    """
    rank, parse = next(
        ((rank, parse) for pattern, rank, parse in _FORMS if re.search(pattern, text, re.MULTILINE)),
        (0, None),
    )
    reading = replace(parse(text, source), rank=rank) if parse else Reading(source=source)
    if installed := _INSTALLED.search(text):
        reading = replace(reading, amd=_with_path(reading.amd, installed[1]))
    if reading.devices or reading.no_answer:
        return reading
    failure = find_failure(text, source)
    if failure is not None:
        return replace(reading, no_answer=(failure,))
    if parse is None or _is_empty(reading):
        kind = _BY_CODE.get(exit_code, "unreadable")
        return replace(reading, no_answer=silent("amd", source, kind, text.partition("\n")[0]).no_answer)
    return reading


def read_release(text: str, source: str) -> Reading:
    """Read `/opt/rocm/.info/version`: the release, and after a hyphen its build."""
    return Reading(source=source, rank=3, amd=AmdDriver(rocm=cells.version(text.strip().partition("-")[0])))


def _is_empty(reading: Reading) -> bool:
    return reading.amd in (None, AmdDriver()) and reading.os is None and not reading.links


def _with_path(driver: AmdDriver | None, release: str) -> AmdDriver:
    return (driver or AmdDriver()).model_copy(update={"rocm_path": release})
