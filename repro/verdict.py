"""What comparing two runs came to: one of four outcomes, where, by how much, and what can explain it.

A verdict holds no floats: numbers are C99 hex strings, so that it can stand in a signed statement as it is.
`docs/verdict.md` explains every member; `docs/schema/verdict.json` is its JSON Schema.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Literal

from pydantic import Field

from repro.noun import Noun

__all__ = [
    "Comparability",
    "Compared",
    "Deviation",
    "EnvelopeSummary",
    "Explanation",
    "Growth",
    "Kind",
    "Layer",
    "Located",
    "Outcome",
    "TensorRatio",
    "Verdict",
]


class Outcome(StrEnum):
    """The four words a comparison can end with."""

    BITWISE = "BITWISE"
    WITHIN_TOLERANCE = "WITHIN_TOLERANCE"
    DIVERGED = "DIVERGED"
    INCOMPARABLE = "INCOMPARABLE"


Layer = Literal["structure", "exact", "bitwise", "bound", "envelope"]
"""Which test decided: the run's shape, what holds on any machine, bits, a written bound, the envelope."""

Kind = Literal[
    # it holds
    "equal",
    "within-bounds",
    "within-envelope",
    # cannot be told
    "beyond-horizon",
    "device-rng-differs",
    "did-not-run",
    "environment-not-covered",
    "not-calibrated",
    "not-self-reproducible",
    "phases-differ",
    "reference-stale",
    "target-did-not-run",
    "world-size-differs",
    # structure
    "dtypes-differ",
    "events-differ",
    "shapes-differ",
    "step-skipped",
    "steps-extra",
    "steps-missing",
    "tensors-differ",
    # exact invariants
    "hyper-parameters-differ",
    "inputs-differ",
    "modules-differ",
    "optimizers-differ",
    "rng-differs",
    "scaler-differs",
    "weights-before-differ",
    # results
    "checkpoint-differs",
    "end-differs",
    "envelope-exceeded",
    "evaluation-differs",
    "gradient-norm-differs",
    "gradients-differ",
    "loss-differs",
    "non-finite",
    "observation-differs",
    "update-differs",
    # what a checkpoint lost
    "data-position-lost",
    "optimizer-not-restored",
    "rng-not-restored",
    "scheduler-not-restored",
    "weights-not-restored",
]
"""Stable name of the reason, for scripts and tests."""


class Comparability(Noun):
    """What two environments let one ask, as decided by whoever knows both."""

    relation: Literal["same", "across", "not-covered"]
    """`same`: equal stack, bits can be asked for. `across`: another stack, the across rule applies."""
    reasons: tuple[str, ...] = ()
    """What differs, in words."""


class Deviation(Noun):
    """One place where the candidate is not the target."""

    phase: str
    step: int = Field(ge=0)
    """Logical step counted from 1 over the whole run; 0 is before the first."""
    rank: int = Field(ge=0)
    layer: Layer
    kind: Kind
    observable: str
    """Such as `loss`, `grads`, `params`, `inputs`, `hyper.0.lr`, `rng.torch`."""
    tensor: str | None = None
    target: str | None = None
    """The value as text: a hex float, a digest, a count. Null where there is none."""
    candidate: str | None = None
    abs_diff: str | None = None
    """Absolute difference, or estimated L2 distance of tensors (0.94 ± 0.04 of the true one), hex float."""
    rel_diff: str | None = None
    """The same over the target's magnitude, hex float."""
    ulp_diff: int | None = None
    """Representable values between two scalars of the observable's dtype; null above 2**53."""
    allowed: str | None = None
    """What the rule allowed `abs_diff` to be, hex float; 0 where bits are asked for."""


class Compared(Noun):
    """How much was put side by side."""

    phases: tuple[str, ...] = ()
    ranks: int = 0
    steps: int = 0
    """Logical steps of the target, summed over its phases."""
    observables: tuple[str, ...] = ()
    """What the target holds and was compared."""
    not_enforced: tuple[str, ...] = ()
    """Observables that the target itself did not repeat, or that the rule waives."""


class Growth(Noun):
    """How far apart two runs were at one step; largest over ranks."""

    phase: str
    step: int
    loss: str | None = None
    """Relative difference of the loss, hex float."""
    params: str | None = None
    """Relative distance of the whole parameter set, hex float; null on steps without fingerprints."""


class TensorRatio(Noun):
    """A parameter tensor and its distance in units of its own envelope."""

    rank: int
    tensor: str
    ratio: str


class EnvelopeSummary(Noun):
    """The calibrated test: `T = max over steps of the 75 % quantile over tensors of distance/envelope`."""

    factor: str
    statistic: str
    """T of the parameters, hex float."""
    loss_statistic: str
    """The largest ratio of any rank's loss."""
    gradient_statistic: str
    """The largest ratio of any rank's gradient norm."""
    q90: str
    """90 % quantile instead of 75 %, for information."""
    maximum: str
    """Largest ratio of any tensor, for information."""
    runs: tuple[str, ...]
    """Calibration phases used."""
    controls: tuple[str, ...]
    """Negative controls used."""
    horizon: int
    """Last step at which every negative control still stands out; later steps are not judged."""
    last_step: int
    """Last step at which anything differed."""
    worst: tuple[TensorRatio, ...] = ()
    """Up to ten tensors, at the step of `statistic`."""


class Explanation(Noun):
    """An input that differs and could have caused it, the likeliest first."""

    category: str
    name: str
    target: str | None
    candidate: str | None
    sentence: str


class Located(Noun):
    """Where in the model two runs of one step part."""

    rank: int
    step: int
    """Counted from 1 over the whole run."""
    direction: Literal["forward", "backward"]
    module: str
    """Dotted name, empty for the model itself."""
    cls: str
    call: int
    """Which call of that module in the step, from 0."""
    relative: str | None
    """Largest relative distance of its outputs, hex float; null where their shapes or number differ."""
    own_code: bool
    """Whether the module's children agree, so that it is code between them."""
    sentence: str


class Verdict(Noun):
    """The result of a comparison."""

    outcome: Outcome
    layer: Layer | None
    """Which test decided; null where nothing could be tested."""
    kind: Kind
    sentence: str
    """All of it in one sentence."""
    rule: Literal["bitwise", "explicit", "calibrated"] | None = None
    """What was asked of floating-point results."""
    environment: Literal["same", "across", "not-covered"] | None = None
    compared: Compared = Field(default_factory=Compared)
    first_divergence: Deviation | None = None
    deviations: tuple[Deviation, ...] = ()
    """The first ones, by phase, step, cause before effect, rank, and size."""
    growth: tuple[Growth, ...] = ()
    envelope: EnvelopeSummary | None = None
    located: Located | None = None
    """The first module that departs; null where nobody asked, or where none does."""
    notes: tuple[str, ...] = ()
    """Plain sentences that limit what the outcome says."""
    explanations: tuple[Explanation, ...] = ()

    @property
    def reproduced(self) -> bool:
        """Whether the candidate counts as a reproduction."""
        return self.outcome in (Outcome.BITWISE, Outcome.WITHIN_TOLERANCE)
