"""Whether a difference matters, under one rule."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass
from typing import Literal

from repro.compare.finding import STRUCTURAL, Finding
from repro.compare.measure import Change, epsilon
from repro.tolerance import Bound, Rule, bound_for
from repro.verdict import Layer

__all__ = ["Judge", "Ruling"]
_KERNELS = frozenset(f"hyper.{name}" for name in ("capturable", "differentiable", "foreach", "fused"))


@dataclass(frozen=True, slots=True)
class Ruling:
    """`fails`, `holds` (other bits, but allowed), `untold` (cannot be judged) or `waived` (is not asked)."""

    word: Literal["fails", "holds", "untold", "waived"]
    layer: Layer
    allowed: float | None = 0.0
    """What the difference may be; None where no single number says so."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judge:
    """A rule, with what the target is known not to repeat.

    Args:
        rule: what floating-point results may do.
        unstable: observables that differed between two recordings of the target itself. Exact ones are not
            asked for; bits of floating-point results cannot be, so that no verdict follows from them.
        portable_rng: whether both sides draw the same numbers from one seed. If not, initial weights count
            as floating-point results and device generators are not compared.
    """

    rule: Rule
    unstable: Set[str] = frozenset()
    portable_rng: bool = True

    def __call__(self, finding: Finding) -> Ruling:
        """Judge one finding."""
        if finding.kind in STRUCTURAL:
            return Ruling("fails", "structure")
        if finding.both_not_finite:
            return Ruling("untold", "exact")
        if finding.kind == "non-finite":
            return Ruling("fails", "exact")
        if self._is_result(finding):
            return self._result(finding)
        if finding.observable in self.unstable or self._is_device_rng(finding) or self._is_kernel(finding):
            return Ruling("waived", "exact")
        if finding.kind == "checkpoint-differs":
            # a checkpoint holds floating-point results, by digest only: bits are all that can be asked of it
            word: Literal["fails", "waived"] = "fails" if self.rule == "bitwise" else "waived"
            return Ruling(word, "bitwise")
        return Ruling("fails", "exact")

    def _is_result(self, finding: Finding) -> bool:
        before = finding.kind == "weights-before-differ" and finding.change is not None
        return finding.measured or (before and not self.portable_rng)

    def _is_device_rng(self, finding: Finding) -> bool:
        return not self.portable_rng and finding.kind == "rng-differs" and ":" in finding.observable

    def _is_kernel(self, finding: Finding) -> bool:
        """Whether an optimizer setting chooses an implementation only, where bits may differ anyway."""
        return self.rule != "bitwise" and finding.observable in _KERNELS

    def _result(self, finding: Finding) -> Ruling:
        if isinstance(self.rule, str):
            if self.rule == "calibrated":
                return Ruling("holds", "envelope", None)
            return Ruling("untold" if self.unstable_results else "fails", "bitwise")
        observable = "params" if finding.kind == "weights-before-differ" else finding.observable
        limit = bound_for(self.rule, observable, finding.dtype)
        if limit == "any":
            return Ruling("waived", "bound", None)
        if isinstance(limit, str) or finding.change is None:
            return Ruling("fails", "bound")
        return _bounded(finding, finding.change, limit)

    @property
    def unstable_results(self) -> bool:
        """Whether the target did not repeat its own floating-point results."""
        return any(observable in self.unstable for observable in ("loss", "grads", "grad_norm", "params"))


def _bounded(finding: Finding, change: Change, bound: Bound) -> Ruling:
    magnitude = change.magnitude
    if bound.max_ulp is not None:
        if change.ulp is not None:
            allowed = bound.max_ulp * _spacing(change)
            return Ruling("holds" if change.ulp <= bound.max_ulp else "fails", "bound", allowed)
        allowed = bound.max_ulp * epsilon(finding.dtype) * magnitude
    else:
        assert bound.rtol is not None
        assert bound.atol is not None
        allowed = float.fromhex(bound.atol) + float.fromhex(bound.rtol) * magnitude
    inside = change.absolute is not None and change.absolute <= allowed
    return Ruling("holds" if inside else "fails", "bound", allowed)


def _spacing(change: Change) -> float:
    """Mean distance of the representable values between two scalars."""
    return change.absolute / change.ulp if change.absolute and change.ulp else 0.0
