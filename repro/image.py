"""A built image: its identity, and how it came about."""

from __future__ import annotations

from pydantic import Field

from repro.digest import DigestStr
from repro.lock import FileLock
from repro.noun import Noun

__all__ = ["BuildPlan", "BuilderRecord", "ImageIdentity", "ImageRecord"]


class BuildPlan(Noun):
    """Everything that decides an image's bytes. Two equal plans make one image.

    The digest of this noun's canonical JSON names the plan.
    """

    name: str
    accelerator: str
    architecture: str
    epoch: int
    """Seconds since 1970; every time stamp we write."""
    base_config_digest: DigestStr
    base_diff_ids: tuple[DigestStr, ...]
    dockerfile: DigestStr
    requirements: DigestStr
    wheels: tuple[FileLock, ...]
    """Wheel files of the build context, pip's own first."""
    source: tuple[FileLock, ...]
    """Files copied below `workdir`."""
    workdir: str
    user: str
    environment: dict[str, str]
    labels: dict[str, str]
    rules: str
    """Version of the normalising rules."""


class ImageIdentity(Noun):
    """What an image is, whichever engine holds it."""

    config_digest: DigestStr
    manifest_digest: DigestStr
    """Digest of our canonical OCI manifest: our config, uncompressed layers."""
    diff_ids: tuple[DigestStr, ...]
    os: str
    architecture: str
    size: int = Field(ge=0)
    """Bytes of all uncompressed layers."""


class BuilderRecord(Noun):
    """Who built it. Recorded, never compared."""

    engine: str
    version: str
    store: str
    raw_id: str
    raw_diff_ids: tuple[DigestStr, ...]


class ImageRecord(Noun):
    """The result of a build."""

    identity: ImageIdentity
    plan_digest: DigestStr
    base_layers: int
    """How many of the first diff ids belong to the base."""
    builder: BuilderRecord
    rules: str
    """Version of the normalising rules."""
