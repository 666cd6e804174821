"""What a base image's tag and environment say of its contents, against what was read in it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from repro.adapters.baselayers import Contents

__all__ = ["mismatches"]

_NUMBER = r"(\d+(?:\.\d+)+)"
_TAGS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (what, re.compile(pattern))
    for what, pattern in (
        ("torch", rf"pytorch/pytorch:{_NUMBER}"),
        ("torch", rf"(?:py)?torch[-_]?{_NUMBER}"),
        ("cuda", rf"nvidia/cuda:{_NUMBER}"),
        ("cuda", rf"cuda[-_]?{_NUMBER}"),
        ("rocm", rf"rocm[-_]?{_NUMBER}"),
        ("python", rf"(?:^|/)python:{_NUMBER}"),
        ("python", r"(?<![a-z])py(?:thon)?[-_]?(3\.\d+(?:\.\d+)?)"),
    )
)
_VARIABLES = {
    "PYTORCH_VERSION": "torch",
    "CUDA_VERSION": "cuda",
    "ROCM_VERSION": "rocm",
    "PYTHON_VERSION": "python",
}


def _parts(version: str) -> list[str]:
    return re.split(r"[.+-]", version)


def _agree(claim: str, inside: str) -> bool:
    """Whether two versions are the same as far as both of them say."""
    return all(a == b for a, b in zip(_parts(claim)[:3], _parts(inside)[:3], strict=False))


def _claims(reference: str, environment: Sequence[str]) -> Iterator[tuple[str, str, str]]:
    named = reference.partition("@")[0]
    # NVIDIA numbers its own images by year and month.
    if not re.search(r"(?:^|/)nvidia/pytorch:", named):
        for what, pattern in _TAGS:
            if (match := pattern.search(named)) is not None:
                yield what, "the tag", match[1]
    for name, value in (pair.partition("=")[::2] for pair in environment):
        if name in _VARIABLES and value:
            yield _VARIABLES[name], name, value.removeprefix("v")


def mismatches(reference: str, environment: Sequence[str], inside: Contents) -> Iterator[str]:
    """Say where the tag or a variable names another version than the image holds.

    Args:
        reference: as it was asked for.
        environment: `Env` of the image's config.
        inside: what was read.
    """
    for what, who, claim in dict.fromkeys(_claims(reference, environment)):
        found = getattr(inside, what)
        if found is not None and not _agree(claim, found):
            yield f"tag-content-mismatch: {who} says {what} {claim}, the image holds {found}"
