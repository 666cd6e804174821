"""Bytes as they come → whole lines of text."""

from __future__ import annotations

import re
from collections.abc import Iterator

__all__ = ["TAIL_LINES", "Lines"]

TAIL_LINES = 40
"""How many of the last lines are kept with a result."""

_ENDS = re.compile(rb"\r\n|\n|\r")
_LONGEST = 1 << 16


class Lines:
    """Splits a stream at line feeds and at the carriage returns of progress bars."""

    def __init__(self) -> None:
        self._rest = b""

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield every line that `data` completes."""
        *whole, self._rest = _ENDS.split(self._rest + data)
        if len(self._rest) > _LONGEST:
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            if line:
                yield line.decode("utf-8", "replace")

    def close(self) -> Iterator[str]:
        """Yield what is left when the stream ends."""
        if self._rest:
            yield self._rest.decode("utf-8", "replace")
        self._rest = b""
