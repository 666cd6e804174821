"""Wraps the functions that write and read checkpoints, to say what was in them and how long it took."""

from __future__ import annotations

import functools
import os
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .guard import unseen

__all__ = ["rehearsing", "use", "wait", "wrap"]

Sink = Callable[[str, str, Any, "int | None", float], Any]
_Find = Callable[[tuple[Any, ...], dict[str, Any], Any], Any]

_sink: list[Sink] = []
_unfinished: list[Any] = []
"""What writers in the background promise."""
_starting: list[str] = []
"""Writers that are about to promise something."""


class _Inner(threading.local):
    """What this thread is doing."""

    outer: str | None = None
    """The function it is in, if any: writers may use each other."""
    content: Any = None
    """What that function was found to write or read."""
    rehearsing: bool = False
    """Whether an optimizer steps with zero gradients and rate, to have state that can be loaded into."""


_inner = _Inner()


def use(sink: Sink) -> None:
    """Say where to report each checkpoint: kind, function, content, bytes, seconds."""
    _sink[:] = [sink]


def rehearsing() -> bool:
    """Say whether an optimizer step that is going on is none of the training."""
    return _inner.rehearsing


def wait() -> None:
    """Wait for checkpoints that are still being written in the background."""
    for writing in list(_unfinished):
        writing.result()


class _Api(NamedTuple):
    module: str
    name: str
    kind: str
    """`save` or `load`."""
    content: _Find
    """Finds the content among positional arguments, keyword arguments and result."""
    place: int | None
    """Position of the file among the arguments, or None where it is none."""


def _argument(at: int, name: str) -> _Find:
    return lambda args, kwargs, _: args[at] if len(args) > at else kwargs.get(name)


def _result() -> _Find:
    return lambda _, __, result: result


_DISTRIBUTED = "torch.distributed.checkpoint"
_APIS = (
    _Api("torch", "save", "save", _argument(0, "obj"), 1),
    _Api("torch", "load", "load", _result(), 0),
    _Api(_DISTRIBUTED, "save", "save", _argument(0, "state_dict"), None),
    _Api(_DISTRIBUTED, "async_save", "save", _argument(0, "state_dict"), None),
    _Api(_DISTRIBUTED, "load", "load", _argument(0, "state_dict"), None),
    _Api("safetensors.torch", "save_file", "save", _argument(0, "tensors"), 1),
    _Api("safetensors.torch", "load_file", "load", _result(), 0),
)


def wrap(module: Any) -> None:
    """Wrap every known function of a module that was just imported, if checkpoints are recorded."""
    if not _sink:
        return
    for api in _APIS:
        if api.module == module.__name__ and hasattr(module, api.name):
            _replace(module, api.name, functools.partial(_report, api))
    if module.__name__ == f"{_DISTRIBUTED}.state_dict" and hasattr(module, "_init_optim_state"):
        _replace(module, "_init_optim_state", _rehearse)
    if module.__name__ == _DISTRIBUTED:
        # Objects with a state_dict method are resolved inside the public functions, by these.
        for part, name, keep in (
            ("state_dict_saver", "_stateful_to_state_dict", _keep_result),
            ("state_dict_loader", "_load_state_dict", _keep_argument),
        ):
            if hasattr(getattr(module, part, None), name):
                _replace(getattr(module, part), name, keep)


def _replace(module: Any, name: str, around: Callable[..., Any]) -> None:
    original = getattr(module, name)

    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        return around(original, *args, **kwargs)

    for owner in (module, sys.modules.get(original.__module__)):
        if owner is not None and getattr(owner, name, None) is original:
            setattr(owner, name, unseen(call))


def _keep_result(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    result = original(*args, **kwargs)
    if _inner.outer is not None:
        _inner.content = result
    return result


def _keep_argument(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _inner.outer is not None:
        _inner.content = args[0] if args else kwargs.get("state_dict")
    return original(*args, **kwargs)


def _rehearse(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    _inner.rehearsing = True
    try:
        return original(*args, **kwargs)
    finally:
        _inner.rehearsing = False


def _in_background() -> bool:
    """Say whether this is a helper thread of a writer that is not done."""
    _unfinished[:] = [writing for writing in _unfinished if not writing.done()]
    return bool(_unfinished or _starting) and threading.current_thread() is not threading.main_thread()


def _report(api: _Api, original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if _inner.outer is not None or _in_background():
        return original(*args, **kwargs)
    _inner.outer, _inner.content = api.name, None
    _starting.append(api.name)
    started = time.perf_counter()
    try:
        result = original(*args, **kwargs)
        seconds = time.perf_counter() - started
        content = _inner.content if _inner.content is not None else api.content(args, kwargs, result)
        if api.name == "async_save":
            _unfinished.append(getattr(result, "upload_completion", result))
    finally:
        _starting.pop()
        _inner.outer = _inner.content = None
    _sink[0](api.kind, f"{api.module}.{api.name}", content, _size(api, args, kwargs), seconds)
    return result


def _size(api: _Api, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Bytes of the file, or None where it is no file on this machine."""
    if api.place is None:
        return None
    place = args[api.place] if len(args) > api.place else kwargs.get("f", kwargs.get("filename"))
    try:
        return Path(place).stat().st_size if isinstance(place, (str, os.PathLike)) else None
    except OSError:
        return None
