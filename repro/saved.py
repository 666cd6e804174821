"""What a saved state holds: each part that must survive a restart, present or not, and what follows."""

from __future__ import annotations

from typing import Literal

from repro.noun import Noun

__all__ = ["PARTS", "OpenedFile", "SavedPart", "SavedState", "Status"]

PartName = Literal[
    "model",
    "optimizer",
    "scheduler",
    "step",
    "configuration",
    "scaler",
    "rng.python",
    "rng.numpy",
    "rng.torch",
    "rng.accelerators",
    "position",
]
Status = Literal["present", "absent", "not-applicable", "unknown"]

PARTS: dict[PartName, str] = {
    "model": "the weights are not those that were trained",
    "optimizer": "momentum and step counts begin again: the first update differs, then the loss",
    "scheduler": "the learning rate begins again: the update after the first one differs",
    "step": "counting begins again: schedules, logs and the end of training move",
    "configuration": "nobody can tell with which settings the state was made",
    "scaler": "the loss scale begins again: steps overflow and are skipped that were not",
    "rng.python": "what Python's generator decides (augmentation, order) is drawn anew",
    "rng.numpy": "what NumPy's generator decides (augmentation, order) is drawn anew",
    "rng.torch": "dropout, shuffling and noise are drawn anew on the CPU: the loss differs with equal data",
    "rng.accelerators": "dropout and noise are drawn anew on the devices: the loss differs with equal data",
    "position": "data is seen twice or never: the first batch differs",
}
"""Every part, and what its absence causes."""


class SavedPart(Noun):
    """One part of a saved state."""

    name: PartName
    status: Status
    """`not-applicable`: the run shows that nothing depends on it."""
    places: tuple[str, ...] = ()
    """Where it lies, `file:key/path`; at most 16."""
    note: str | None = None
    """What it causes where it is absent; why it does not apply; or what is not complete."""


class OpenedFile(Noun):
    """One file of a saved state, or one folder of shards, and how it was opened."""

    path: str
    opened: Literal["weights_only", "unrestricted", "safetensors", "distributed", "json"] | None
    error: str | None


class SavedState(Noun):
    """A checkpoint, opened in a process of its own."""

    parts: tuple[SavedPart, ...]
    files: tuple[OpenedFile, ...]

    @property
    def absent(self) -> tuple[SavedPart, ...]:
        """Parts that should be there and are not."""
        return tuple(part for part in self.parts if part.status == "absent")
