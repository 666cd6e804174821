"""`nvidia-smi topo -m`: how each pair of GPUs is joined."""

from __future__ import annotations

import re

from repro.adapters import cells
from repro.adapters.reading import Reading
from repro.host import Link

__all__ = ["read_topology"]

_LABEL = re.compile(r"GPU([0-9]{1,3})")
_KIND = re.compile(r"NV[0-9]{1,2}|PIX|PXB|PHB|NODE|SYS|SOC")
_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


def read_topology(text: str, source: str) -> Reading:
    """Read the upper half of the matrix; its head is underlined by escape codes on some releases."""
    columns: list[int | None] = []
    links = []
    for line in cells.complete_lines(_ESCAPE.sub("", text)):
        words = line.split()
        if not columns:
            if words and _LABEL.fullmatch(words[0]) and "X" not in words:
                columns = [int(match[1]) if (match := _LABEL.fullmatch(word)) else None for word in words]
            continue
        row = _LABEL.fullmatch(words[0]) if words else None
        if row is None or len(words) <= len([column for column in columns if column is not None]):
            continue
        first = int(row[1])
        links += [
            Link(vendor="nvidia", first=first, second=second, kind=word)
            for second, word in zip(columns, words[1:], strict=False)
            if second is not None and second > first and _KIND.fullmatch(word)
        ]
    return Reading(source=source, links=tuple(links))
