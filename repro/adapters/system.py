"""Processor and operating system, as the kernel's files show them. Pure but for `read_files`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from repro.adapters import cells
from repro.host import CpuFacts, OsFacts

__all__ = ["DECIDING_FLAGS", "FILES", "cpu_facts", "os_facts", "read_file", "read_files"]

DECIDING_FLAGS = frozenset(
    (
        *("ssse3", "sse4_1", "sse4_2", "avx", "avx2", "fma", "f16c", "bmi2", "avx_vnni"),
        *(
            "avx512f",
            "avx512bw",
            "avx512cd",
            "avx512dq",
            "avx512vl",
            "avx512_vnni",
            "avx512_bf16",
            "avx512_fp16",
        ),
        *("amx_tile", "amx_int8", "amx_bf16", "amx_fp16"),
        *("asimd", "asimdhp", "asimddp", "fphp", "i8mm", "bf16", "sve", "sve2", "svei8mm", "svebf16", "sme"),
    )
)
"""Flags by which ATen, oneDNN, MKL and OpenBLAS choose kernels."""

FILES = (
    "proc/cpuinfo",
    "proc/meminfo",
    "proc/sys/kernel/osrelease",
    "etc/os-release",
    "usr/lib/os-release",
    "proc/1/cgroup",
    ".dockerenv",
    "run/.containerenv",
)
_MAX_BYTES = 4 << 20
_GROUPS = (("kubepods", "kubernetes"), ("docker", "docker"), ("libpod", "podman"), ("lxc", "lxc"))


def read_file(path: Path) -> str | None:
    """Return a file's text, or None where it cannot be read."""
    try:
        with path.open("rb") as stream:
            return cells.decode(stream.read(_MAX_BYTES))
    except OSError:
        return None


def read_files(root: Path, names: Iterable[str] = FILES) -> dict[str, str]:
    """Read the files that are there, by their path below `root`."""
    found = ((name, read_file(root / name)) for name in names)
    return {name: text for name, text in found if text is not None}


def _fields(block: str) -> dict[str, str]:
    pairs = (line.partition(":") for line in block.split("\n"))
    return {key.strip().casefold(): value.strip() for key, colon, value in pairs if colon}


def cpu_facts(
    files: Mapping[str, str],
    *,
    architecture: str | None = None,
    usable_threads: int | None = None,
    numa_nodes: int | None = None,
) -> CpuFacts:
    """Read `/proc/cpuinfo`, of x86, Arm and Power, and `/proc/meminfo`."""
    blocks = [_fields(block) for block in files.get("proc/cpuinfo", "").split("\n\n")]
    logical = [block for block in blocks if "processor" in block]
    first: dict[str, str] = logical[0] if logical else {}
    flags = first.get("flags", first.get("features"))
    packages = {block.get("physical id") for block in logical}
    cores = {(block.get("physical id"), block.get("core id")) for block in logical}
    has_topology = "physical id" in first and "core id" in first
    memory = re.search(r"^MemTotal:\s+([0-9]{1,15} kB)$", files.get("proc/meminfo", ""), re.MULTILINE)
    return CpuFacts(
        architecture=architecture,
        vendor=cells.known(first.get("vendor_id", first.get("cpu implementer"))),
        model=cells.known(first.get("model name", first.get("cpu part", first.get("cpu")))),
        flags=None if flags is None else tuple(sorted(set(flags.split()) & DECIDING_FLAGS)),
        sockets=len(packages) if has_topology else None,
        cores=len(cores) if has_topology else None,
        threads=len(logical) or None,
        usable_threads=usable_threads,
        numa_nodes=numa_nodes,
        microcode=cells.known(first.get("microcode")),
        memory_mib=cells.megabytes(memory[1]) if memory else None,
    )


def os_facts(
    files: Mapping[str, str], *, libc: str | None = None, environment: Mapping[str, str] | None = None
) -> OsFacts:
    """Read what surrounds this process: distribution, kernel, container, WSL, hypervisor."""
    release = files.get("etc/os-release", files.get("usr/lib/os-release", ""))
    name = re.search(r"^PRETTY_NAME=\"?([^\"\n]*)\"?$", release, re.MULTILINE)
    kernel = cells.known(files.get("proc/sys/kernel/osrelease"))
    cpuinfo = files.get("proc/cpuinfo")
    flags = re.search(r"^flags\s*:(.*)$", cpuinfo or "", re.MULTILINE)
    return OsFacts(
        name=cells.known(name[1]) if name else None,
        kernel=kernel,
        libc=cells.known(libc),
        container=_container(files, environment or {}),
        wsl=None if kernel is None else bool(re.search(r"microsoft|wsl", kernel, re.IGNORECASE)),
        hypervisor="hypervisor" in flags[1].split() if flags else None,
    )


def _container(files: Mapping[str, str], environment: Mapping[str, str]) -> str | None:
    if "KUBERNETES_SERVICE_HOST" in environment:
        return "kubernetes"
    if "run/.containerenv" in files:
        return "podman"
    if ".dockerenv" in files:
        return "docker"
    groups = files.get("proc/1/cgroup", "")
    found = next((name for word, name in _GROUPS if word in groups), None)
    return found or cells.known(environment.get("container"))
