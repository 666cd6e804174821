"""Perturbs a run on purpose, so that one can tell how far harmless differences grow in it.

Three perturbations mean nothing: noise in the last bit of every gradient, of every
weight before the first step, of every output of a leaf module. Two mean something
and serve as negative controls: a learning rate 1 % higher, another order of the
data. `docs/tolerance.md` says what they are for; `repro/run/calibrate.py` asks for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from .guard import unseen

__all__ = ["RATE", "apply", "roundoff"]

RATE = 1.01
"""Factor of the learning rate in the control `rate`."""

_ROUNDOFF = {
    torch.float64: 2.0**-52,
    torch.float32: 2.0**-23,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-8,
}
_is_compiling = torch.compiler.is_compiling


def roundoff(dtype: torch.dtype) -> float | None:
    """Relative size of noise in the last bit; None for a type that is not among the usual floating ones."""
    if dtype == torch.float32 and torch.cuda.is_available() and torch.backends.cuda.matmul.allow_tf32:
        return _ROUNDOFF[torch.float16]
    return _ROUNDOFF.get(dtype)


def _local(tensor: torch.Tensor) -> torch.Tensor:
    """Return this rank's part of a sharded tensor, or the tensor itself."""
    return getattr(tensor, "_local_tensor", tensor)


class _Noise:
    """Noise that every rank draws alike, so that replicas stay equal, by generators of its own."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.drawn = 0
        self.coarsest = _ROUNDOFF[torch.float32]
        """Of all that leaf modules have put out: what gradients are rounded to on their way."""

    def see(self, dtype: torch.dtype) -> None:
        if (size := roundoff(dtype)) is not None:
            self.coarsest = max(self.coarsest, size)

    def of(self, value: torch.Tensor, size: float) -> torch.Tensor:
        """Return `value * (1 ± size)`, signs drawn for each element."""
        self.drawn += 1
        draw = torch.Generator(device=value.device).manual_seed(self.seed * 1_000_003 + self.drawn)
        signs = torch.randint(0, 2, value.shape, generator=draw, device=value.device, dtype=torch.int8)
        wide = torch.promote_types(value.dtype, torch.float32)
        return (value.to(wide) * (1 + size * (2 * signs.to(wide) - 1))).to(value.dtype)

    def into(self, tensor: torch.Tensor, size: float | None = None) -> None:
        """Perturb a tensor in its place; what is not dense and floating stays."""
        part = _local(tensor)
        if part.layout == torch.strided and (own := roundoff(part.dtype)) is not None:
            part.copy_(self.of(part, own if size is None else size))


def _tensors(optimizer: Any) -> Iterator[torch.Tensor]:
    for group in optimizer.param_groups:
        yield from group["params"]


def _weights(noise: _Noise) -> None:
    """Perturb the parameters of the outermost module before its first forward pass."""
    done: list[bool] = []

    def before(module: Any, _: Any) -> None:
        if done or _is_compiling() or not (parameters := list(module.parameters())):
            return
        done.append(True)
        with torch.no_grad():
            for parameter in parameters:
                noise.into(parameter)

    torch.nn.modules.module.register_module_forward_pre_hook(unseen(before))


def _gradients(noise: _Noise) -> None:
    """Perturb every gradient before the optimizer reads it."""

    def see(_: Any, given: Any, output: Any) -> None:  # noqa: ARG001 - torch gives both
        if not _is_compiling() and isinstance(output, torch.Tensor):
            noise.see(output.dtype)

    def before(optimizer: Any, *_: Any) -> None:
        if _is_compiling():
            return
        with torch.no_grad():
            for tensor in _tensors(optimizer):
                if tensor.grad is not None:
                    noise.into(tensor.grad, noise.coarsest)

    torch.nn.modules.module.register_module_forward_hook(unseen(see))
    register_optimizer_step_pre_hook(unseen(before))


def _activations(noise: _Noise) -> None:
    """Perturb what leaf modules put out."""

    def after(module: Any, _: Any, output: Any) -> Any:
        leaf = next(module.children(), None) is None
        if _is_compiling() or not leaf or not isinstance(output, torch.Tensor):
            return None
        size = roundoff(output.dtype)
        return None if size is None else _AddNoise.apply(output, noise, size)

    torch.nn.modules.module.register_module_forward_hook(unseen(after))


class _AddNoise(torch.autograd.Function):  # type: ignore[misc]
    """Noise that gradients pass through as they are."""

    @staticmethod
    def forward(_: Any, value: torch.Tensor, noise: _Noise, size: float) -> torch.Tensor:
        return noise.of(value, size)

    @staticmethod
    def backward(_: Any, gradient: torch.Tensor) -> tuple[torch.Tensor, None, None]:
        return gradient, None, None


def _rate(_: _Noise) -> None:
    """Take every step with a learning rate that is 1 % higher."""
    kept: dict[int, list[Any]] = {}

    def before(optimizer: Any, *_: Any) -> None:
        kept[id(optimizer)] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * RATE

    def after(optimizer: Any, *_: Any) -> None:
        for group, rate in zip(optimizer.param_groups, kept.pop(id(optimizer), []), strict=False):
            group["lr"] = rate

    register_optimizer_step_pre_hook(unseen(before))
    register_optimizer_step_post_hook(unseen(after))


def _data(_: _Noise) -> None:
    """Take the data in another order: backwards, where one of torch's own samplers says the order."""
    from torch.utils.data import RandomSampler, SequentialSampler
    from torch.utils.data.distributed import DistributedSampler

    for kind in (RandomSampler, SequentialSampler, DistributedSampler):
        kind.__iter__ = _backwards(kind.__iter__)


def _backwards(original: Any) -> Any:
    @functools.wraps(original)
    def __iter__(self: Any) -> Iterator[Any]:  # noqa: N807
        return iter(list(original(self))[::-1])

    return unseen(__iter__)


_KINDS: dict[str, Callable[[_Noise], None]] = {
    "activations": _activations,
    "data": _data,
    "gradients": _gradients,
    "rate": _rate,
    "weights": _weights,
}


def apply(order: str) -> None:
    """Arm one perturbation, given as its kind, a dash, and the seed of its noise.

    Raises:
        ValueError: there is no such kind.
    """
    kind, _, number = order.rpartition("-")
    if kind not in _KINDS or not number.isdecimal():
        raise ValueError(f"no perturbation is called {order!r}")
    _KINDS[kind](_Noise(int(number)))
