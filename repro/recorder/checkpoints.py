"""Wraps the functions that write and read checkpoints, to say what was in them and how long it took."""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from .guard import unseen

__all__ = ["use", "wrap"]

Sink = Callable[[str, str, Any, "int | None", float], Any]

_sink: list[Sink] = []
_busy: list[Callable[[], bool]] = []


def use(sink: Sink, busy: Callable[[], bool]) -> None:
    """Say where to report to, and how to know that the recorder itself is at work."""
    _sink.append(sink)
    _busy.append(busy)


class _Api(NamedTuple):
    module: str
    name: str
    kind: str
    """`save` or `load`."""
    value: Callable[[tuple[Any, ...], dict[str, Any], Any], Any]
    """Finds the content among positional arguments, keyword arguments and result."""
    place: int | None
    """Position of the file among the arguments, or None where it is none."""


def _argument(at: int, name: str) -> Callable[[tuple[Any, ...], dict[str, Any], Any], Any]:
    return lambda args, kwargs, _: args[at] if len(args) > at else kwargs.get(name)


def _result() -> Callable[[tuple[Any, ...], dict[str, Any], Any], Any]:
    return lambda _, __, result: result


_APIS = (
    _Api("torch", "save", "save", _argument(0, "obj"), 1),
    _Api("torch", "load", "load", _result(), 0),
    _Api("torch.distributed.checkpoint", "save", "save", _argument(0, "state_dict"), None),
    _Api("torch.distributed.checkpoint", "async_save", "save", _argument(0, "state_dict"), None),
    _Api("torch.distributed.checkpoint", "load", "load", _argument(0, "state_dict"), None),
    _Api("safetensors.torch", "save_file", "save", _argument(0, "tensors"), 1),
    _Api("safetensors.torch", "load_file", "load", _result(), 0),
)


def wrap(module: Any) -> None:
    """Wrap every known function of a module that was just imported."""
    for api in _APIS:
        if api.module == module.__name__ and hasattr(module, api.name):
            setattr(module, api.name, _wrapped(api, getattr(module, api.name)))


def _wrapped(api: _Api, original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        started = time.perf_counter()
        result = original(*args, **kwargs)
        seconds = time.perf_counter() - started
        if not _busy[0]():
            content = api.value(args, kwargs, result)
            _sink[0](api.kind, f"{api.module}.{api.name}", content, _size(api, args, kwargs), seconds)
        return result

    return unseen(call)


def _size(api: _Api, args: tuple[Any, ...], kwargs: dict[str, Any]) -> int | None:
    """Bytes of the file, or None where it is no file on this machine."""
    if api.place is None:
        return None
    place = args[api.place] if len(args) > api.place else kwargs.get("f", kwargs.get("filename"))
    try:
        return Path(place).stat().st_size if isinstance(place, (str, os.PathLike)) else None
    except OSError:
        return None
