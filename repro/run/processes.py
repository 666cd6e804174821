"""One process for each accelerator: what a command starts, against what it would see."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Literal

from repro.errors import RunError

__all__ = ["processes_of", "require_one_process_each", "visible"]

_TORCHRUN = re.compile(r"--nproc[-_]per[-_]node(?:=(.*))?")
_ACCELERATE = re.compile(r"--num[-_]processes(?:=(.*))?")
_SHORT = "-n"  # of `accelerate launch`
_EACH = ("gpu", "auto")
"""What `torchrun` takes for one process on each device."""

_HIDING = {
    "cuda": ("CUDA_VISIBLE_DEVICES",),
    "rocm": ("ROCR_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"),
}
"""Variables by which a program sees fewer devices than there are."""


def processes_of(command: Sequence[str]) -> int | Literal["each"] | None:
    """Return how many training processes a command starts on one machine.

    `each` is one on each device. None where the command does not say: a shell script, another launcher.
    """
    words = list(command)
    launcher = next((word.rpartition("/")[2] for word in words[:1]), "")
    if launcher == "torchrun" or "torch.distributed.run" in words:
        return _counted(words, (_TORCHRUN,))
    if launcher == "accelerate":
        return _counted(words, (_ACCELERATE,), short=_SHORT)
    return 1 if launcher.startswith("python") else None


def _counted(
    words: Sequence[str], patterns: Sequence[re.Pattern[str]], short: str | None = None
) -> int | Literal["each"] | None:
    for at, word in enumerate(words):
        for pattern in patterns:
            found = pattern.fullmatch(word)
            if found is None and word != short:
                continue
            value = found[1] if found is not None and found[1] is not None else words[at + 1 : at + 2]
            text = value if isinstance(value, str) else "".join(value)
            if text in _EACH:
                return "each"
            return int(text) if text.isdigit() else None
    return 1


def visible(accelerator: str, devices: int, environment: Mapping[str, str]) -> int:
    """Return how many of a machine's devices a program with this environment sees."""
    for name in _HIDING.get(accelerator, ()):
        if name in environment:
            listed = [item for item in environment[name].split(",") if item.strip() and item.strip() != "-1"]
            devices = min(devices, len(listed))
    return devices


def require_one_process_each(
    command: Sequence[str], accelerator: str, devices: int, environment: Mapping[str, str]
) -> None:
    """Refuse a command that starts more or fewer processes than it would see accelerators.

    Args:
        command: of the pilot.
        accelerator: what it trains on; nothing is asked of `cpu`.
        devices: how many the machine has; where there is none, the runtime says why.
        environment: what the pilot starts with.

    Raises:
        RunError: `processes-differ`.
    """
    started = processes_of(command)
    if accelerator == "cpu" or devices == 0 or started in (None, "each"):
        return
    seen = visible(accelerator, devices, environment)
    if started == seen:
        return
    hidden = f", of which it sees {seen}" if seen != devices else ""
    variable = _HIDING[accelerator][0]
    raise RunError(
        "processes-differ",
        f"the pilot starts {_count(started, 'process', 'processes')} and this machine has "
        f"{_count(devices, 'accelerator', 'accelerators')}{hidden}: one process for each is needed",
        where="pilot.command",
        remedy=f"start {seen} in repro.yaml, or name the devices to use in its {variable}, "
        f"such as {variable}: {','.join(map(str, range(int(started or 1))))!r}",
    )


def _count(number: int | str | None, one: str, many: str) -> str:
    return f"{number} {one if number == 1 else many}"
