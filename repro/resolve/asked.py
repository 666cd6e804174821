"""What `repro.yaml` asks for, digested key by key: a stale lock can then say which key changed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from repro.digest import digest_json
from repro.resolve.reason import Reason
from repro.spec import Spec

__all__ = ["asked_by_accelerator", "asked_by_all", "changes"]


def _keys(tree: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield dotted keys, one level deep; models and data sets go by their names."""
    for key, value in tree.items():
        if key in ("models", "datasets"):
            yield from ((f"{key}.{item['name']}", item) for item in value)
        elif isinstance(value, dict) and value:
            yield from ((f"{key}.{inner}", item) for inner, item in value.items())
        else:
            yield key, value


def asked_by_all(spec: Spec) -> dict[str, str]:
    """Return the digest of each key that concerns every accelerator."""
    tree = spec.tree()
    del tree["accelerators"]
    return {key: str(digest_json(value)) for key, value in _keys(tree)}


def asked_by_accelerator(spec: Spec, accelerator: str) -> dict[str, str]:
    """Return the digest of each key of one accelerator's part."""
    tree = spec.tree()["accelerators"][accelerator]
    return {key: str(digest_json(value)) for key, value in _keys(tree)}


def changes(locked: Mapping[str, str], now: Mapping[str, str], prefix: str = "") -> list[Reason]:
    """Say in sentences which keys differ."""
    told = []
    for key in sorted({*locked, *now}):
        if locked.get(key) != now.get(key):
            what = "is gone" if key not in now else "is new" if key not in locked else "has changed"
            text = f"repro.yaml: {prefix}{key} {what} since the lock was made"
            told.append(Reason.of_spec(text, f"{prefix}{key}"))
    return told
