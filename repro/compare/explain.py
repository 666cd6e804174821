"""Which input differences can explain that two runs differ, the likeliest first."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from repro.verdict import Deviation, Explanation

__all__ = ["CATEGORIES", "explain"]

CATEGORIES = (
    "configuration",
    "seed",
    "data",
    "model",
    "source",
    "packages",
    "knobs",
    "architecture",
    "driver",
    "image",
    "environment",
    "host",
)
"""What may differ, in the order of suspicion where nothing is known of the effect."""

_SUSPECTS: dict[str, tuple[str, ...]] = {
    "inputs-differ": ("data", "seed", "configuration", "source", "packages"),
    "data-position-lost": ("source", "packages", "data"),
    "modules-differ": ("source", "configuration", "packages", "model"),
    "tensors-differ": ("source", "configuration", "model", "data", "packages"),
    "weights-before-differ": ("model", "seed", "configuration", "source", "packages", "architecture"),
    "hyper-parameters-differ": ("configuration", "source", "packages"),
    "optimizers-differ": ("configuration", "source", "packages"),
    "rng-differs": ("seed", "configuration", "source", "packages"),
    "steps-missing": ("configuration", "data", "source"),
    "steps-extra": ("configuration", "data", "source"),
}
"""By what differs first, the inputs that it is made from."""

_COMPUTED = ("packages", "knobs", "architecture", "driver", "source", "configuration", "image")
"""The same for everything that kernels compute: loss, gradients, updates, evaluations."""

_KERNELS = (
    "torch", "triton", "nvidia-", "cuda", "cudnn", "cublas", "nccl", "rccl", "rocm", "miopen", "hipblas",
    "flash-attn", "flash_attn", "xformers", "transformer-engine", "bitsandbytes", "mkl", "onednn", "intel-",
    "numpy", "apex", "deepspeed", "mamba", "causal-conv1d",
)  # fmt: skip
"""Beginnings of names of packages that bring kernels or numerical libraries."""


def explain(
    target: Mapping[str, Any], candidate: Mapping[str, Any], *, first: Deviation | None = None
) -> tuple[Explanation, ...]:
    """Rank the differences of two sets of input facts.

    Args:
        target: category to facts. A category is one of `CATEGORIES`, its facts are one plain value or a
            mapping of name to value, such as `{"packages": {"torch": "2.9.0"}, "seed": 7}`.
        candidate: the same of the other run. A category that only one side states is not compared.
        first: what differs first, where that is known; inputs it is made from go first.
    """
    suspects = _SUSPECTS.get(first.kind, _COMPUTED) if first is not None else CATEGORIES
    found = []
    for category in sorted(target.keys() & candidate.keys()):
        a, b = _named(target[category]), _named(candidate[category])
        for name in sorted(a.keys() | b.keys()):
            if a.get(name) != b.get(name):
                found.append(_explanation(category, name, a.get(name), b.get(name)))
    return tuple(sorted(found, key=lambda one: (_rank(one, suspects), one.category, one.name)))


def _named(facts: Any) -> Mapping[str, Any]:
    return facts if isinstance(facts, Mapping) else {"": facts}


def _rank(one: Explanation, suspects: tuple[str, ...]) -> tuple[int, int]:
    order = (*suspects, *CATEGORIES, one.category)
    loads_kernels = one.category == "packages" and one.name.lower().startswith(_KERNELS)
    return order.index(one.category), 0 if loads_kernels else 1


def _explanation(category: str, name: str, a: Any, b: Any) -> Explanation:
    target, candidate = (None if side is None else str(side) for side in (a, b))
    told = f"{category} {name}".rstrip()
    sides = [side if side is not None else "absent" for side in (target, candidate)]
    return Explanation(
        category=category,
        name=name,
        target=target,
        candidate=candidate,
        sentence=f"{told}: {sides[0]} in the target, {sides[1]} in the candidate",
    )
