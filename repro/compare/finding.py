"""One difference between two runs, before any rule has judged it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from repro.compare.measure import Change
from repro.tolerance import MEASURED
from repro.verdict import Kind

__all__ = ["STRUCTURAL", "Finding", "Stage"]

STRUCTURAL = frozenset(
    {
        "dtypes-differ",
        "events-differ",
        "shapes-differ",
        "step-skipped",
        "steps-extra",
        "steps-missing",
        "tensors-differ",
    }
)
"""Kinds that say two steps do not have the same shape."""


class Stage(IntEnum):
    """What can cause what within one step: a lower stage is never the effect of a higher one."""

    STRUCTURE = 0
    INPUTS = 1
    MODULES = 2
    WEIGHTS_BEFORE = 3
    HYPER = 4
    RNG = 5
    SCALER = 6
    LOSS = 7
    GRADS = 8
    GRAD_NORM = 9
    UPDATE = 10
    AFTER = 11
    END = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A difference in one observable of one step.

    `step` is logical: counted over the whole run, 0 before the first. `of` is how many tensors the
    observable has at that step, 1 for a scalar. `both_not_finite` marks a NaN or inf that both sides have.
    """

    step: int
    stage: Stage
    kind: Kind
    observable: str
    tensor: str | None = None
    target: str | None = None
    candidate: str | None = None
    change: Change | None = None
    dtype: str | None = None
    of: int = 1
    both_not_finite: bool = False

    @property
    def measured(self) -> bool:
        """Whether a tolerance may apply: a floating-point result of equal shape, finite on both sides."""
        return (
            self.observable in MEASURED
            and self.kind not in STRUCTURAL
            and self.kind != "non-finite"
            and self.change is not None
        )
