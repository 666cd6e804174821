"""Run a function in a process of its own and say what it took. Shared by the benchmarks."""

from __future__ import annotations

import multiprocessing
import resource
from collections.abc import Callable
from typing import Any

__all__ = ["measured"]


def _used() -> tuple[float, int]:
    own, below = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    seconds = own.ru_utime + own.ru_stime + below.ru_utime + below.ru_stime
    return seconds, max(own.ru_maxrss, below.ru_maxrss) * 1024


def measured(work: Callable[..., str], *arguments: Any) -> tuple[float, int, str]:
    """Return processor seconds, peak bytes above the start, and what the function said.

    Processor time, so that a busy machine does not count; that of commands the function ran is included.
    """
    receive, send = multiprocessing.Pipe(duplex=False)

    def child() -> None:
        seconds, peak = _used()
        said = work(*arguments)
        after = _used()
        send.send((after[0] - seconds, after[1] - peak, said))

    process = multiprocessing.get_context("fork").Process(target=child)
    process.start()
    send.close()
    result: tuple[float, int, str] = receive.recv()
    process.join()
    return result
