"""Whether an event has the members of its kind, as `docs/trace.md` states them; others may be there too."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from repro.errors import TraceError
from repro.trace import decode_sketch, unhex

__all__ = ["require_shape"]

Check = Callable[[Any], bool]


def _reads(reader: Callable[[Any], Any]) -> Check:
    def check(value: Any) -> bool:
        try:
            reader(value)
        except TraceError:
            return False
        return True

    return check


_number, _sketch = _reads(unhex), _reads(decode_sketch)


def _text(value: Any) -> bool:
    return isinstance(value, str)


def _whole(value: Any) -> bool:
    return type(value) is int


def _either(*checks: Check) -> Check:
    return lambda value: any(check(value) for check in checks)


def _list(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def _map(check: Check) -> Check:
    return lambda value: isinstance(value, dict) and all(map(check, value.values()))


def _record(required: Mapping[str, Check], optional: Mapping[str, Check] | None = None) -> Check:
    known = {**required, **(optional or {})}

    def check(value: Any) -> bool:
        return (
            isinstance(value, dict)
            and required.keys() <= value.keys()
            and all(known[key](item) for key, item in value.items() if key in known)
        )

    return check


def _none(value: Any) -> bool:
    return value is None


def _short(value: Any) -> bool:
    """`[shape, dtype, digest]`."""
    return isinstance(value, list) and len(value) == 3 and _whole_list(value[0]) and _text(value[1])


_whole_list = _list(_whole)
_place = {"off": _whole, "idx": _text, "rep": _whole}
_plain = _either(_text, _whole, _none, lambda value: isinstance(value, bool | list))
_print = _record(
    {"shape": _whole_list, "dtype": _text, "n": _whole},
    {"off": _whole, "idx": _text, "rep": _whole, "l2": _number, "dg": _text, "sk": _sketch, "bad": _whole},
)
_prints = _map(_print)
_root = _either(
    _record({"bits": _number}, {"dtype": _text}),
    _record({"l2": _number}, {"dtype": _text, "shape": _whole_list}),
)


def _module(value: Any) -> bool:
    """`[name, class, [[attribute, text], …]]`."""
    return (
        isinstance(value, list)
        and len(value) == 3
        and all(map(_text, value[:2]))
        and isinstance(value[2], list)
        and all(isinstance(one, list) and len(one) == 2 and all(map(_text, one)) for one in value[2])
    )


_optimizer = _record({"i": _whole, "cls": _text, "hyper": _list(_map(_plain))})
_SHAPES: dict[str, Check] = {
    "end": _record({}, {"step": _either(_whole, _none), "rng": _map(_text), "params": _prints}),
    "eval": _record(
        {"after": _whole, "forwards": _whole, "inputs": _text, "outputs": _list(_either(_short, _text))},
        {"sk": _sketch, "scalars": _list(_number)},
    ),
    "load": _record({"after": _whole, "api": _text, "tensors": _map(_short), "rest": _text}),
    "mod": _record(
        {
            "step": _whole,
            "seq": _whole,
            "dir": _text,
            "name": _text,
            "cls": _text,
            "call": _whole,
            "out": _list(_print),
        },
        {"at": _whole},
    ),
    "model": _record(
        {"cls": _text, "tree": _text, "rows": _list(_module), "params": _prints, "buffers": _prints}
    ),
    "observe": _record({"after": _whole, "name": _text, "fp": lambda value: _prints({"fp": value})}),
    "save": _record({"after": _whole, "api": _text, "tensors": _map(_short), "rest": _text}),
    "step": _record(
        {"step": _whole},
        {
            "optimizers": _list(_optimizer),
            "inputs": _list(_short),
            "loss": _list(_root),
            "grad_norm": _number,
            "rng": _map(_text),
            "scaler": _record({}, {"scale": _number, "skipped": lambda value: isinstance(value, bool)}),
            "found_inf": _either(_number, _whole),
            "grads": _prints,
            "params": _prints,
        },
    ),
}


def require_shape(event: Mapping[str, Any]) -> None:
    """Refuse an event that lacks members of its kind, or has them of another type.

    Raises:
        TraceError: `trace-malformed`.
    """
    if not _SHAPES[event["ev"]](event):
        raise TraceError("trace-malformed", f"an event {event['ev']} does not have the members of its kind")
