"""Inputs of a run by category, so that two runs can be told apart and a difference explained.

Categories are those of `repro.compare.explain`; a value is what a person would name.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from repro.host import HostFacts
from repro.lock import ArtifactLock, Lock
from repro.spec import Spec

__all__ = ["input_facts"]

_CONFIGURATION = frozenset({".cfg", ".conf", ".ini", ".json", ".jsonl", ".toml", ".yaml", ".yml"})


def _short(digest: str) -> str:
    return digest.removeprefix("sha256:")[:12]


def _artifacts(artifacts: tuple[ArtifactLock, ...]) -> dict[str, str]:
    return {f"{one.name} {file.path}": _short(file.digest) for one in artifacts for file in one.files}


def _source(lock: Lock, *, configuration: bool) -> dict[str, str]:
    return {
        file.path: _short(file.digest)
        for file in lock.source.files
        if (PurePosixPath(file.path).suffix in _CONFIGURATION) == configuration
    }


def _devices(host: HostFacts) -> dict[str, str]:
    facts = {
        f"device {device.index}": f"{device.name or device.name_start} {device.arch or ''}".rstrip()
        for device in host.devices
    }
    if host.cpu.model:
        facts["cpu"] = host.cpu.model
    if host.userspace.capability:
        facts["kernels"] = host.userspace.capability
    return facts


def _drivers(host: HostFacts) -> dict[str, str]:
    nvidia, amd = host.driver.nvidia, host.driver.amd
    versions = {
        "nvidia": nvidia.version if nvidia else None,
        "cuda": nvidia.cuda if nvidia else None,
        "amdgpu": amd.version if amd else None,
        "rocm": amd.rocm if amd else None,
    }
    return {name: version for name, version in versions.items() if version is not None}


def input_facts(
    spec: Spec, lock: Lock, accelerator: str, *, environment: Mapping[str, str], host: HostFacts
) -> dict[str, Any]:
    """Return category to facts, each fact one value or a mapping of name to value."""
    locked = lock.accelerators[accelerator]
    return {
        "architecture": _devices(host),
        "configuration": {
            **_source(lock, configuration=True),
            "command": " ".join(spec.pilot.command),
            "determinism": spec.determinism,
            "steps": str(spec.pilot.steps),
        },
        "data": _artifacts(lock.datasets),
        "driver": _drivers(host),
        "environment": dict(environment),
        "image": {"base": _short(locked.base.config_digest), "Dockerfile": _short(locked.dockerfile.digest)},
        "knobs": {name: value for name, value in (host.userspace.knobs or {}).items() if value is not None},
        "model": _artifacts(lock.models),
        "packages": {file.name: f"{file.version} ({_short(file.digest)})" for file in locked.packages.files},
        "seed": str(spec.seed),
        "source": _source(lock, configuration=False),
    }
