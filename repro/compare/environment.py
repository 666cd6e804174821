"""What two traces say of the stacks they ran on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.errors import TraceError
from repro.trace import PhaseTrace
from repro.verdict import Comparability

__all__ = ["device_rng", "portable_rng", "relation"]

_STACK = ("python", "torch", "devices", "knobs", "rng_probe")
"""Members of a head that kernels, and so bits, can depend on."""


def _differences(path: str, a: Any, b: Any) -> list[str]:
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        names = sorted(a.keys() | b.keys())
        return [line for name in names for line in _differences(f"{path}.{name}", a.get(name), b.get(name))]
    return [] if a == b else [f"{path}: {a} in the target, {b} in the candidate"]


def relation(target: PhaseTrace, candidate: PhaseTrace) -> Comparability:
    """Say whether both ran on an equal stack, as far as their heads tell; every rank counts.

    Whoever knows more, such as the driver and the image, decides instead of this.
    """
    reasons: dict[str, None] = {}
    for a, b in zip(target.ranks, candidate.ranks, strict=True):
        first, second = a.head(), b.head()
        for name in _STACK:
            reasons.update(dict.fromkeys(_differences(name, first.get(name), second.get(name))))
    return Comparability(relation="across" if reasons else "same", reasons=tuple(reasons))


def _probes(phase: PhaseTrace) -> list[Mapping[str, Any]]:
    probes = [file.head().get("rng_probe") or {} for file in phase.ranks]
    if not all(isinstance(probe, Mapping) for probe in probes):
        raise TraceError("trace-malformed", "the head's rng_probe is no object", where=f"phase {phase.name}")
    return probes


def portable_rng(target: PhaseTrace, candidate: PhaseTrace) -> bool:
    """Say whether one seed gives both the same numbers: whether their probes drew equal ones."""
    return _probes(target) == _probes(candidate)


def device_rng(target: PhaseTrace, candidate: PhaseTrace) -> bool:
    """Say whether one seed gives the accelerators of both the same numbers; true where there are none."""

    def devices(phase: PhaseTrace) -> list[dict[str, Any]]:
        return [{name: value for name, value in probe.items() if name != "cpu"} for probe in _probes(phase)]

    return devices(target) == devices(candidate)
