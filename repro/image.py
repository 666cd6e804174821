"""A built image: its identity, and how it came about."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.digest import Digest, DigestStr, digest_json
from repro.lock import FileLock
from repro.noun import Noun
from repro.spec import DifferenceClass

__all__ = [
    "BuildPlan",
    "Builder",
    "BuilderRecord",
    "EngineInfo",
    "FileDifference",
    "HeldImage",
    "ImageIdentity",
    "ImageRecord",
    "LayerCheck",
]


class BuildPlan(Noun):
    """Everything that decides an image's bytes. Two equal plans make one image."""

    name: str
    accelerator: str
    architecture: str
    """As images say it: `amd64`, `arm64`."""
    python: str
    """Interpreter of the base, as major.minor."""
    epoch: int
    """Seconds since 1970; every time stamp we write."""
    base_reference: str
    """What was asked for; only a label and a name to pull by."""
    base_manifest_digest: DigestStr | None
    """What a registry knows the base by; null where it never came from one."""
    base_config_digest: DigestStr
    base_diff_ids: tuple[DigestStr, ...]
    dockerfile: FileLock
    arguments: dict[str, str]
    """Build arguments of the Dockerfile."""
    pip: FileLock
    """The wheel that installs the others; not part of the image."""
    wheels: tuple[FileLock, ...]
    source: tuple[FileLock, ...]
    """Files copied below the working folder."""
    rules: str
    """Version of the normalising rules."""

    @property
    def digest(self) -> Digest:
        """The plan's own name."""
        return digest_json(self.tree())


class ImageIdentity(Noun):
    """What an image is, whichever engine holds it."""

    config_digest: DigestStr
    """Digest of the image's config: what engines call its id."""
    manifest_digest: DigestStr
    """Digest of our canonical OCI manifest: our config, uncompressed layers."""
    diff_ids: tuple[DigestStr, ...]
    """Digests of the uncompressed layers, lowest first."""
    os: str
    architecture: str
    size: int = Field(ge=0)
    """Bytes of all uncompressed layers."""
    layer_sizes: tuple[int, ...]
    """Bytes of each uncompressed layer, in the order of `diff_ids`."""


Builder = Literal["classic", "buildkit", "buildah"]
"""What carries a Dockerfile out: Docker's classic builder, BuildKit, or Podman's."""


class BuilderRecord(Noun):
    """Who built it. Recorded, never compared."""

    builder: Builder = "classic"
    engine: str
    version: str
    store: str
    """How the engine keeps images."""
    raw_id: str
    """What the engine called the image before it was normalised."""
    raw_diff_ids: tuple[DigestStr, ...]
    """Layers as the builder made them."""


class ImageRecord(Noun):
    """The result of a build."""

    identity: ImageIdentity
    plan_digest: DigestStr
    """Digest of everything that decides the image's bytes."""
    base_layers: int
    """How many of the first diff ids belong to the base."""
    builder: BuilderRecord
    rules: str
    """Version of the normalising rules."""


class EngineInfo(Noun):
    """Which engine answers, and how it keeps images."""

    name: str
    version: str
    store: Literal["graphdriver", "containerd", "podman"]
    """What names an image: its config by graph drivers and Podman, its manifest by containerd."""
    host: str
    """Address without credentials."""
    rootless: bool
    data_root: str | None
    """Folder of images on this machine; null where the engine is elsewhere or does not say."""
    driver: str | None = None
    """Storage driver or snapshotter, such as `overlay2`."""
    runtime: str | None = None
    """Runtime of containers that ask for none, such as `runc`."""
    runtimes: tuple[str, ...] = ()
    """Every runtime the engine knows; `nvidia` is one where NVIDIA's toolkit is set up."""
    cdi_folders: tuple[str, ...] = ()
    """Where the engine reads which devices it may hand out by their CDI names; empty where it takes none."""


class HeldImage(Noun):
    """What an engine says of an image it holds."""

    id: str
    """The engine's own id: what containers are created by, never what images are compared by."""
    config_digest: DigestStr | None
    """Null where the engine does not say; then only the saved image tells."""
    diff_ids: tuple[DigestStr, ...] | None
    os: str
    architecture: str
    size: int
    """Bytes, as the engine counts them."""
    tags: tuple[str, ...]
    repo_digests: tuple[str, ...]
    """`name@sha256:…`, of an index or of a manifest: engines do not say which."""


class FileDifference(Noun):
    """One way in which a file is not what it should be; values as text, null where it is absent."""

    path: str
    aspect: Literal["presence", "type", "mode", "owner", "time", "link", "device", "xattrs", "content"]
    expected: str | None
    found: str | None
    reason: Literal["environment", "installer", "script", "unexplained"]
    """`environment`: made by Python's venv; `installer`: pip's own notes; `script`: the same entry point in
    other words; `unexplained`: a reason to trust neither side."""


class LayerCheck(Noun):
    """An image's packages against the layer assembled straight from the locked wheels."""

    image: DigestStr
    layer: DigestStr
    """Diff id of the layer that was checked."""
    assembled: DigestStr
    files: int
    """Members of either layer."""
    identical: int
    differences: tuple[FileDifference, ...]

    @property
    def explained(self) -> bool:
        """Whether every difference has a reason."""
        return all(difference.reason != "unexplained" for difference in self.differences)


class ImageDifference(Noun):
    """One way in which two images differ; values as text, null where one of them has nothing there."""

    path: str
    """Of a file, or of a member of the config."""
    aspect: str
    first: str | None
    second: str | None
    kind: DifferenceClass
    benign: str | None = None
    """Why the project calls it harmless; null where it does not."""


class ImageComparison(Noun):
    """Two images told apart."""

    first: tuple[DigestStr, ...]
    """Diff ids, lowest layer first."""
    second: tuple[DigestStr, ...]
    counts: dict[str, int]
    """Differences of each class, all of them."""
    differences: tuple[ImageDifference, ...]
    """The first 10,000."""

    @property
    def same(self) -> bool:
        """Whether nothing differs: layers by digest, config by member."""
        return not self.counts

    @property
    def harmless(self) -> bool:
        """Whether every difference is one that the project calls harmless; one that was not kept is not."""
        kept = sum(one.benign is not None for one in self.differences)
        return kept == sum(self.counts.values())
