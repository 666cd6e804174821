"""What a command says while it works: bars on a terminal, plain lines in a pipe."""

from __future__ import annotations

import json
import sys
from types import TracebackType
from typing import Any, Self

import click

__all__ = ["Console", "print_json"]


def print_json(tree: Any) -> None:
    """Write one JSON document to stdout."""
    click.echo(json.dumps(tree, indent=2, sort_keys=True, ensure_ascii=False))


class Console:
    """Fulfils `repro.ports.Progress` on stderr; stdout is left to results.

    Args:
        quiet: say nothing but results and errors.
    """

    def __init__(self, *, quiet: bool = False) -> None:
        self.quiet = quiet
        self._live: Any = None
        self._task: Any = None
        self._terminal = sys.stderr.isatty()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close()

    def _close(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = self._task = None

    def start(self, what: str, total: int | None = None) -> None:
        """Begin a named piece of work of `total` units, where that is known."""
        self._close()
        if self.quiet:
            return
        if not self._terminal:
            click.echo(what, err=True)
            return
        from rich.console import Console as RichConsole
        from rich.progress import (
            BarColumn,
            MofNCompleteColumn,
            Progress,
            SpinnerColumn,
            TextColumn,
            TimeElapsedColumn,
        )

        columns = [SpinnerColumn(), TextColumn("{task.description}", markup=False)]
        if total is not None:
            columns += [BarColumn(bar_width=24), MofNCompleteColumn()]
        columns += [TextColumn("{task.fields[note]}", markup=False), TimeElapsedColumn()]
        self._live = Progress(*columns, console=RichConsole(stderr=True), transient=False)
        self._task = self._live.add_task(what, total=total, note="")
        self._live.start()

    def advance(self, amount: int = 1, note: str = "") -> None:
        """Count `amount` more units."""
        if self._live is not None:
            self._live.update(self._task, advance=amount, note=note[:60])

    def line(self, text: str) -> None:
        """Say one line."""
        if self.quiet:
            return
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            click.echo(text, err=True)
