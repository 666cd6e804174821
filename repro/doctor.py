"""What a machine can lock, build, run, replay and verify, and how to mend what it cannot.

Pure: facts in, findings out. Text and tables are the command's affair.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

from repro.host import HostFacts, NoAnswer, NoAnswerKind, Vendor
from repro.noun import Noun

__all__ = ["Finding", "examine"]


class Finding(Noun):
    """One thing a machine can do, or cannot yet."""

    can: Literal["lock", "build", "run", "replay", "verify"]
    accelerator: Literal["cpu", "cuda", "rocm"] | None = None
    """Null where it makes no difference."""
    ok: bool
    reason: str
    remedy: str | None = None
    """What to do; never null where `ok` is false."""


_VENDORS: dict[Literal["cuda", "rocm"], Vendor] = {"cuda": "nvidia", "rocm": "amd"}
_VENDOR_NAMES: dict[Vendor, str] = {"nvidia": "NVIDIA", "amd": "AMD"}

_REMEDIES: dict[NoAnswerKind, str] = {
    "tool-missing": "use a machine with such a device, or install its vendor's driver and tools",
    "no-devices": "pass the device to this machine or container, and see that no variable hides it",
    "driver-not-loaded": "load the driver's kernel module; after a new kernel, install it for that one",
    "device-access-lost": "start the container again, with its devices; a reload of systemd takes them away",
    "driver-library-mismatch": "restart the machine or reload the driver: only half of it was updated",
    "gpu-error-state": "reset the device or restart the machine; the kernel's log says what happened to it",
    "permission-denied": "let this user open the device nodes, as a rule by the groups video and render",
    "library-missing": "give the container the driver's libraries, or install them beside the driver",
    "timed-out": "a device hangs: look into the kernel's log, then reset it or restart the machine",
    "tool-failed": "run the vendor's tool by hand and mend what it complains of",
    "unreadable": "run the vendor's tool by hand; if its answer looks sound, report it with the raw text",
}

_NO_ENGINE = "start Docker or Podman; `--runtime host` runs without one, in an environment made from the lock"
_NO_TOOLKIT = (
    "install NVIDIA's container toolkit, set it up for the engine with `nvidia-ctk runtime configure`, "
    "and restart the engine; or use `--runtime host`"
)


def examine(
    facts: HostFacts, *, engine_trouble: str | None = None, tools: Collection[str] = ()
) -> tuple[Finding, ...]:
    """Return every finding, in the order of the pipeline.

    Args:
        facts: of this machine; `facts.engine` is null where no engine answered.
        engine_trouble: why no engine answered, as the engine's adapter says it.
        tools: commands that were found, of `git`.
    """
    runs = [_run(facts, accelerator, engine_trouble) for accelerator in ("cpu", "cuda", "rocm")]
    return (
        _lock(tools),
        _build(facts, engine_trouble),
        *runs,
        *(finding.model_copy(update={"can": "replay"}) for finding in runs),
        Finding(can="verify", ok=True, reason="offline: a run folder and your own trust.yaml are enough"),
    )


def _lock(tools: Collection[str]) -> Finding:
    if "git" in tools:
        return Finding(
            can="lock", ok=True, reason="packages and references are resolved by network; git is there"
        )
    return Finding(
        can="lock",
        ok=True,
        reason="packages and references are resolved by network; without git no commit is recorded",
        remedy="install git to record the source's commit and to lock git references",
    )


def _build(facts: HostFacts, trouble: str | None) -> Finding:
    if facts.engine is None:
        return Finding(
            can="build", ok=False, reason=trouble or "no container engine answers", remedy=_NO_ENGINE
        )
    return Finding(can="build", ok=True, reason=f"{facts.engine.name} {facts.engine.version} answers")


def _run(facts: HostFacts, accelerator: Literal["cpu", "cuda", "rocm"], trouble: str | None) -> Finding:
    """Say whether a pilot can run: is the device there, and can the engine hand it on?"""
    if accelerator != "cpu" and (barred := _device_barred(facts, accelerator)):
        return barred
    engine = facts.engine
    if engine is None:
        reason = f"on the host only: {trouble or 'no container engine answers'}"
        return Finding(can="run", accelerator=accelerator, ok=True, reason=reason, remedy=_NO_ENGINE)
    nvidia = facts.driver.nvidia
    if (
        accelerator == "cuda"
        and "nvidia" not in engine.runtimes
        and not (nvidia and nvidia.container_toolkit)
    ):
        reason = f"{engine.name} has no runtime for NVIDIA devices, and no container toolkit was found"
        return Finding(can="run", accelerator=accelerator, ok=False, reason=reason, remedy=_NO_TOOLKIT)
    place = f"in {engine.name} {engine.version}"
    if accelerator == "cpu":
        return Finding(can="run", accelerator=accelerator, ok=True, reason=place)
    devices = facts.devices_of(_VENDORS[accelerator])
    names = sorted({device.name or device.name_start or "unnamed" for device in devices})
    reason = f"{place}, on {len(devices)} × {', '.join(names)}"
    return Finding(can="run", accelerator=accelerator, ok=True, reason=reason)


def _device_barred(facts: HostFacts, accelerator: Literal["cuda", "rocm"]) -> Finding | None:
    vendor = _VENDORS[accelerator]
    devices = facts.devices_of(vendor)
    sick = [device for device in devices if device.state == "error"]
    if devices and len(sick) < len(devices):
        return None
    answer = facts.why_none(vendor)
    kind: NoAnswerKind = "gpu-error-state" if sick else answer.kind if answer else "tool-missing"
    reason = "every device is in an error state" if sick else _why(vendor, answer)
    return Finding(can="run", accelerator=accelerator, ok=False, reason=reason, remedy=_REMEDIES[kind])


def _why(vendor: Vendor, answer: NoAnswer | None) -> str:
    """Say why no device is known, in the source's own words where it has any."""
    if answer is None or answer.kind == "tool-missing":
        return f"no {_VENDOR_NAMES[vendor]} driver or tool is here"
    said = f": {answer.said}" if answer.said else ""
    return f"{answer.source} says {answer.kind}{said}"
