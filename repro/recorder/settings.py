"""What the launcher asked of the recorder, read from the environment once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["Settings", "read"]

FIRST_STEPS = 3


class Settings(NamedTuple):
    """Meaning of the `REPRO_*` variables; see `docs/trace.md`."""

    trace: str
    nonce: str
    every: int
    steps: int | None
    stop_after: int | None
    level: str
    seed: int | None
    probe: str
    """`fp32` to switch mixed precision off, else empty."""
    perturb: str
    """A perturbation of `perturb`, such as `weights-1`, else empty."""
    modules: frozenset[int]
    """Steps of which every module call is recorded."""
    only_end: bool
    """Whether nothing but the end is recorded, to show that recording the rest changes nothing."""

    def fingerprints(self, step: int) -> bool:
        """Say whether this step's tensors are fingerprinted; steps count from 1."""
        return step <= FIRST_STEPS or step % self.every == 0 or step == self.steps


def read(environment: Mapping[str, str] = os.environ) -> Settings:
    """Read the settings; a value that is no number counts as unset."""

    def number(name: str) -> int | None:
        text = environment.get(name, "")
        return int(text) if text.isdecimal() else None

    modules = environment.get("REPRO_MODULES", "")
    return Settings(
        trace=environment.get("REPRO_TRACE", ""),
        nonce=environment.get("REPRO_NONCE", ""),
        every=number("REPRO_EVERY") or 5,
        steps=number("REPRO_STEPS"),
        stop_after=number("REPRO_STOP_AFTER"),
        level=environment.get("REPRO_DETERMINISM", "off"),
        seed=number("REPRO_SEED"),
        probe=environment.get("REPRO_PROBE", ""),
        perturb=environment.get("REPRO_PERTURB", ""),
        modules=frozenset(int(step) for step in modules.split(",") if step.isdecimal()),
        only_end=environment.get("REPRO_RECORD", "") == "end",
    )
