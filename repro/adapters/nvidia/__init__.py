"""What NVIDIA's tools say, whichever form their text has.

`read` tells the forms apart by what they hold, not by what was asked: a tool
that fails prints a sentence where XML was expected.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace

from repro.adapters.nvidia.failures import find_failure
from repro.adapters.nvidia.listing import read_listing, read_proc_version, read_toolkit, read_versions
from repro.adapters.nvidia.log import read_text, read_xml
from repro.adapters.nvidia.nvml import read_nvml
from repro.adapters.nvidia.query import looks_like_query, read_query
from repro.adapters.nvidia.table import read_table
from repro.adapters.nvidia.topology import read_topology
from repro.adapters.reading import Reading, silent
from repro.host import NoAnswerKind, NvidiaDriver

__all__ = ["read", "read_nvml", "read_toolkit"]

_FORMS: tuple[tuple[str, int, Callable[[str, str], Reading]], ...] = (
    (r"<nvidia_smi_log", 1, read_xml),
    (r"=NVSMI LOG=", 2, read_text),
    (r"^\|\s*NVIDIA-SMI\s+\S+\s+(?:Driver|KMD) Version:|^\|\s*GPU\s+Name\s", 7, read_table),
    (r"^NVIDIA-SMI version\s*:|^NVML version\s*:", 5, read_versions),
    (r"^NVRM version:", 8, read_proc_version),
    (r"^GPU [0-9]+: .*", 4, read_listing),
    (r"^(?:\x1b\[[0-9;]*m)?\s+GPU[0-9]+\s.*\n(?:\x1b\[[0-9;]*m)?GPU[0-9]+\s", 6, read_topology),
)


def read(text: str, source: str = "nvidia-smi", *, exit_code: int | None = None) -> Reading:
    """Read any output of `nvidia-smi`, or of the kernel module's version file.

    Args:
        exit_code: of the command; decides nothing but what a strange text means.
    """
    rank, parse = next(
        ((rank, parse) for pattern, rank, parse in _FORMS if re.search(pattern, text, re.MULTILINE)),
        (0, None),
    )
    if parse is None and any(looks_like_query(line) for line in text.split("\n")[:5]):
        rank, parse = 3, read_query
    reading = replace(parse(text, source), rank=rank) if parse else Reading(source=source)
    failure = None if reading.no_answer else find_failure(text, source)
    if failure and (not reading.devices or failure.kind == "gpu-error-state"):
        library = _LIBRARY.search(text)
        driver = NvidiaDriver(nvml_version=library[1]) if library else reading.nvidia
        return replace(reading, nvidia=driver, no_answer=(failure,))
    if reading.devices or reading.no_answer or not _is_empty(reading):
        return reading
    return silent("nvidia", source, _BY_CODE.get(exit_code, "unreadable"), text.partition("\n")[0])


_LIBRARY = re.compile(r"^NVML library version: ([0-9]+(?:\.[0-9]+)+)\n", re.MULTILINE)
"""Stands below the sentence of a mismatch."""
_BY_CODE: dict[int | None, NoAnswerKind] = {126: "permission-denied", 127: "tool-missing"}
"""What the shell's own exit codes mean."""


def _is_empty(reading: Reading) -> bool:
    return reading.nvidia in (None, NvidiaDriver()) and not reading.links
