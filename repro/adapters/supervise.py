"""Runs one command and answers for all its processes. A program of its own; the standard library only.

    python -I supervise.py ORDER REPORT

ORDER is JSON: `argv`, `cwd`, `environment`, `open_files`, `grace_s`. REPORT is a file descriptor that
gets one line of JSON: `network`, which is `none` where the network could be taken away and `host`
where not. On SIGTERM, and when the command ends, every process that came of it is ended too: those
that left its group or session are found because this process is the reaper of all orphans below it.
Exits as the command did: 128 + signal where a signal ended it, 127 where there is no such command,
126 where it is none.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import resource
import signal
import socket
import struct
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

CLONE_NEWUTS = 0x04000000
CLONE_NEWUSER = 0x10000000
CLONE_NEWNET = 0x40000000
PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
SIOCSIFFLAGS = 0x8914
IFF_UP = 1

_LIBC = ctypes.CDLL(None, use_errno=True)
_WATCHED = {signal.SIGCHLD, signal.SIGTERM}


def _unshare(flags: int) -> bool:
    return bool(_LIBC.unshare(flags) == 0)


def _leave_network() -> bool:
    """Move into a network with nothing but a loopback, and take a host name that resolves there."""
    spaces = CLONE_NEWNET | CLONE_NEWUTS
    user, group = os.getuid(), os.getgid()
    if not _unshare(spaces):
        if not _unshare(spaces | CLONE_NEWUSER):
            return False
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
        Path("/proc/self/uid_map").write_text(f"{user} {user} 1", encoding="ascii")
        Path("/proc/self/gid_map").write_text(f"{group} {group} 1", encoding="ascii")
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as link:
        fcntl.ioctl(link, SIOCSIFFLAGS, struct.pack("16sH14x", b"lo", IFF_UP))
    socket.sethostname("localhost")
    return True


def _descendants() -> list[int]:
    """Every process below this one, by the kernel's table."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                state, parent = (entry / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            except (OSError, ValueError):
                continue
            if state != "Z":
                parents[int(entry.name)] = int(parent)
    found = {os.getpid()}
    while more := {child for child, parent in parents.items() if parent in found} - found:
        found |= more
    return sorted(found - {os.getpid()})


def _signal_all(number: signal.Signals) -> bool:
    """Signal every descendant; say whether there was one."""
    alive = _descendants()
    for process in alive:
        try:
            os.kill(process, number)
        except ProcessLookupError:
            continue
    return bool(alive)


def _reap() -> dict[int, int]:
    """Collect every child that has ended: exit code by process id."""
    ended: dict[int, int] = {}
    while True:
        try:
            process, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if process == 0:
            return ended
        ended[process] = os.waitstatus_to_exitcode(status)


def _end_all(grace_s: float) -> dict[int, int]:
    """Ask every descendant to end, then make it; return the exit codes that were collected."""
    ended: dict[int, int] = {}
    deadline = time.monotonic() + grace_s
    _signal_all(signal.SIGTERM)
    while _descendants() and time.monotonic() < deadline:
        ended |= _reap()
        time.sleep(0.02)
    while _signal_all(signal.SIGKILL):
        ended |= _reap()
        time.sleep(0.01)
    return ended | _reap()


def _ready_child() -> None:
    signal.pthread_sigmask(signal.SIG_SETMASK, set())


def _start(order: dict[str, Any]) -> subprocess.Popen[bytes]:
    files = order["open_files"]
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    allowed = files if most == resource.RLIM_INFINITY else min(files, most)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, allowed))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    return subprocess.Popen(
        order["argv"],
        cwd=order["cwd"],
        env=order["environment"],
        stdin=subprocess.DEVNULL,
        preexec_fn=_ready_child,
    )


def main(order: dict[str, Any], report: int) -> int:
    """Run the order and return the exit code."""
    signal.pthread_sigmask(signal.SIG_BLOCK, _WATCHED)
    _LIBC.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    _LIBC.prctl(PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)
    network = "none" if _leave_network() else "host"
    with os.fdopen(report, "w", encoding="ascii") as stream:
        stream.write(json.dumps({"network": network}) + "\n")
    try:
        command = _start(order)
    except (FileNotFoundError, NotADirectoryError):
        sys.stderr.write(f"{order['argv'][0]}: No such file or directory\n")
        return 127
    except PermissionError:
        sys.stderr.write(f"{order['argv'][0]}: Permission denied\n")
        return 126
    ended: dict[int, int] = {}
    while command.pid not in ended:
        if signal.sigwait(_WATCHED) == signal.SIGTERM:
            break
        ended |= _reap()
    ended |= _end_all(order["grace_s"])
    code = ended[command.pid]
    command.returncode = code
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main(json.loads(sys.argv[1]), int(sys.argv[2])))
