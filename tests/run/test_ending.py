"""How a job ended has a name of its own: time, memory of three kinds, a signal, an exit code."""

from __future__ import annotations

import signal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from repro.errors import RunError
from repro.job import JobResult
from repro.run.ending import require_success


def _ended(code: int, ended: Any = "exited", *tail: str) -> RunError:
    result = JobResult(exit_code=code, ended=ended, seconds=12.0, tail=tail)
    with pytest.raises(RunError) as named:
        require_success("full", result)
    assert named.value.where == "phase full"
    assert named.value.remedy
    return named.value


TORCH = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB."
LOADER = "RuntimeError: DataLoader worker (pid 7) is killed by signal: Bus error."


@pytest.mark.parametrize(
    ("code", "ended", "tail", "kind", "word"),
    [
        (137, "timeout", (), "pilot-timeout", "stopped after 12 s"),
        (137, "oom", (), "pilot-out-of-memory", "ran out of memory"),
        (3, "oom", (), "pilot-out-of-memory", "ran out of memory"),
        (1, "exited", (TORCH,), "pilot-out-of-device-memory", "NVIDIA GPU"),
        (1, "exited", ("HIP out of memory. Tried",), "pilot-out-of-device-memory", "AMD GPU"),
        (1, "exited", (LOADER,), "pilot-out-of-shared-memory", "shared memory"),
        (135, "exited", (), "pilot-out-of-shared-memory", "shared memory"),
        (137, "exited", (), "pilot-killed", "SIGKILL"),
        (143, "exited", (), "pilot-killed", "SIGTERM"),
        (139, "exited", (), "pilot-killed", "SIGSEGV"),
        (132, "exited", (), "pilot-killed", "SIGILL"),
        (1, "exited", ("the reason",), "pilot-failed", "exited with 1; its last lines were:\n  the reason"),
        (127, "exited", (), "pilot-failed", "exited with 127"),
        (255, "exited", (), "pilot-failed", "exited with 255"),
    ],
)
def test_every_end_has_a_name(code: int, ended: str, tail: tuple[str, ...], kind: str, word: str) -> None:
    named = _ended(code, ended, *tail)
    assert named.kind == kind
    assert word in named.message
    assert all(line in named.message for line in tail)


@given(st.integers(1, 255))
def test_an_exit_code_says_which_signal_it_is(code: int) -> None:
    named = _ended(code)
    numbers = {number.value for number in signal.Signals}
    assert (named.kind in ("pilot-killed", "pilot-out-of-shared-memory")) == (code - 128 in numbers)


def test_success_is_no_error() -> None:
    require_success("full", JobResult(exit_code=0, ended="exited", seconds=1.0, tail=(TORCH,)))
