"""Where the recorder listens: hooks that torch offers, and a few functions it wraps.

The functions torch calls are tiny. While torch.compile traces they fold away;
otherwise they hand over to the session, guarded.
"""

from __future__ import annotations

import atexit
import functools
import os
import sys
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from . import checkpoints, determinism, facts, perturb, pipelines, probe
from .emit import Writer
from .guard import Guard, in_backward, unseen
from .session import Session
from .settings import Settings

__all__ = ["install", "observe"]

_MOST_FAILURES = 100

_is_compiling = torch.compiler.is_compiling


class _Depth(threading.local):
    """How deep in module calls this thread is."""

    value = 0


_depth = _Depth()
_outer_thread: list[int] = []
"""The thread whose module call is outermost; replicas of DataParallel run in threads of their own."""


class _Failures:
    """Writes down what the recorder could not do, until there is too much of it."""

    def __init__(self, session: Callable[[], Session]) -> None:
        self._session = session
        self._count = 0

    def __call__(self, where: str, error: BaseException) -> None:
        self._count += 1
        if self._count > _MOST_FAILURES:
            return
        try:
            self._session().failed(where, f"{type(error).__name__}: {error}")
        except Exception as worse:  # noqa: BLE001 - recording must never stop the program
            sys.stderr.write(f"repro: {where}: {error!r}; and that could not be recorded: {worse!r}\n")


class _Installed:
    """The one session of this process and its guarded entry points."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.guard = Guard(_Failures(lambda: self.session))
        self.writer = Writer(settings.trace, lambda: facts.head(settings))
        self.session = session = Session(settings, self.writer, self.guard)
        for work in (
            session.add_optimizer,
            session.after_backward,
            session.after_scaled_step,
            session.after_step,
            session.before_backward,
            session.before_scaled_step,
            session.before_step,
            session.checkpoint,
            session.enter_forward,
            session.failed,
            session.finish,
            session.glance,
            session.imported,
            session.leave_forward,
            session.look_at_loader,
            session.module_returned,
            session.next_pass,
            session.observe,
            session.taken,
        ):
            setattr(self, work.__name__, self.guard(work))

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AttributeError(name)


_installed: _Installed | None = None


def _here() -> _Installed:
    assert _installed is not None
    return _installed


def observe(name: str, tensor: Any) -> None:
    """Record a tensor's fingerprint under a name."""
    if _installed is not None and isinstance(tensor, torch.Tensor):
        _installed.observe(str(name), tensor)


# Entry points that torch calls. Kept small: torch.compile may look at them.


def _before_step(optimizer: Any, args: Any, kwargs: Any) -> None:
    if not _is_compiling() and not checkpoints.rehearsing():
        closure = kwargs.get("closure") or (args[1] if len(args) > 1 else None)
        _here().before_step(optimizer, closure=callable(closure))


def _after_step(optimizer: Any, *_: Any) -> None:
    if not _is_compiling() and not checkpoints.rehearsing():
        _here().after_step(optimizer)


def _enter(module: Any, *_: Any) -> None:
    if _is_compiling():
        return
    depth = _depth.value
    _depth.value = depth + 1
    if depth == 0 and not _outer_thread and not in_backward():
        _outer_thread.append(threading.get_ident())
        _here().enter_forward(module, grad=torch.is_grad_enabled())


def _leave(module: Any, args: Any, *rest: Any) -> None:
    if _is_compiling():
        return
    _depth.value = max(0, _depth.value - 1)
    if _depth.value or threading.get_ident() not in _outer_thread:
        return
    _outer_thread.clear()
    # After an exception torch calls global hooks without the keyword arguments, and with no output.
    if len(rest) == 2 and rest[1] is not None:
        _here().leave_forward(module, args, rest[0], rest[1], grad=torch.is_grad_enabled())


def _returned(module: Any, _args: Any, output: Any) -> None:
    if not _is_compiling():
        _here().module_returned(module, output)


def _wrap_backward() -> None:
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(tensors: Any, *args: Any, **kwargs: Any) -> Any:
        if _is_compiling() or in_backward():
            return original(tensors, *args, **kwargs)
        roots = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        _here().before_backward(roots)
        result = original(tensors if isinstance(tensors, torch.Tensor) else roots, *args, **kwargs)
        _here().after_backward()
        return result

    torch.autograd.backward = unseen(backward)


def _wrap_scaler() -> None:
    kind = torch.amp.GradScaler
    original = kind.step

    @functools.wraps(original)
    def step(self: Any, optimizer: Any, *args: Any, **kwargs: Any) -> Any:
        if not self.is_enabled():
            return original(self, optimizer, *args, **kwargs)
        here = _here()
        before = here.taken(optimizer)
        here.before_scaled_step(self._scale)
        result = original(self, optimizer, *args, **kwargs)
        here.after_scaled_step(optimizer, before)
        return result

    kind.step = unseen(step)


def _wrap_loader() -> None:
    kind = torch.utils.data.dataloader._BaseDataLoaderIter
    original = kind.__next__

    @functools.wraps(original)
    def __next__(self: Any) -> Any:  # noqa: N807
        started = time.perf_counter()
        try:
            return original(self)
        finally:
            _here().session.clock.data_wait += time.perf_counter() - started

    kind.__next__ = unseen(__next__)
    begin = kind.__init__

    @functools.wraps(begin)
    def __init__(self: Any, loader: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        begin(self, loader, *args, **kwargs)
        _here().look_at_loader(loader)

    kind.__init__ = unseen(__init__)


def _note_optimizers() -> None:
    original = torch.optim.Optimizer.__init__

    @functools.wraps(original)
    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:  # noqa: N807
        original(self, *args, **kwargs)
        if not _is_compiling():
            _here().add_optimizer(self)

    torch.optim.Optimizer.__init__ = unseen(__init__)


def _wrap_exits(finish: Callable[[], Any]) -> None:
    """Write the end also where a process leaves without running exit handlers."""
    leave = os._exit

    def _exit(status: int) -> Any:
        finish()
        leave(status)

    os._exit = _exit
    atexit.register(finish)


def _stay_unannounced() -> None:
    """Keep torch.compile from warning the program of module hooks that are only the recorder's."""
    module = torch.nn.modules.module
    ours = {
        name: len(getattr(module, name))
        for name in (
            "_global_backward_pre_hooks",
            "_global_backward_hooks",
            "_global_forward_pre_hooks",
            "_global_forward_hooks",
        )
    }

    def _has_any_global_hook() -> bool:
        return any(len(getattr(module, name)) > count for name, count in ours.items())

    if hasattr(module, "_has_any_global_hook"):
        module._has_any_global_hook = unseen(_has_any_global_hook)


def _name_operations(failed: Callable[[str, str], None], level: str) -> None:
    """Record which operation had no form that repeats: strict mode raises an error, warn mode a warning."""

    def note(said: object) -> None:
        if "deterministic" in str(said):
            failed("determinism", str(said))

    hook = sys.excepthook

    def excepthook(kind: Any, error: BaseException, trace: Any) -> None:
        note(error)
        hook(kind, error, trace)

    show = warnings.showwarning

    def showwarning(message: Any, *args: Any, **kwargs: Any) -> None:
        note(message)
        show(message, *args, **kwargs)

    if level == "strict":
        sys.excepthook = excepthook
    elif level == "warn":
        warnings.showwarning = showwarning


def _after_fork() -> None:
    here = _here()
    here.guard.after_fork()
    here.writer.after_fork()
    here.session.reset()
    _outer_thread.clear()
    _depth.value = 0


def install(module: Any, settings: Settings) -> None:
    """Begin recording: `module` is torch, just imported.

    Raises:
        OSError: the trace cannot be written.
    """
    global _installed
    started = time.perf_counter()
    determinism.apply(settings.level)
    if settings.seed is not None:
        determinism.seed(settings.seed)
    if settings.probe == "fp32":
        probe.apply()
    if settings.perturb:
        perturb.apply(settings.perturb)
    here = _installed = _Installed(settings)
    here.session.imported(time.perf_counter() - started)
    _note_optimizers()
    _wrap_exits(here.finish)
    os.register_at_fork(after_in_child=_after_fork)
    if settings.only_end:
        _glance_once(here)
    else:
        _listen(module, here)


def _glance_once(here: _Installed) -> None:
    done: list[bool] = []

    def glance(optimizer: Any, *_: Any) -> None:
        if not _is_compiling() and not done:
            done.append(True)
            here.glance(optimizer)

    register_optimizer_step_pre_hook(unseen(glance))


def _listen(module: Any, here: _Installed) -> None:
    register_optimizer_step_pre_hook(unseen(_before_step))
    register_optimizer_step_post_hook(unseen(_after_step))
    torch.nn.modules.module.register_module_forward_pre_hook(unseen(_enter))
    torch.nn.modules.module.register_module_forward_hook(unseen(_leave), with_kwargs=True, always_call=True)
    if here.settings.modules:
        torch.nn.modules.module.register_module_forward_hook(unseen(_returned))
    _stay_unannounced()
    _wrap_backward()
    _wrap_scaler()
    _wrap_loader()
    pipelines.use(here.next_pass, here.guard.paused)
    checkpoints.use(here.checkpoint)
    checkpoints.wrap(module)
    _name_operations(here.failed, here.settings.level)
