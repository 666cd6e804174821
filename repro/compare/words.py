"""Verdicts in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence

from repro.compare.evidence import Item
from repro.compare.finding import Finding
from repro.compare.plain import plain
from repro.trace import unhex

__all__ = ["amount", "diverged", "place", "value", "what"]

LONGEST = 160
"""Characters of a value that stand in a sentence; the deviation has all of it."""


def amount(number: float) -> str:
    """Write a difference with two digits: `3.1e-4`, `0`, `infinite`."""
    if not math.isfinite(number):
        return "infinite"
    mantissa, _, exponent = f"{number:.2g}".partition("e")
    return f"{mantissa}e{int(exponent)}" if exponent else mantissa


def value(text: str | None) -> str:
    """Write a recorded value so that a person can read it."""
    if text is None:
        return "absent"
    if text.lstrip("-").startswith("0x"):
        number = unhex(text)
        return "-0.0" if number == 0 and text.startswith("-") else f"{number:.9g}"
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}..."


def place(item: Item, *, ranks: int) -> str:
    """Write where: step, rank where there are several, phase where it is not the full one."""
    step, before = item.finding.step, item.finding.kind in ("weights-before-differ", "modules-differ")
    words = [f"before step {step + 1}" if before or not step else f"at step {step}"]
    if ranks > 1:
        words.append(f"rank {item.rank}")
    if item.phase != "full":
        words.append(f"phase {item.phase}")
    return ", ".join(words)


_ONE: dict[str, str] = {
    "checkpoint-differs": "the content of a checkpoint ({observable}) differs first: {tensor}",
    "dtypes-differ": "the dtype of {observable} {tensor} is not the same: {both}",
    "end-differs": "the final weight {tensor} differs first",
    "evaluation-differs": "the output of the evaluation differs first",
    "events-differ": "what happens is not the same ({observable}): {both}",
    "gradient-norm-differs": "the gradient norm differs first: {both}",
    "gradients-differ": "the gradient of {tensor} differs first",
    "hyper-parameters-differ": "the hyper-parameter {name} of {tensor} differs first: {both}",
    "inputs-differ": "the data differ first ({observable}, {tensor})",
    "loss-differs": "the loss differs first: {both}",
    "modules-differ": "the module {tensor} differs first: {both}",
    "non-finite": "{subject} is not finite: {both}",
    "observation-differs": "the observation {tensor} differs first",
    "optimizers-differ": "the optimizers differ first: {both}",
    "rng-differs": "the state of the {name} random number generator differs first",
    "scaler-differs": "the {name} of the gradient scaler differs first: {both}",
    "shapes-differ": "the shape of {observable} {tensor} is not the same: {both}",
    "step-skipped": "the step was {both}",
    "steps-extra": "the candidate goes on: {both}",
    "steps-missing": "the candidate lacks this step: {both}",
    "tensors-differ": "{tensor} of {observable} is only in the {side}",
    "update-differs": "the updated weight {tensor} differs first",
    "weights-before-differ": "the initial weight {tensor} differs first",
}

_MANY: dict[str, str] = {
    "end-differs": "{count} of {of} final weights differ first, {tensor} most",
    "gradients-differ": "{count} of {of} gradients differ first, that of {tensor} most",
    "inputs-differ": "the data differ first ({observable}, {count} of {of} tensors)",
    "modules-differ": "the module {tensor} differs first, and {more} more: {both}",
    "tensors-differ": "{tensor} of {observable} and {more} more are on one side only",
    "update-differs": "{count} of {of} updated weights differ first, {tensor} most",
    "weights-before-differ": "{count} of {of} initial weights differ first, {tensor} most",
}

_SUBJECTS = {"grad_norm": "gradient norm", "grads": "gradient of", "params": "weight"}


def _told(finding: Finding, count: int) -> str:
    words = _MANY.get(finding.kind, _ONE[finding.kind]) if count > 1 else _ONE[finding.kind]
    subject = f"the {_SUBJECTS.get(finding.observable, finding.observable)} {finding.tensor or ''}"
    told = words.format(
        tensor=finding.tensor or "",
        observable=finding.observable,
        name=finding.observable.rpartition(".")[2],
        subject=subject.rstrip(),
        both=f"{value(finding.target)} in the target, {value(finding.candidate)} in the candidate",
        side="candidate" if finding.target is None else "target",
        of=finding.of,
        count=count,
        more=count - 1,
    )
    return plain(told)


def what(group: Sequence[Item]) -> str:
    """Say what differs in a group of items of one place and stage, and by how much."""
    first = group[0]
    count = sum(
        (item.finding.kind, item.finding.observable) == (first.finding.kind, first.finding.observable)
        for item in group
    )
    words = _told(first.finding, count)
    change, allowed = first.finding.change, first.ruling.allowed
    if change is None or first.finding.kind == "non-finite" or first.ruling.layer == "exact":
        return words
    if change.absolute == 0:
        return f"{words} (another sign of zero)"
    if first.ruling.layer == "bound" and change.absolute is not None and allowed is not None:
        return f"{words} (difference {amount(change.absolute)}, allowed {amount(allowed)})"
    if change.relative is None:
        return f"{words} (by digest)"
    told = f", allowed {amount(allowed)}" if allowed is not None else ""
    return f"{words} (relative {amount(change.relative)}{told})"


def diverged(group: Sequence[Item], *, ranks: int) -> str:
    """Write the sentence of a divergence; `group` is everything at its first place, the largest first."""
    return f"Diverged {place(group[0], ranks=ranks)}: {what(group)}."
