"""The parts that events are made of, compared: tensors by name, tensors in order, scalars, exact members."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from repro.compare.finding import Finding, Stage
from repro.compare.measure import scalar_change, tensor_change
from repro.trace import unhex
from repro.verdict import Kind

__all__ = ["is_hex", "members", "numbered", "scalar", "short_tensors", "structural", "tensor_kind", "tensors"]

_PART = ("shape", "n", "off", "idx")


def is_hex(value: Any) -> bool:
    """Say whether a member is a float, which a trace writes in hexadecimal."""
    return isinstance(value, str) and (value in ("nan", "inf", "-inf") or value.lstrip("-").startswith("0x"))


def _text(value: Any) -> str | None:
    return None if value is None else str(value)


def structural(
    step: int,
    kind: Kind,
    observable: str,
    target: str | None,
    candidate: str | None,
    tensor: str | None = None,
) -> Finding:
    """Make the finding that two steps do not have the same shape."""
    return Finding(
        step=step,
        stage=Stage.STRUCTURE,
        kind=kind,
        observable=observable,
        tensor=tensor,
        target=target,
        candidate=candidate,
    )


def tensor_kind(
    step: int, observable: str, tensor: str | None, a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[Finding]:
    """Yield how two tensors are not of one kind: dtype, global shape, or the part that this rank holds."""
    if a.get("dtype") != b.get("dtype"):
        yield structural(
            step, "dtypes-differ", observable, _text(a.get("dtype")), _text(b.get("dtype")), tensor
        )
    differing = [key for key in _PART if a.get(key) != b.get(key)]
    if differing:
        told = [", ".join(f"{key} {side[key]}" for key in differing if key in side) for side in (a, b)]
        yield structural(step, "shapes-differ", observable, told[0] or None, told[1] or None, tensor)


def _not_finite(fingerprint: Mapping[str, Any]) -> bool:
    return bool(fingerprint.get("bad")) or not math.isfinite(unhex(fingerprint.get("l2", "0x0.0p+0")))


def tensors(
    step: int,
    stage: Stage,
    kind: Kind,
    observable: str,
    a: Mapping[str, Mapping[str, Any]],
    b: Mapping[str, Mapping[str, Any]],
    *,
    must_be_finite: bool = True,
) -> Iterator[Finding]:
    """Compare two sets of fingerprints by name."""
    for name in sorted(a.keys() ^ b.keys()):
        target, candidate = ("present", None) if name in a else (None, "present")
        yield structural(step, "tensors-differ", observable, target, candidate, name)
    common = sorted(a.keys() & b.keys())
    for name in common:
        x, y = a[name], b[name]
        bad = [_not_finite(side) for side in (x, y)]
        if must_be_finite and any(bad):
            yield Finding(
                step=step,
                stage=stage,
                kind="non-finite",
                observable=observable,
                tensor=name,
                target=f"{x.get('bad', 0)} values that are not finite",
                candidate=f"{y.get('bad', 0)} values that are not finite",
                of=len(common),
                both_not_finite=all(bad),
            )
        elif any(x.get(key) != y.get(key) for key in ("dtype", *_PART)):
            yield from tensor_kind(step, observable, name, x, y)
        elif x != y and (change := tensor_change(x, y)) is not None:
            by = "dg" if "dg" in x and "dg" in y else "l2"
            yield Finding(
                step=step,
                stage=stage,
                kind=kind,
                observable=observable,
                tensor=name,
                target=_text(x.get(by)),
                candidate=_text(y.get(by)),
                change=change,
                dtype=x["dtype"],
                of=len(common),
            )


def short_tensors(
    step: int, stage: Stage, kind: Kind, observable: str, a: Mapping[str, Any], b: Mapping[str, Any]
) -> Iterator[Finding]:
    """Compare two sets of `[shape, dtype, digest]` by name; a digest of many tensors may stand instead."""
    for name in sorted(a.keys() ^ b.keys()):
        target, candidate = ("present", None) if name in a else (None, "present")
        yield structural(step, "tensors-differ", observable, target, candidate, name)
    common = sorted(a.keys() & b.keys())
    for name in common:
        x, y = ([None, None, side] if isinstance(side, str) else side for side in (a[name], b[name]))
        if x[:2] != y[:2]:
            first, second = ({"shape": side[0], "dtype": side[1]} for side in (x, y))
            yield from tensor_kind(step, observable, name, first, second)
        elif x != y:
            yield Finding(
                step=step,
                stage=stage,
                kind=kind,
                observable=observable,
                tensor=name,
                target=_text(x[2]),
                candidate=_text(y[2]),
                dtype=x[1],
                of=len(common),
            )


def numbered(items: Sequence[Any]) -> dict[str, Any]:
    """Name the items of a list by their place, so that they sort in order."""
    width = len(str(len(items)))
    return {f"number {index:0{width}d}": item for index, item in enumerate(items)}


def scalar(
    step: int,
    stage: Stage,
    kind: Kind,
    observable: str,
    x: str,
    y: str,
    *,
    dtype: str | None = None,
    tensor: str | None = None,
    of: int = 1,
) -> Iterator[Finding]:
    """Compare two recorded numbers; one that is not finite is a finding even where both sides have it."""
    bad = [not math.isfinite(unhex(side)) for side in (x, y)]
    if x == y and not any(bad):
        return
    yield Finding(
        step=step,
        stage=stage,
        kind="non-finite" if any(bad) else kind,
        observable=observable,
        tensor=tensor,
        target=x,
        candidate=y,
        change=scalar_change(x, y, dtype),
        dtype=dtype,
        of=of,
        both_not_finite=all(bad),
    )


def members(
    step: int,
    stage: Stage,
    kind: Kind,
    observable: str,
    a: Mapping[str, Any],
    b: Mapping[str, Any],
    owner: str | None = None,
) -> Iterator[Finding]:
    """Compare exact members by name; the name becomes part of the observable."""
    for name in sorted(a.keys() | b.keys()):
        x, y = a.get(name), b.get(name)
        if (name in a) == (name in b) and x == y and type(x) is type(y):
            continue
        change = scalar_change(str(x), str(y), "float64") if is_hex(x) and is_hex(y) else None
        yield Finding(
            step=step,
            stage=stage,
            kind=kind,
            observable=f"{observable}.{name}",
            tensor=owner,
            target=_text(x),
            candidate=_text(y),
            change=change,
        )
