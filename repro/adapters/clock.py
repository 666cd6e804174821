"""The machine's wall clock."""

from __future__ import annotations

from datetime import UTC, datetime

__all__ = ["SystemClock"]


class SystemClock:
    """Fulfils `repro.ports.Clock`."""

    def now(self) -> datetime:
        """Return the time, aware, in UTC, in whole seconds."""
        return datetime.now(UTC).replace(microsecond=0)
