"""A machine as text: what it can do, what it is, and what its sources left open."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from repro.doctor import Finding
from repro.host import Device, HostFacts, Partition
from repro.report.words import count, printable

__all__ = ["finding_lines", "machine_lines"]

Row = tuple[str, str | None]


def finding_lines(findings: Iterable[Finding]) -> Iterator[tuple[bool, str]]:
    """Yield each finding as a line, and its remedy as another; with whether it is a yes."""
    for finding in findings:
        what = f"{finding.can} on {finding.accelerator}" if finding.accelerator else finding.can
        yield finding.ok, f"{'yes' if finding.ok else 'no ':<4}{what:<16}{printable(finding.reason)}"
        if finding.remedy:
            yield finding.ok, f"{'':<20}{finding.remedy}"


def machine_lines(facts: HostFacts) -> Iterator[str]:
    """Yield the facts, those that are known, and then notes, conflicts and kinds of no answer."""
    for name, value in _rows(facts):
        if value:
            yield f"{name:<20}{printable(value)}"
    for device in facts.devices:
        yield f"{'device':<20}{printable(_device(device))}"
        for part in device.partitions:
            yield f"{'':<20}{printable(_part(part))}"
    for note in facts.notes:
        yield f"{'note':<20}{printable(note.message)}"
    for conflict in facts.conflicts:
        said = "; ".join(f"{claim.source} says {claim.value}" for claim in conflict.claims)
        yield f"{'sources disagree':<20}{printable(f'{conflict.fact}: {said}')}"
    for answer in facts.no_answer:
        if answer.kind != "tool-missing":
            said = f": {answer.said}" if answer.said else ""
            yield f"{'no answer':<20}{printable(f'{answer.source} {answer.kind}{said}')}"


def _joined(*parts: str | None) -> str | None:
    return ", ".join(part for part in parts if part) or None


def _rows(facts: HostFacts) -> Iterator[Row]:
    cpu, system, engine = facts.cpu, facts.os, facts.engine
    yield (
        "system",
        _joined(
            system.name,
            f"kernel {system.kernel}" if system.kernel else None,
            system.libc,
            f"in {system.container}" if system.container else None,
            "WSL" if system.wsl else None,
            "virtual machine" if system.hypervisor else None,
        ),
    )
    yield (
        "processor",
        _joined(
            cpu.model,
            count(cpu.threads, "thread") if cpu.threads else None,
            f"{cpu.memory_mib} MiB" if cpu.memory_mib else None,
            " ".join(cpu.flags) if cpu.flags else None,
        ),
    )
    if nvidia := facts.driver.nvidia:
        yield (
            "NVIDIA driver",
            _joined(
                nvidia.version or "version unknown",
                f"CUDA {nvidia.cuda}" if nvidia.cuda else None,
                f"{nvidia.kernel_module} kernel module" if nvidia.kernel_module else None,
                f"container toolkit {nvidia.container_toolkit}" if nvidia.container_toolkit else None,
            ),
        )
    if amd := facts.driver.amd:
        yield (
            "AMD driver",
            _joined(amd.version or "version unknown", amd.origin, f"ROCm {amd.rocm}" if amd.rocm else None),
        )
    if engine:
        yield (
            "engine",
            _joined(
                f"{engine.name} {engine.version}",
                engine.driver or engine.store,
                f"runtime {engine.runtime}" if engine.runtime else None,
                "rootless" if engine.rootless else None,
            ),
        )
    yield "set here", _joined(*(f"{name}={value}" for name, value in sorted(facts.overrides.items())))


def _device(device: Device) -> str:
    return " ".join(
        filter(
            None,
            (
                f"{device.index}:" if device.index is not None else None,
                device.name or (f"{device.name_start}…" if device.name_start else "name unknown"),
                device.arch,
                f"{device.memory_mib} MiB" if device.memory_mib else None,
                device.compute_partition,
                device.memory_partition,
                "MIG" if device.mig else None,
                device.pci,
                "IN ERROR" if device.state == "error" else None,
            ),
        )
    )


def _part(part: Partition) -> str:
    named = f"{part.kind} {part.index}" if part.index is not None else part.kind
    units = count(part.compute_units, "unit") if part.compute_units else None
    return " ".join(
        filter(None, (named, part.profile, f"{part.memory_mib} MiB" if part.memory_mib else None, units))
    )
