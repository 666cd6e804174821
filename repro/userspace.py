"""What a run itself loaded, read where it ran: in the image, or in the virtual environment."""

from __future__ import annotations

from typing import Literal

from repro.noun import Noun

__all__ = ["TorchDevice", "Userspace"]


class TorchDevice(Noun):
    """A device as torch sees it."""

    name: str | None = None
    arch: str | None = None
    """`sm_90`, `gfx942:sramecc+:xnack-`."""
    memory_mib: int | None = None


class Userspace(Noun):
    """What the run itself loaded, read where it ran: in the image, or in the virtual environment."""

    backend: Literal["cpu", "cuda", "rocm"] | None = None
    python: str | None = None
    os: str | None = None
    libc: str | None = None
    torch: str | None = None
    """`torch.__version__`."""
    torch_distribution: str | None = None
    """Version of the installed distribution, which a lock must name."""
    torch_git: str | None = None
    torch_config: str | None = None
    """SHA-256 of `torch.__config__.show()`: build flags, BLAS, oneDNN."""
    cuda_build: str | None = None
    cuda_runtime: str | None = None
    cudnn: str | None = None
    nccl: str | None = None
    hip_build: str | None = None
    hip_runtime: str | None = None
    miopen: str | None = None
    capability: str | None = None
    """ATen's CPU capability: `DEFAULT`, `AVX2`, `AVX512`."""
    threads: int | None = None
    interop_threads: int | None = None
    devices: tuple[TorchDevice, ...] | None = None
    """Every device it can use; null where the source does not count them."""
    model: TorchDevice | None = None
    """The model a source names without saying how many there are."""
    knobs: dict[str, str | None] | None = None
    """Determinism switches and what they were set to; null for one that was not set."""
    rng_probe: dict[str, str] | None = None
    """Device to digest of random numbers it draws from one seed."""
    packages: dict[str, str] | None = None
