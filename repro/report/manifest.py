"""A manifest as text: what ran, in what, on what, and what came of it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from repro.manifest import Manifest, PhaseRecord
from repro.report.saved import saved_lines
from repro.report.words import count, duration, printable, short, size
from repro.verdict import Verdict

__all__ = ["manifest_lines", "manifest_rows"]

Row = tuple[str, str]


def _image(manifest: Manifest) -> str:
    if manifest.image is None:
        return "none: the run was on the host, in a virtual environment made from the lock"
    identity = manifest.image.identity
    return (
        f"{short(identity.config_digest)}, {identity.os}/{identity.architecture}, "
        f"{count(len(identity.diff_ids), 'layer')}, {size(identity.size)}"
    )


def _software(manifest: Manifest) -> str:
    userspace = manifest.host.userspace
    versions = {"Python": userspace.python, "torch": userspace.torch, "kernels": userspace.capability}
    return ", ".join(f"{name} {version}" for name, version in versions.items() if version) or "unknown"


def _machine(manifest: Manifest) -> str:
    host = manifest.host
    cpu = host.cpu.model or host.cpu.architecture or "unknown processor"
    devices = Counter(
        f"{one.name or one.name_start or one.vendor} {one.arch or ''}".rstrip() for one in host.devices
    )
    nvidia, amd = host.driver.nvidia, host.driver.amd
    drivers = [f"driver {one.version}" for one in (nvidia, amd) if one is not None and one.version]
    return ", ".join([*(f"{number} × {name}" for name, number in devices.items()), *drivers, cpu])


def _phase(phase: PhaseRecord) -> str:
    steps = f"steps {phase.first_step + 1} to {phase.first_step + phase.steps}"
    return f"{steps}, {count(phase.world_size, 'rank')}, {duration(phase.milliseconds)}"


def _claim(verdict: Verdict | None, absent: str) -> str:
    return absent if verdict is None else f"{verdict.outcome}: {verdict.sentence}"


def manifest_rows(manifest: Manifest) -> Iterator[Row]:
    """Label and value, in the order a reader asks."""
    yield "project", f"{manifest.project} ({manifest.accelerator}), run {manifest.run_id[:12]}"
    yield "captured", f"{manifest.created_at} by repro {manifest.tool.version}, number {manifest.sequence}"
    yield "image", _image(manifest)
    yield "software", _software(manifest)
    yield "machine", _machine(manifest)
    for record in manifest.inputs:
        commit = f" at {record.commit[:12]}" if record.commit else ""
        name = "" if record.kind == "base" else f"{record.name}: "
        yield record.kind, f"{name}{record.requested}{commit}, {short(record.digest)}"
    yield "seed", f"{manifest.seed}, determinism {manifest.determinism}"
    for phase in manifest.ordinary:
        yield phase.name, _phase(phase)
    if manifest.calibration is not None:
        runs, controls = manifest.calibration.runs, manifest.calibration.controls
        yield "calibrated", f"{count(runs, 'harmless run')}, {count(controls, 'control')}"
    if manifest.checkpoint:
        total = sum(file.size for file in manifest.checkpoint.files)
        files = count(len(manifest.checkpoint.files), "file")
        yield "checkpoint", f"after step {manifest.checkpoint.at_step}, {files}, {size(total)}"
        for line in saved_lines(manifest.checkpoint.saved) if manifest.checkpoint.saved else ():
            yield "", line
    yield (
        "repeats itself",
        _claim(manifest.reproduced_itself, "not tested: without a resume command the pilot ran once"),
    )
    yield (
        "resumes exactly",
        _claim(manifest.resumed_exactly, "not tested: repro.yaml gives no resume command"),
    )


def manifest_lines(manifest: Manifest) -> Iterator[str]:
    """The same, for a terminal."""
    for label, value in manifest_rows(manifest):
        yield f"  {label:16}{printable(value)}"
