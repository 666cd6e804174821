"""A saved state as text: which parts are there, and what the absent ones cause."""

from __future__ import annotations

from collections.abc import Iterator

from repro.saved import SavedState

__all__ = ["saved_lines"]

_LABELS = {
    "rng.python": "RNG of Python",
    "rng.numpy": "RNG of NumPy",
    "rng.torch": "RNG of torch",
    "rng.accelerators": "RNG of accelerators",
    "position": "data position",
}


def saved_lines(saved: SavedState) -> Iterator[str]:
    """What is there, what does not apply, and a line for each part that is absent or not known."""

    def named(status: str) -> str:
        return ", ".join(_LABELS.get(part.name, part.name) for part in saved.parts if part.status == status)

    if present := named("present"):
        yield f"holds {present}"
    if unneeded := named("not-applicable"):
        yield f"not applicable: {unneeded}"
    for part in saved.parts:
        label = _LABELS.get(part.name, part.name)
        if part.status == "present" and part.note:
            yield f"{label}: {part.note}"
        elif part.status in ("absent", "unknown"):
            yield f"{label} {part.status.upper()}: {part.note}"
    for file in saved.files:
        if file.error is not None:
            yield f"{file.path} could not be opened: {file.error}"
        elif file.opened == "unrestricted":
            yield f"{file.path} needs an unrestricted load: whoever loads it runs what it says"
