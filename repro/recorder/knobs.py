"""Every setting known to decide whether a run repeats bit for bit, as data.

All are recorded. Only those with a value under `strict` are ever set, and only
when the person asked: each of them changes the run. Settings that experts set
differently (communication algorithms, TF32) are recorded and left alone.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

__all__ = ["KNOBS", "Knob", "environment", "values"]


class Knob(NamedTuple):
    """One setting."""

    name: str
    """Environment variable, or dotted path of a torch setting."""
    layer: str
    """What it belongs to."""
    accelerators: tuple[str, ...]
    """Where it matters: `cpu`, `cuda`, `rocm`."""
    when: str
    """When it must be set: before the process `start`s, before the `import` of torch, or at `any` time."""
    strict: str | None
    """Value that makes runs repeat, where there is one that is agreed on."""
    source: str
    """Where that is documented or reported."""

    @property
    def is_variable(self) -> bool:
        """Whether it is an environment variable."""
        return not self.name.startswith("torch.")


_ALL = ("cpu", "cuda", "rocm")
_GPU = ("cuda", "rocm")
_CPU = ("cpu",)
_CUDA = ("cuda",)
_ROCM = ("rocm",)

_REPRODUCIBILITY = "PyTorch notes, Reproducibility"
_NUMERICS = "PyTorch notes, Numerical accuracy"
_NCCL = "NCCL user guide, Environment variables"

KNOBS: tuple[Knob, ...] = (
    Knob("torch.are_deterministic_algorithms_enabled", "torch", _ALL, "any", "True", _REPRODUCIBILITY),
    Knob("torch.is_deterministic_algorithms_warn_only_enabled", "torch", _ALL, "any", None, _REPRODUCIBILITY),
    # Filling new memory changes programs that read it by mistake, and is a race with communication streams.
    Knob(
        "torch.utils.deterministic.fill_uninitialized_memory", "torch", _ALL, "any", "False", _REPRODUCIBILITY
    ),
    Knob("torch.get_float32_matmul_precision", "torch", _ALL, "any", None, _NUMERICS),
    Knob("torch.backends.fp32_precision", "torch", _ALL, "any", None, _NUMERICS),
    Knob("torch.get_default_dtype", "torch", _ALL, "any", None, "torch.set_default_dtype"),
    Knob("torch.backends.cuda.matmul.allow_tf32", "cuBLAS", _CUDA, "any", None, _NUMERICS),
    Knob("torch.backends.cuda.matmul.fp32_precision", "cuBLAS", _CUDA, "any", None, _NUMERICS),
    Knob(
        "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction",
        "cuBLAS",
        _GPU,
        "any",
        None,
        _NUMERICS,
    ),
    Knob(
        "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction",
        "cuBLAS",
        _GPU,
        "any",
        None,
        _NUMERICS,
    ),
    Knob("torch.backends.cuda.matmul.allow_fp16_accumulation", "cuBLAS", _GPU, "any", None, _NUMERICS),
    Knob("torch.backends.cuda.preferred_blas_library", "cuBLAS", _GPU, "any", None, "torch.backends"),
    Knob("torch.backends.cuda.preferred_linalg_library", "cuBLAS", _GPU, "any", None, "torch.backends"),
    Knob("torch.backends.cudnn.enabled", "cuDNN", _GPU, "any", None, "torch.backends"),
    Knob("torch.backends.cudnn.deterministic", "cuDNN", _GPU, "any", "True", _REPRODUCIBILITY),
    Knob("torch.backends.cudnn.benchmark", "cuDNN", _GPU, "any", "False", _REPRODUCIBILITY),
    Knob("torch.backends.cudnn.benchmark_limit", "cuDNN", _GPU, "any", None, "torch.backends"),
    Knob("torch.backends.cudnn.allow_tf32", "cuDNN", _CUDA, "any", None, _NUMERICS),
    Knob("torch.backends.cudnn.conv.fp32_precision", "cuDNN", _CUDA, "any", None, _NUMERICS),
    Knob("torch.backends.cudnn.rnn.fp32_precision", "cuDNN", _CUDA, "any", None, _NUMERICS),
    Knob("torch.backends.cuda.flash_sdp_enabled", "attention", _GPU, "any", None, "pytorch#101847"),
    Knob("torch.backends.cuda.mem_efficient_sdp_enabled", "attention", _GPU, "any", None, "pytorch#101847"),
    Knob("torch.backends.cuda.math_sdp_enabled", "attention", _GPU, "any", None, "pytorch#101847"),
    Knob("torch.backends.cuda.cudnn_sdp_enabled", "attention", _CUDA, "any", None, "torch.backends"),
    Knob("torch.backends.mkldnn.enabled", "oneDNN", _CPU, "any", None, "torch.backends"),
    Knob("torch.backends.mkldnn.deterministic", "oneDNN", _CPU, "any", "True", "torch.backends"),
    Knob("torch.backends.mkldnn.matmul.fp32_precision", "oneDNN", _CPU, "any", None, _NUMERICS),
    Knob("torch.backends.mkldnn.conv.fp32_precision", "oneDNN", _CPU, "any", None, _NUMERICS),
    Knob("torch.get_num_threads", "threads", _CPU, "any", None, "torch.set_num_threads"),
    Knob("torch.get_num_interop_threads", "threads", _CPU, "any", None, "torch.set_num_interop_threads"),
    Knob("torch._inductor.config.deterministic", "compiler", _ALL, "any", None, "torch.compile"),
    Knob("torch._inductor.config.max_autotune", "compiler", _ALL, "any", None, "torch.compile"),
    Knob("torch._inductor.config.fallback_random", "compiler", _ALL, "any", None, "torch.compile"),
    Knob("PYTHONHASHSEED", "python", _ALL, "start", None, "Python, command line and environment"),
    Knob("CUBLAS_WORKSPACE_CONFIG", "cuBLAS", _CUDA, "start", ":4096:8", "cuBLAS, Results reproducibility"),
    Knob("NVIDIA_TF32_OVERRIDE", "cuBLAS", _CUDA, "start", None, "cuBLAS user guide"),
    Knob("TORCH_ALLOW_TF32_CUBLAS_OVERRIDE", "cuBLAS", _CUDA, "start", None, _NUMERICS),
    Knob("TORCH_BLAS_PREFER_CUBLASLT", "cuBLAS", _CUDA, "start", None, "pytorch#161749"),
    Knob("CUBLASLT_WORKSPACE_SIZE", "cuBLAS", _CUDA, "start", None, "PyTorch, CUDA environment variables"),
    Knob("TORCH_CUDNN_V8_API_DISABLED", "cuDNN", _CUDA, "start", None, "PyTorch, CUDA environment variables"),
    Knob("ROCBLAS_DEFAULT_ATOMICS_MODE", "rocBLAS", _ROCM, "start", "0", "pytorch#48654"),
    Knob("TORCH_BLAS_PREFER_HIPBLASLT", "hipBLASLt", _ROCM, "start", None, "PyTorch, HIP semantics"),
    Knob("HIPBLASLT_ALLOW_TF32", "hipBLASLt", _ROCM, "start", None, "PyTorch, HIP semantics"),
    Knob("MIOPEN_FIND_MODE", "MIOpen", _ROCM, "start", None, "MIOpen, Find modes"),
    Knob("MIOPEN_FIND_ENFORCE", "MIOpen", _ROCM, "start", None, "MIOpen, Find modes"),
    Knob("MIOPEN_USER_DB_PATH", "MIOpen", _ROCM, "start", None, "MIOpen, Find database"),
    Knob("MIOPEN_SYSTEM_DB_PATH", "MIOpen", _ROCM, "start", None, "MIOpen, Find database"),
    Knob("PYTORCH_TUNABLEOP_ENABLED", "TunableOp", _GPU, "start", None, "torch.cuda.tunable"),
    Knob("PYTORCH_TUNABLEOP_TUNING", "TunableOp", _GPU, "start", None, "torch.cuda.tunable"),
    Knob("PYTORCH_TUNABLEOP_FILENAME", "TunableOp", _GPU, "start", None, "torch.cuda.tunable"),
    Knob("TORCH_ROCM_FA_PREFER_CK", "attention", _ROCM, "start", None, "PyTorch, HIP semantics"),
    Knob("NVTE_ALLOW_NONDETERMINISTIC_ALGO", "Transformer Engine", _GPU, "start", "0", "Transformer Engine"),
    Knob("NVTE_FLASH_ATTN", "Transformer Engine", _GPU, "start", None, "Transformer Engine"),
    Knob("NVTE_FUSED_ATTN", "Transformer Engine", _GPU, "start", None, "Transformer Engine"),
    Knob("MAMBA_DETERMINISTIC", "state space models", _GPU, "start", "1", "mamba-ssm"),
    Knob("CAUSAL_CONV1D_DETERMINISTIC", "state space models", _GPU, "start", "1", "causal-conv1d"),
    Knob("TORCHINDUCTOR_DETERMINISTIC", "compiler", _ALL, "import", None, "torch.compile"),
    Knob("TORCHINDUCTOR_MAX_AUTOTUNE", "compiler", _ALL, "import", None, "torch.compile"),
    Knob("TORCH_COMPILE_DISABLE", "compiler", _ALL, "import", None, "torch.compile"),
    Knob("NCCL_ALGO", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_PROTO", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_NVLS_ENABLE", "communication", _CUDA, "start", None, _NCCL),
    Knob("NCCL_COLLNET_ENABLE", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_MIN_NCHANNELS", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_MAX_NCHANNELS", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_NTHREADS", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_LAUNCH_MODE", "communication", _GPU, "start", None, _NCCL),
    Knob("NCCL_P2P_NET_DISABLE", "communication", _GPU, "start", None, _NCCL),
    Knob("CUDA_DEVICE_MAX_CONNECTIONS", "communication", _CUDA, "start", None, "CUDA environment variables"),
    Knob("CUDA_LAUNCH_BLOCKING", "driver", _GPU, "start", None, "CUDA environment variables"),
    Knob("PYTORCH_ALLOC_CONF", "allocator", _GPU, "start", None, "PyTorch, CUDA semantics"),
    Knob("PYTORCH_CUDA_ALLOC_CONF", "allocator", _GPU, "start", None, "PyTorch, CUDA semantics"),
    Knob("OMP_NUM_THREADS", "threads", _CPU, "start", None, "OpenMP"),
    Knob("MKL_NUM_THREADS", "threads", _CPU, "start", None, "oneMKL, Threading control"),
    Knob("MKL_DYNAMIC", "threads", _CPU, "start", None, "oneMKL, Threading control"),
    Knob("MKL_CBWR", "oneMKL", _CPU, "start", None, "oneMKL, Conditional numerical reproducibility"),
    Knob("MKL_ENABLE_INSTRUCTIONS", "oneMKL", _CPU, "start", None, "oneMKL, Instruction set dispatch"),
    Knob("ATEN_CPU_CAPABILITY", "torch", _CPU, "start", None, "pytorch, native kernels"),
    Knob("ONEDNN_MAX_CPU_ISA", "oneDNN", _CPU, "start", None, "oneDNN, CPU dispatcher control"),
    Knob("DNNL_MAX_CPU_ISA", "oneDNN", _CPU, "start", None, "oneDNN, CPU dispatcher control"),
    Knob("OPENBLAS_CORETYPE", "OpenBLAS", _CPU, "start", None, "OpenBLAS"),
)


def environment(level: str, *, accelerator: str, seed: int | None) -> dict[str, str]:
    """Return the variables a process must start with.

    Args:
        level: `strict`, `warn` or `off`.
        accelerator: `cpu`, `cuda` or `rocm`.
        seed: seed of the run; also fixes the order of Python's sets.
    """
    wanted = {} if seed is None else {"PYTHONHASHSEED": str(seed % 2**32)}
    if level != "off":
        for knob in KNOBS:
            if knob.is_variable and knob.strict is not None and accelerator in knob.accelerators:
                wanted[knob.name] = knob.strict
    return wanted


def values(
    settings: Mapping[str, str | None], variables: Mapping[str, str] = os.environ
) -> dict[str, str | None]:
    """Return every knob's value: variables as they are, torch settings as the caller read them."""
    return {
        knob.name: variables.get(knob.name) if knob.is_variable else settings.get(knob.name) for knob in KNOBS
    }
