"""Which harmless variants of a pilot, and which controls, tell how far its numbers may be from a target.

The kinds and their reasons stand in `docs/tolerance.md`. A variant changes nothing but variables of the
environment: some choose other kernels, the others ask the recorder for noise.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain, cycle, islice

__all__ = ["FEWEST", "Variant", "controls", "harmless"]

FEWEST = 7
"""Calibration runs below which a replay on another stack cannot be judged."""

_FIRST = ("threads", "gradients", "gradients", "weights", "weights", "activations", "activations")
_MORE = ("weights", "activations", "gradients")

_KERNELS = {
    "cpu": {"MKL_CBWR": "COMPATIBLE", "ONEDNN_MAX_CPU_ISA": "SSE41"},
    "cuda": {"TORCH_BLAS_PREFER_CUBLASLT": "1"},
    "rocm": {"TORCH_BLAS_PREFER_HIPBLASLT": "1"},
}
"""Other kernels for the same operations."""


@dataclass(frozen=True, slots=True)
class Variant:
    """One more run of the whole pilot, with a name for its phase and variables that differ."""

    name: str
    environment: Mapping[str, str]


def _variables(kind: str, number: int, accelerator: str, environment: Mapping[str, str]) -> dict[str, str]:
    if kind == "threads":
        return {"OMP_NUM_THREADS": "2" if environment.get("OMP_NUM_THREADS") == "1" else "1"}
    if kind == "kernels":
        return dict(_KERNELS[accelerator])
    return {"REPRO_PERTURB": f"{kind}-{number}"}


def controls() -> tuple[Variant, ...]:
    """Plan the runs that mean something: a learning rate 1 % higher, and another order of the data."""
    return tuple(Variant(f"control/{name}", {"REPRO_PERTURB": name}) for name in ("rate-1", "data-1"))


def harmless(count: int, accelerator: str, environment: Mapping[str, str]) -> tuple[Variant, ...]:
    """Plan `count` calibration runs, of every kind before a kind's second helping.

    Args:
        count: at least `FEWEST`.
        environment: variables that the pilot itself starts with.
    """
    seen: dict[str, int] = {}
    variants = []
    for kind in islice(chain(_FIRST, ("kernels",), cycle(_MORE)), count):
        number = seen[kind] = seen.get(kind, 0) + 1
        variables = _variables(kind, number, accelerator, environment)
        variants.append(Variant(f"calibration/{kind}-{number}", variables))
    return tuple(variants)
