"""The comparability rule as data: every fact, what it must be equal for, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from repro.comparability.sides import (
    Read,
    amd,
    devices_division,
    devices_model,
    driver,
    driver_family,
    links,
    listing,
    nvidia,
    of_cpu,
    of_devices,
    of_os,
    of_userspace,
    torch_devices,
    torch_release,
)

__all__ = ["RULES", "Need", "Rule"]

Need = Literal["tolerance", "bitwise", "inform"]
"""Equal for any comparison of numbers; equal for bits; it only informs."""

_ALL = frozenset(("cpu", "cuda", "rocm"))
_GPU = frozenset(("cuda", "rocm"))
_CUDA = frozenset(("cuda",))
_ROCM = frozenset(("rocm",))


@dataclass(frozen=True, slots=True)
class Rule:
    """A fact, what it is needed for, and why."""

    fact: str
    need: Need
    read: Read
    why: str
    on: frozenset[str] = _ALL
    """Accelerators it means anything for."""
    in_image: bool = False
    """An equal image makes it equal, known or not."""
    required: bool = False
    """Where bits are asked for, it must be known."""


_KERNELS = "another library has other kernels, which add in another order"
_OUTSIDE = "outside of the image"
_SPEED = "speed, not numbers"

_TOLERANCE = (
    Rule(
        "torch release",
        "tolerance",
        torch_release,
        "another release initialises, draws and updates in other ways, of which calibration says nothing",
        in_image=True,
    ),
)

_BITWISE = (
    Rule(
        "accelerator",
        "bitwise",
        lambda side: side.accelerator,
        "processors and each vendor's devices add in other orders and draw other random numbers",
        required=True,
    ),
    Rule(
        "image",
        "bitwise",
        lambda side: side.image or "none",
        "another image holds other libraries",
        required=True,
    ),
    Rule(
        "device model",
        "bitwise",
        devices_model,
        "kernels are chosen and split by architecture and model",
        on=_GPU,
        required=True,
    ),
    Rule(
        "device division",
        "bitwise",
        devices_division,
        "a MIG device or partition has fewer units, and work is split by their number",
        on=_GPU,
        required=True,
    ),
    Rule(
        "compute units",
        "bitwise",
        of_devices("compute_units"),
        "which random number goes to which element depends on their number",
        on=_GPU,
    ),
    Rule(
        "torch devices", "bitwise", torch_devices, "what torch saw, features and overrides included", on=_GPU
    ),
    Rule(
        "driver family",
        "bitwise",
        driver_family,
        "a branch of the driver brings its own compiler and its own kernels",
        on=_GPU,
        required=True,
    ),
    Rule(
        "CUDA of the driver",
        "bitwise",
        lambda side: nvidia(side).cuda,
        "the loaded libcuda compiles PTX, and a compat layer changes it",
        on=_CUDA,
    ),
    Rule(
        "links between devices",
        "bitwise",
        links,
        "collectives choose their order of addition by them",
        on=_GPU,
    ),
    Rule("torch", "bitwise", of_userspace("torch"), _KERNELS, in_image=True, required=True),
    Rule(
        "torch build",
        "bitwise",
        of_userspace("torch_config"),
        "flags, BLAS and oneDNN that torch was built with",
        in_image=True,
    ),
    Rule("CUDA", "bitwise", of_userspace("cuda_build"), _KERNELS, on=_CUDA, in_image=True),
    Rule("cuDNN", "bitwise", of_userspace("cudnn"), _KERNELS, on=_CUDA, in_image=True),
    Rule("HIP", "bitwise", of_userspace("hip_build"), _KERNELS, on=_ROCM, in_image=True),
    Rule("HIP runtime", "bitwise", of_userspace("hip_runtime"), _KERNELS, on=_ROCM, in_image=True),
    Rule("MIOpen", "bitwise", of_userspace("miopen"), _KERNELS, on=_ROCM, in_image=True),
    Rule("NCCL or RCCL", "bitwise", of_userspace("nccl"), _KERNELS, on=_GPU, in_image=True),
    Rule("CPU vendor", "bitwise", of_cpu("vendor"), "MKL and oneDNN choose kernels by it", required=True),
    Rule(
        "CPU flags",
        "bitwise",
        of_cpu("flags"),
        "they decide which vector kernels run, and with them the weights drawn on the processor",
        required=True,
    ),
    Rule(
        "ATen capability",
        "bitwise",
        of_userspace("capability"),
        "randn and trunc_normal_ differ in their bits between capabilities",
        required=True,
    ),
    Rule(
        "torch threads",
        "bitwise",
        of_userspace("threads"),
        "sums are split by the number of threads",
        required=True,
    ),
    Rule("knobs", "bitwise", listing("knobs"), "each switch chooses kernels, precision or order"),
    Rule(
        "random numbers",
        "bitwise",
        listing("rng_probe"),
        "one seed must give one sequence; a tolerance needs equal weights at the start all the same",
    ),
)

_INFORM = (
    Rule("Python", "inform", of_userspace("python"), "order of sets, random module", in_image=True),
    Rule("driver", "inform", driver, "within a family, fixes only", on=_GPU),
    Rule(
        "driver origin",
        "inform",
        lambda side: amd(side).origin,
        "installed apart, or the kernel's own",
        on=_ROCM,
    ),
    Rule("ROCm of the tools", "inform", lambda side: amd(side).rocm, _OUTSIDE, on=_ROCM),
    Rule(
        "device count",
        "inform",
        lambda side: str(len(side.devices())),
        "the run's own world size is compared apart",
        on=_GPU,
    ),
    Rule(
        "device memory",
        "inform",
        of_devices("memory_mib"),
        "work spaces, and with them algorithms, are chosen by what is free",
        on=_GPU,
    ),
    Rule("ECC", "inform", of_devices("ecc"), "without it, bits may flip", on=_GPU),
    Rule("VBIOS", "inform", of_devices("vbios"), "clocks and fixes", on=_GPU),
    Rule("power limit", "inform", of_devices("power_limit_mw"), _SPEED, on=_GPU),
    Rule(
        "virtualization",
        "inform",
        of_devices("virtualization"),
        "a shared device is slower, not other",
        on=_GPU,
    ),
    Rule("CPU model", "inform", of_cpu("model"), "vendor and flags decide"),
    Rule("CPU threads", "inform", of_cpu("usable_threads"), "torch's own threads decide"),
    Rule("NUMA nodes", "inform", of_cpu("numa_nodes"), _SPEED),
    Rule("microcode", "inform", of_cpu("microcode"), "fixes of the processor"),
    Rule("memory", "inform", of_cpu("memory_mib"), _SPEED),
    Rule("kernel", "inform", of_os("kernel"), "scheduling, not numbers"),
    Rule("operating system", "inform", of_os("name"), _OUTSIDE),
    Rule("libc of the host", "inform", of_os("libc"), _OUTSIDE),
    Rule(
        "engine",
        "inform",
        lambda side: f"{side.host.engine.name} {side.host.engine.version}" if side.host.engine else None,
        "it starts the run and computes nothing",
    ),
)

RULES: tuple[Rule, ...] = (*_TOLERANCE, *_BITWISE, *_INFORM)
