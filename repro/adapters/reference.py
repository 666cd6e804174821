"""Image references as people write them.

Grammar: the `distribution/reference` of the container ecosystem: `[registry/]repository[:tag][@digest]`,
where a name without a registry means Docker Hub, and one without a slash its `library/`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from repro.errors import LockError

__all__ = ["HUB", "Reference", "parse_reference"]

HUB = "docker.io"

_PART = r"[a-z0-9]+(?:(?:\.|_|__|-+)[a-z0-9]+)*"
_PATTERN = re.compile(
    rf"(?:(?P<registry>[A-Za-z0-9.-]+(?::\d+)?|\[[0-9a-fA-F:]+\](?::\d+)?)/)??(?P<path>{_PART}(?:/{_PART})*)"
    r"(?::(?P<tag>\w[\w.-]{0,127}))?(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)


@dataclass(frozen=True, slots=True)
class Reference:
    """Where an image is to be had. Without tag and digest, the tag is `latest`."""

    registry: str
    repository: str
    tag: str | None
    digest: str | None

    @property
    def name(self) -> str:
        """Registry and repository."""
        return f"{self.registry}/{self.repository}"

    @property
    def version(self) -> str:
        """What a manifest is asked for by: the digest, else the tag."""
        return self.digest or self.tag or "latest"


def _is_registry(head: str) -> bool:
    return "." in head or ":" in head or head == "localhost"


def _invalid(text: str) -> LockError:
    return LockError(
        "base-reference-invalid",
        f"{text!r} is not an image reference",
        where="base",
        remedy="write [registry/]repository[:tag][@sha256:…], in lower case",
    )


def parse_reference(text: str) -> Reference:
    """Read a reference.

    Raises:
        LockError: `base-reference-invalid`.
    """
    match = _PATTERN.fullmatch(text)
    if match is None:
        raise _invalid(text)
    path = f"{match['registry']}/{match['path']}" if match["registry"] else match["path"]
    head, slash, rest = path.partition("/")
    registry, repository = (head, rest) if slash and _is_registry(head) else (HUB, path)
    if repository != repository.lower():
        raise _invalid(text)
    if registry == HUB and "/" not in repository:
        repository = f"library/{repository}"
    return Reference(registry, repository, match["tag"], match["digest"])
