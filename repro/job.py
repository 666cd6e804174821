"""One process tree to run, in an image or on the host, and how it ended."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.digest import DigestStr
from repro.noun import Noun

__all__ = ["Job", "JobResult", "Limits", "Mount"]


class Limits(Noun):
    """What a job may use; null leaves a limit to the machine."""

    memory_bytes: int | None = None
    cpus: float | None = None
    shm_bytes: int = 1 << 30
    tmp_bytes: int = 1 << 30
    pids: int = 1024
    """Processes and threads together."""
    open_files: int = 4096
    locked_bytes: int | None = None
    """Memory a process may keep from being paged out; -1 is no limit."""
    stack_bytes: int | None = None


class Mount(Noun):
    """A host path seen by the job. Read-only unless `writable`."""

    source: str
    """Absolute path on the host."""
    target: str
    """Absolute path as the job sees it."""
    writable: bool = False


class Job(Noun):
    """What to run. There is never a network."""

    argv: tuple[str, ...]
    environment: dict[str, str]
    workdir: str
    image: DigestStr | None
    """Config digest of the image; null runs in a virtual environment on the host."""
    mounts: tuple[Mount, ...] = ()
    limits: Limits = Field(default_factory=Limits)
    timeout_s: float
    accelerator: Literal["cpu", "cuda", "rocm"] = "cpu"


class JobResult(Noun):
    """How a job ended."""

    exit_code: int
    """As the process returned it; 128 + signal where a signal ended it."""
    ended: Literal["exited", "timeout", "oom"]
    """`oom` where the kernel killed any process of the job for want of memory."""
    seconds: float = Field(ge=0)
    network: Literal["none", "host"] = "none"
    """`host` where this machine does not let us take the network away from a job that runs on it."""
    tail: tuple[str, ...] = ()
    """The last lines of output."""
