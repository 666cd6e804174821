"""Variants of the pilots: which mean nothing, and which a replay must not pass with.

Each is a line of settings for `programs/variants.py`. Mistakes are such as people
make, from another seed to a warm-up that is off by one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

__all__ = ["KERNELS", "PILOTS", "Population"]

LAST_BIT = {"float32": 2.0**-23, "bfloat16": 2.0**-8}
"""Relative size of the last bit of what modules put out."""

KERNELS: dict[str, dict[str, str]] = {
    "plain": {},
    "isa-default": {"ATEN_CPU_CAPABILITY": "default"},
    "isa-avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "mkl-compatible": {"MKL_CBWR": "COMPATIBLE"},
    "mkl-avx2": {"MKL_CBWR": "AVX2"},
    "mkl-sse4": {"MKL_CBWR": "SSE4_2"},
    "onednn-sse41": {"ONEDNN_MAX_CPU_ISA": "SSE41"},
    "onednn-avx2": {"ONEDNN_MAX_CPU_ISA": "AVX2"},
}
"""Variables of a process; each is a process of its own."""

_FAULTS = {
    "seed": "seed=1",
    "order of the data": "data=1",
    "data off by one batch": "skip=1",
    "batch twice": "repeat=5",
    "first value of the data": "byte=0",
    "one value of the data": "byte=9",
    "batch turned round": "turn=1",
    "batch in two": "pieces=2",
    "batch in two, sum for mean": "pieces=2 unscaled=1",
    "one label": "label=9",
    "one late label": "label=14",
    "learning rate 0.01 %": "rate=1.0001",
    "learning rate 1 %": "rate=1.01",
    "no weight decay": "decay=0",
    "momentum": "beta1=0.89",
    "warm-up a step short": "warm=3",
    "warm-up a step long": "warm=5",
    "dropout 0.101": "dropout=0.101",
    "dropout 0.11": "dropout=0.11",
    "no dropout": "dropout=0",
    "dropout off in one step": "eval=3",
    "float64": "double=1",
    "label smoothing 1e-4": "smooth=1e-4",
    "label smoothing 1e-3": "smooth=1e-3",
    "penalty": "l2=1e-4",
    "loss 0.1 % larger": "times=1.001",
    "clipping 0.3": "clip=0.3",
    "clipping 0.1": "clip=0.1",
    "frozen weights": "frozen=1",
    "shifted input": "shift=1",
    "one output 0.1 % larger": "scale=1.001",
    "another activation": "tanh=1",
    "epsilon of a norm": "normeps=1e-4",
    "other weights 1e-5": "weights=1e-5 draw=3",
    "other weights 1e-4": "weights=1e-4 draw=3",
    "noisy gradients": "gradients=1e-3 draw=3",
    "noisy activations": "activations=1e-3 draw=3",
    "lost update": "lost=8",
    "weights moved 1e-4": "bump=5 by=1e-4",
    "weights moved late": "bump=12 by=1e-3",
    "optimizer state lost": "forget=8",
    "gradients not cleared": "keep=1",
    "a step short": "steps=15",
}


@dataclass(frozen=True)
class Population:
    """One pilot and its variants, by name."""

    program: str
    always: str
    """Settings of every variant."""
    probe: bool
    """Whether the target has an fp32 probe."""
    kernels: str
    """The setting that computes the same in another way."""
    faults: Mapping[str, str]
    last_bit: float

    def harmless(self) -> dict[str, str]:
        """Variants of one process that mean nothing; `{bit}` stands for the size of noise in the last bit."""
        ways = {"threads": "threads=2", "no oneDNN": "nomkldnn=1", "loop": "loop=1", "nll": "nll=1"}
        found = {"again": "", "once more": "", **ways}
        for one, other in combinations(ways, 2):
            found[f"{one}, {other}"] = f"{ways[one]} {ways[other]}"
        found["all of these"] = " ".join(ways.values())
        for name, settings in {"kernels": "", **ways}.items():
            found[f"own {name}"] = f"{self.kernels} {settings}"
        for kind in ("gradients", "activations"):
            for draw in range(41, 50):
                found[f"{kind} {draw}"] = f"{kind}={{bit}} draw={draw}"
        return found


_ADAMW = {"epsilon of the optimizer": "eps=1e-6", "beta2": "beta2=0.99", "weight decay 1 %": "decay=0.0101"}
_SGD = {"running average": "running=0.2", "weight decay 1 %": "decay=0.000101"}
_BF16 = {"bfloat16": "bf16=1"}

PILOTS = {
    "transformer": Population(
        "transformer.py", "", False, "math=1", {**_FAULTS, **_ADAMW, **_BF16}, LAST_BIT["float32"]
    ),
    "convnet": Population(
        "convnet.py", "", False, "channelslast=1", {**_FAULTS, **_SGD, **_BF16}, LAST_BIT["float32"]
    ),
    "transformer in bf16": Population(
        "transformer.py", "bf16=1", True, "math=1", {**_FAULTS, **_ADAMW}, LAST_BIT["bfloat16"]
    ),
}
