"""Bytes as they come → whole lines of text."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator

__all__ = ["TAIL_LINES", "Lines"]

TAIL_LINES = 40
_ENDS = re.compile(rb"\r\n|\n|\r")
_LONGEST = 1 << 16


class Lines:
    """Splits a stream at line feeds and at the carriage returns of progress bars; keeps the last lines."""

    def __init__(self) -> None:
        self._rest = b""
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)

    def feed(self, data: bytes) -> Iterator[str]:
        """Yield every line that `data` completes."""
        *whole, self._rest = _ENDS.split(self._rest + data)
        if len(self._rest) > _LONGEST:
            whole.append(self._rest)
            self._rest = b""
        for line in whole:
            yield from self._line(line)

    def close(self) -> Iterator[str]:
        """Yield what is left when the stream ends."""
        yield from self._line(self._rest)
        self._rest = b""

    def _line(self, line: bytes) -> Iterator[str]:
        if line:
            text = line.decode("utf-8", "replace")
            self.tail.append(text)
            yield text
