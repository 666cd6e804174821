"""The comparability rule: which facts of two machines must be equal before runs on them may be compared.

`RULES` is the rule as data, `docs/comparability.md` its page. Where bits are asked
for, a required fact that is unknown is as good as one that differs; and an equal
image makes equal all that lies in it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from repro.comparability.rules import RULES, Need, Rule
from repro.comparability.sides import Accelerator, Side
from repro.host import HostFacts
from repro.image import ImageRecord
from repro.manifest import Manifest
from repro.noun import Noun
from repro.verdict import Comparability

__all__ = [
    "RULES",
    "FactResult",
    "Need",
    "Rule",
    "Side",
    "comparability",
    "compare_sides",
    "compare_stacks",
    "conclude",
]


class FactResult(Noun):
    """One fact, side by side."""

    fact: str
    need: Need
    outcome: Literal["equal", "differs", "unknown", "implied"]
    """`implied`: not known of both, and equal because the images are."""
    target: str | None
    candidate: str | None
    required: bool


def compare_sides(target: Side, candidate: Side) -> tuple[FactResult, ...]:
    """Put every fact that means something for both sides side by side, in the order of `RULES`."""
    same_image = target.image is not None and target.image == candidate.image
    return tuple(
        _result(rule, rule.read(target), rule.read(candidate), same_image)
        for rule in RULES
        if {target.accelerator, candidate.accelerator} <= rule.on
    )


def _result(rule: Rule, target: str | None, candidate: str | None, same_image: bool) -> FactResult:
    outcome: Literal["equal", "differs", "unknown", "implied"] = "unknown"
    if target is not None and candidate is not None:
        outcome = "equal" if target == candidate else "differs"
    elif rule.in_image and same_image:
        outcome = "implied"
    return FactResult(
        fact=rule.fact,
        need=rule.need,
        outcome=outcome,
        target=target,
        candidate=candidate,
        required=rule.required,
    )


def conclude(results: Iterable[FactResult]) -> Comparability:
    """Return what the facts let one ask: bits, the tolerance across stacks, or nothing.

    `same` where all that bits need is equal; `not-covered` where a fact differs that
    every tolerance needs; else `across`.
    """
    found = list(results)
    barring = [one for one in found if one.need == "tolerance" and one.outcome == "differs"]
    if barring:
        return Comparability(relation="not-covered", reasons=tuple(map(_reason, barring)))
    apart = [one for one in found if one.need != "inform" and _tells_apart(one)]
    return Comparability(relation="across" if apart else "same", reasons=tuple(map(_reason, apart)))


def _tells_apart(result: FactResult) -> bool:
    return result.outcome == "differs" or (result.outcome == "unknown" and result.required)


def _reason(result: FactResult) -> str:
    first, second = (text or "unknown" for text in (result.target, result.candidate))
    return f"{result.fact}: {first} in the target, {second} in the candidate"


def compare_stacks(
    manifest: Manifest, image: ImageRecord | None, host: HostFacts, *, accelerator: Accelerator | None = None
) -> tuple[FactResult, ...]:
    """Put the stack of a manifest's run beside that of a run on `host` in `image`.

    Args:
        image: the candidate's, None where it ran without one.
        host: the candidate's machine, with the userspace its run loaded.
        accelerator: what the candidate computed on; that of the manifest where None.
    """
    target = Side(
        host=manifest.host,
        accelerator=manifest.accelerator,
        image=manifest.image.identity.config_digest if manifest.image else None,
    )
    candidate = Side(
        host=host,
        accelerator=accelerator or manifest.accelerator,
        image=image.identity.config_digest if image else None,
    )
    return compare_sides(target, candidate)


def comparability(
    manifest: Manifest, image: ImageRecord | None, host: HostFacts, *, accelerator: Accelerator | None = None
) -> Comparability:
    """Return what a run on `host` in `image` may be asked, compared with the run of a manifest."""
    return conclude(compare_stacks(manifest, image, host, accelerator=accelerator))
