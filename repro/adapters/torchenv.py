"""Torch's own view of where it runs: the head of a trace, and the text of `torch.utils.collect_env`.

Pure: both are read where the run was, and parsed here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from repro.adapters import cells
from repro.adapters.reading import Reading
from repro.host import CpuFacts, Note, NvidiaDriver, OsFacts
from repro.userspace import TorchDevice, Userspace

__all__ = ["read_collect_env", "userspace_of_head"]

_ENTRY = re.compile(r"([A-Za-z][A-Za-z0-9_./() -]{1,50}?):(?: (.*))?")
_HEAD = "Collecting environment information..."
"""A terminal leaves it on the line of the first entry."""
_VERSION = re.compile(r"[0-9]{1,6}(?:\.[0-9]{1,9}){1,4}(?:[-+.]?[0-9A-Za-z][0-9A-Za-z.+_-]{0,80})?")
_PACKAGE = re.compile(r"\[(?:pip3?|conda)\] ([A-Za-z0-9._-]+)(?:==|\s+)(\S+).*")
_GPU_LINE = re.compile(r"GPU ([0-9]{1,3}): (.+)")
_GPU_TARGET = re.compile(r"(.+) \((gfx[0-9a-f]{3,5}(?::[a-z]+[+-])*)\)")
_CPU = re.compile(r"(.+) \(([0-9]{1,4}) threads, (\S+)\)")
_LIBRARY = re.compile(r".*libcudnn\.so\.([0-9]+\.[0-9]+\.[0-9]+)")


def userspace_of_head(head: Mapping[str, Any]) -> Userspace:
    """Return what the recorder wrote into the first line of a trace."""
    torch = head.get("torch")
    stack: Mapping[str, Any] = torch if isinstance(torch, Mapping) else {}
    cuda, hip = _text(stack, "cuda"), _text(stack, "hip")
    library = cells.integer(_text(stack, "cudnn"))
    return Userspace(
        backend="rocm" if hip else "cuda" if cuda else "cpu" if "version" in stack else None,
        python=_text(head, "python"),
        torch=_text(stack, "version"),
        torch_git=_text(stack, "git"),
        torch_config=_text(stack, "config"),
        cuda_build=cuda,
        hip_build=hip,
        cudnn=_cudnn(library) if library and not hip else None,
        miopen=_miopen(library) if library and hip else None,
        nccl=_text(stack, "nccl"),
        capability=_text(stack, "capability"),
        threads=_count(stack, "threads"),
        interop_threads=_count(stack, "interop_threads"),
        devices=_devices(head.get("devices")),
        knobs=_knobs(head.get("knobs")),
        rng_probe=_digests(head.get("rng_probe")),
    )


def _text(tree: Mapping[str, Any], key: str) -> str | None:
    value = tree.get(key)
    return cells.known(value) if isinstance(value, str) else None


def _count(tree: Mapping[str, Any], key: str) -> int | None:
    value = tree.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 1 << 53 else None


def _cudnn(number: int) -> str:
    """Return `9.1.0` for 90100, `8.9.2` for 8902."""
    major, rest = divmod(number, 10000) if number >= 90000 else divmod(number, 1000)
    return f"{major}.{rest // 100}.{rest % 100}"


def _miopen(number: int) -> str:
    """Return `3.1.0` for 3001000."""
    return f"{number // 1_000_000}.{number // 1000 % 1000}.{number % 1000}"


def _devices(value: Any) -> tuple[TorchDevice, ...] | None:
    if not isinstance(value, list):
        return None
    found = []
    for entry in value:
        tree = entry if isinstance(entry, Mapping) else {}
        memory = _count(tree, "memory_bytes")
        found.append(
            TorchDevice(
                name=_text(tree, "name"),
                arch=_text(tree, "arch"),
                memory_mib=None if memory is None else memory >> 20,
            )
        )
    return tuple(found)


def _knobs(value: Any) -> dict[str, str | None] | None:
    """Return switches as text; those that are no text as the JSON they came as."""
    if not isinstance(value, Mapping):
        return None
    return {
        cells.printable(str(name)): None if setting is None else cells.printable(_as_text(setting))
        for name, setting in value.items()
    }


def _as_text(setting: Any) -> str:
    return setting if isinstance(setting, str) else json.dumps(setting, sort_keys=True)


def _digests(value: Any) -> dict[str, str] | None:
    if not isinstance(value, Mapping):
        return None
    found = (
        (str(device), cells.known(digest)) for device, digest in value.items() if isinstance(digest, str)
    )
    return {cells.printable(device): digest for device, digest in found if digest is not None}


def read_collect_env(text: str, source: str = "collect_env") -> Reading:
    """Read the report of any release. Where it says "CUDA available" on ROCm, the backend is still ROCm."""
    lines = cells.complete_lines(text)
    entries = _entries(lines)
    packages = _packages(lines)
    torch = _version(entries.get("PyTorch version"))
    distribution = (packages or {}).get("torch") or (packages or {}).get("pytorch")
    kernel = entries.get("Python platform", "")
    cuda, hip = (
        _version(entries.get("CUDA used to build PyTorch")),
        _version(entries.get("ROCM used to build PyTorch")),
    )
    driver = cells.version(entries.get("Nvidia driver version"))
    python = _version(entries.get("Python version", "").partition(" ")[0])
    devices, model = _models(lines)
    return Reading(
        source=source,
        userspace=Userspace(
            backend="rocm" if hip else "cuda" if cuda else "cpu" if torch and _is_plain(entries) else None,
            python=python,
            os=cells.known(entries.get("OS")),
            libc=cells.known(entries.get("Libc version")),
            torch=torch,
            torch_distribution=distribution,
            cuda_build=cuda,
            cuda_runtime=_version(entries.get("CUDA runtime version")),
            cudnn=_cudnn_text(entries.get("cuDNN version")),
            hip_build=hip,
            hip_runtime=_version(entries.get("HIP runtime version")),
            miopen=_version(entries.get("MIOpen runtime version")),
            devices=devices,
            model=model,
            packages=packages,
        ),
        nvidia=NvidiaDriver(version=driver) if driver else None,
        cpu=_cpu(entries),
        os=OsFacts(wsl=True) if "microsoft" in kernel.casefold() else None,
        notes=_notes(torch, distribution, packages),
    )


def _entries(lines: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for line in lines:
        if match := _ENTRY.fullmatch(line.removeprefix(_HEAD).strip()):
            found.setdefault(match[1].strip(), match[2] or "")
    return found


def _is_plain(entries: dict[str, str]) -> bool:
    """Say whether a build for processors only is stated: the lines that would name others are over."""
    names = [f"{name} used to build PyTorch" for name in ("CUDA", "ROCM", "XPU")]
    return {names[0], "OS"} <= entries.keys() and all(
        cells.known(entries.get(name)) is None for name in names
    )


def _version(text: str | None) -> str | None:
    value = cells.known(text) or ""
    return value if _VERSION.fullmatch(value) else None


def _cudnn_text(text: str | None) -> str | None:
    """Return the version, of a number or of the one library named; "Probably one of" names several."""
    value = cells.known(text)
    if value is None:
        return None
    library = _LIBRARY.fullmatch(value)
    return library[1] if library else _version(value.partition(" (")[0])


def _packages(lines: list[str]) -> dict[str, str] | None:
    found: dict[str, str] = {}
    for line in lines:
        match = _PACKAGE.fullmatch(line.strip())
        if match and _VERSION.fullmatch(match[2]):
            found.setdefault(match[1], match[2])
    return found or None


def _models(lines: list[str]) -> tuple[tuple[TorchDevice, ...] | None, TorchDevice | None]:
    """Return the devices where they are listed by number, or the lone model, which does not say how many."""
    numbered: dict[int, TorchDevice] = {}
    lone: str | None = None
    for line in lines:
        head, found, rest = line.partition("GPU models and configuration:")
        body = rest.strip() if found and not head.strip() else line.strip()
        if match := _GPU_LINE.fullmatch(body):
            numbered.setdefault(int(match[1]), TorchDevice(name=cells.known(match[2])))
        elif found:
            lone = cells.known(body)
    if numbered:
        return tuple(numbered[index] for index in sorted(numbered)), None
    if lone is None:
        return None, None
    target = _GPU_TARGET.fullmatch(lone)
    return None, TorchDevice(name=target[1], arch=target[2]) if target else TorchDevice(name=lone)


def _cpu(entries: dict[str, str]) -> CpuFacts | None:
    model, threads = cells.known(entries.get("Model name")), cells.integer(entries.get("CPU(s)"))
    architecture = cells.known(entries.get("Architecture"))
    if match := _CPU.fullmatch(entries.get("CPU", "")):
        model, threads, architecture = cells.known(match[1]), int(match[2]), cells.known(match[3])
    if model is None and threads is None:
        return None
    return CpuFacts(
        model=model, threads=threads, architecture=architecture, vendor=cells.known(entries.get("Vendor ID"))
    )


def _notes(torch: str | None, distribution: str | None, packages: dict[str, str] | None) -> tuple[Note, ...]:
    notes = []
    if packages is None:
        notes.append(
            Note(
                kind="packages-unknown",
                message="the report lists no packages: take them from the interpreter that runs",
            )
        )
    if torch and distribution and torch != distribution:
        notes.append(
            Note(
                kind="version-differs-from-distribution",
                message=f"torch calls itself {torch}, its distribution is {distribution}: "
                "a lock must name the latter, and an index that has it",
            )
        )
    return tuple(notes)
