"""Sets and reads the torch settings of `knobs`."""

from __future__ import annotations

import sys
from typing import Any

import torch

from . import knobs

__all__ = ["apply", "changed", "read", "seed"]


def apply(level: str) -> None:
    """Set what `level` asks for.

    `strict` refuses operations that cannot repeat, `warn` names them, `off` changes nothing.
    """
    if level not in ("strict", "warn"):
        return
    torch.use_deterministic_algorithms(True, warn_only=level == "warn")
    for knob in knobs.KNOBS:
        owner, _, attribute = knob.name.rpartition(".")
        if not knob.is_variable and knob.strict is not None and not callable(_look_up(knob.name)):
            setattr(_look_up(owner), attribute, knob.strict == "True")


def seed(value: int) -> None:
    """Seed torch on every device; devices not yet started are seeded when they are."""
    torch.manual_seed(value)


def changed(level: str) -> list[str]:
    """Say which settings are not as `level` set them: the program changed them since.

    A variable counts only where it is set, as those of other accelerators are not.
    """
    if level not in ("strict", "warn"):
        return []
    held = read()
    return [
        f"{knob.name} is {held[knob.name]}, not {knob.strict} as {level} demands"
        for knob in knobs.KNOBS
        if knob.strict is not None and held[knob.name] not in (None, knob.strict)
    ]


def _look_up(path: str) -> Any:
    found: Any = torch
    for name in path.split(".")[1:]:
        found = getattr(found, name)
    return found


def read() -> dict[str, str | None]:
    """Return every knob's value as text, None where it is unset, unknown here, or cannot be read."""
    settings: dict[str, str | None] = {}
    for knob in knobs.KNOBS:
        if knob.is_variable or (knob.layer == "compiler" and "torch._inductor.config" not in sys.modules):
            continue
        try:
            found = _look_up(knob.name)
            settings[knob.name] = str(found() if callable(found) else found)
        except (AttributeError, RuntimeError, AssertionError):
            settings[knob.name] = None
    return knobs.values(settings)
