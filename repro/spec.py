"""`repro.yaml`: what a person intends. Mutable references live here and nowhere else."""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    StringConstraints,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from repro.digest import Digest, digest_json
from repro.noun import Noun
from repro.tolerance import ToleranceSpec

__all__ = [
    "AcceleratorName",
    "AcceleratorSpec",
    "ArtifactSpec",
    "BenignSpec",
    "BuildSpec",
    "CheckpointSpec",
    "DifferenceClass",
    "IndexSpec",
    "LimitsSpec",
    "PilotSpec",
    "RecordSpec",
    "Spec",
    "parse_bytes",
    "parse_duration",
]

AcceleratorName = Literal["cpu", "cuda", "rocm"]

_DURATION = re.compile(r"(\d+)\s*(s|m|h)?")
_BYTES = re.compile(r"(\d+)\s*([kmgt]?)(?:i?b)?", re.IGNORECASE)
_SECONDS = {None: 1, "s": 1, "m": 60, "h": 3600}


def parse_duration(value: Any) -> int:
    """Read `90`, `90s`, `10m` or `2h` as whole seconds, at least one."""
    match = _DURATION.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool) or int(match[1]) < 1:
        raise ValueError("write a duration such as 90s, 10m or 2h")
    return int(match[1]) * _SECONDS[match[2]]


def parse_bytes(value: Any) -> int:
    """Read `1073741824`, `512m` or `8g` as bytes, in powers of 1024."""
    match = _BYTES.fullmatch(str(value).strip())
    if match is None or isinstance(value, bool) or int(match[1]) < 1:
        raise ValueError("write a size such as 512m or 8g")
    return int(match[1]) << (10 * " kmgt".index(match[2].lower() or " "))


def _parse_lockable(value: Any) -> int:
    return -1 if value in ("unlimited", -1) else parse_bytes(value)


def _relative(path: Any) -> Any:
    if not isinstance(path, str):
        return path
    pure = PurePosixPath(path)
    if not path.strip() or pure.is_absolute() or ".." in pure.parts or "\\" in path or "\0" in path:
        raise ValueError("write a path below the folder of repro.yaml, with forward slashes and without ..")
    return str(pure)


def _text(value: Any) -> Any:
    """Numbers in a command line or an environment are meant as they were written."""
    return str(value) if isinstance(value, int) and not isinstance(value, bool) else value


_NUMBER_OR_TEXT = {"anyOf": [{"type": "integer", "minimum": 1}, {"type": "string"}]}
_WORD = {"anyOf": [{"type": "string", "minLength": 1}, {"type": "integer"}]}

Seconds = Annotated[int, BeforeValidator(parse_duration), WithJsonSchema(_NUMBER_OR_TEXT)]
Bytes = Annotated[int, BeforeValidator(parse_bytes), WithJsonSchema(_NUMBER_OR_TEXT)]
Lockable = Annotated[int, BeforeValidator(_parse_lockable), WithJsonSchema(_NUMBER_OR_TEXT)]
RelativePath = Annotated[str, StringConstraints(min_length=1), BeforeValidator(_relative)]
Word = Annotated[str, StringConstraints(min_length=1), BeforeValidator(_text), WithJsonSchema(_WORD)]
Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$")]
Command = Annotated[tuple[Word, ...], Field(min_length=1)]
Variable = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]


class CheckpointSpec(Noun):
    """Where the pilot saves, and after which step."""

    path: RelativePath
    at_step: int = Field(ge=1)


class PilotSpec(Noun):
    """How the pilot is started, resumed and bounded."""

    command: Command
    resume: Command | None = None
    """Command that continues from `{checkpoint}`; without it restore is not tested, and that is said."""
    source: tuple[RelativePath, ...] = Field(min_length=1)
    steps: int = Field(ge=1)
    checkpoint: CheckpointSpec | None = None
    outputs: tuple[RelativePath, ...] = ("out",)
    """Folders the pilot may write to; everything else is read-only."""
    timeout: Seconds = 3600
    """Limit for each phase, in seconds."""
    environment: dict[Variable, Word] = Field(default_factory=dict)

    @model_validator(mode="after")
    def _consistent(self) -> PilotSpec:
        if (self.resume is None) != (self.checkpoint is None):
            raise ValueError("resume and checkpoint belong together: write both or neither")
        if self.resume is not None and not any("{checkpoint}" in word for word in self.resume):
            raise ValueError("the resume command must contain {checkpoint}")
        if self.checkpoint is not None:
            if self.checkpoint.at_step >= self.steps:
                raise ValueError(
                    "checkpoint.at_step must come before the last step, so that resumed steps can be compared"
                )
            if not any(PurePosixPath(self.checkpoint.path).is_relative_to(out) for out in self.outputs):
                raise ValueError(
                    "checkpoint.path must lie below one of outputs, the only folders the pilot may write to"
                )
        return self


class RecordSpec(Noun):
    """How much the recorder writes."""

    every: int = Field(default=5, ge=1)
    """Fingerprint all tensors each so many steps; steps 1 to 3 and the last one always."""
    modules: tuple[Annotated[int, Field(ge=1)], ...] | None = None
    """Steps of which every module call is recorded, so that a replay can say which one departs."""

    @model_serializer(mode="wrap")
    def _without_what_is_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a later member that is not set, as `LimitsSpec` does."""
        tree: dict[str, Any] = write(self)
        return {name: value for name, value in tree.items() if name != "modules" or value is not None}


class ArtifactSpec(Noun):
    """A model or a data set, by one kind of reference."""

    name: Name
    hub: str | None = None
    git: str | None = None
    url: str | None = None
    path: RelativePath | None = None
    oci: str | None = None
    wheel: str | None = None
    revision: Word | None = None
    target: RelativePath | None = None
    """Where the pilot sees it; a `path` stays where it is, others appear below `inputs/<name>`."""

    @property
    def kind(self) -> Literal["hub", "git", "url", "path", "oci", "wheel"]:
        """The kind of reference used."""
        for kind in ("hub", "git", "url", "path", "oci", "wheel"):
            if getattr(self, kind) is not None:
                return kind
        raise AssertionError("validated: one kind is set")

    @property
    def reference(self) -> str:
        """The reference as written."""
        return str(getattr(self, self.kind))

    @model_validator(mode="after")
    def _one_kind(self) -> ArtifactSpec:
        kinds = [k for k in ("hub", "git", "url", "path", "oci", "wheel") if getattr(self, k) is not None]
        if len(kinds) != 1:
            raise ValueError(
                f"give exactly one of hub, git, url, path, oci, wheel (found {', '.join(kinds) or 'none'})"
            )
        if self.revision is not None and kinds[0] not in ("hub", "git"):
            raise ValueError("revision goes with hub or git only")
        return self


DifferenceClass = Literal[
    "times",
    "byte code",
    "order",
    "ownership",
    "log and cache files",
    "package files",
    "configuration",
    "base moved",
    "other files",
]
"""What kind of difference between two images it is; see `docs/images.md`."""


class BenignSpec(Noun):
    """Differences between two builds that mean nothing, and why."""

    kind: DifferenceClass
    path: Annotated[str, StringConstraints(min_length=1)]
    """A pattern for paths in the image; `*` stands for any characters, `/` too."""
    reason: Annotated[str, StringConstraints(min_length=1)]


class BuildSpec(Noun):
    """What is expected of a rebuild."""

    benign: tuple[BenignSpec, ...] = ()


class IndexSpec(Noun):
    """A package index and the packages that must come from it."""

    name: Name
    url: str
    packages: tuple[str, ...] = ()


class AcceleratorSpec(Noun):
    """What differs from accelerator to accelerator."""

    dockerfile: RelativePath
    base: Annotated[str, StringConstraints(min_length=1)]
    requirements: tuple[RelativePath, ...] = Field(min_length=1)
    constraints: tuple[RelativePath, ...] = ()
    indexes: tuple[IndexSpec, ...] = ()
    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+$"), BeforeValidator(_text)] = "3.11"
    """Interpreter of the base image, as major.minor."""
    environment: dict[Variable, Word] = Field(default_factory=dict)


class LimitsSpec(Noun):
    """What the pilot's container may use; null leaves a limit to the machine."""

    memory: Bytes | None = None
    cpus: int | None = Field(default=None, ge=1)
    shm: Bytes = 1 << 30
    tmp: Bytes = 1 << 30
    processes: int | None = Field(default=None, ge=16)
    """Processes and threads together; 1024 unless said otherwise."""
    open_files: int | None = Field(default=None, ge=64)
    """Of each process; 4096 unless said otherwise."""
    locked_memory: Lockable | None = None
    """Memory a process may keep from being paged out, in bytes; -1 is no limit, written `unlimited`."""
    stack: Bytes | None = None
    """Of each process."""

    @model_serializer(mode="wrap")
    def _without_what_is_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, int | None]:
        """Leave out later members that are not set: specs from before them keep their meaning's digest."""
        tree: dict[str, int | None] = write(self)
        first = ("memory", "cpus", "shm", "tmp")
        return {name: value for name, value in tree.items() if name in first or value is not None}


class Spec(Noun):
    """All of `repro.yaml`."""

    version: Literal[1]
    name: Name
    pilot: PilotSpec
    record: RecordSpec = Field(default_factory=RecordSpec)
    seed: int = Field(ge=0, lt=1 << 32)
    determinism: Literal["strict", "warn", "off"] = "strict"
    models: tuple[ArtifactSpec, ...] = ()
    datasets: tuple[ArtifactSpec, ...] = ()
    limits: LimitsSpec = Field(default_factory=LimitsSpec)
    build: BuildSpec | None = None
    accelerators: dict[AcceleratorName, AcceleratorSpec] = Field(min_length=1)
    tolerance: ToleranceSpec = Field(default_factory=ToleranceSpec)

    @model_serializer(mode="wrap")
    def _without_what_is_unset(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out a later member that is not set, as `LimitsSpec` does."""
        tree: dict[str, Any] = write(self)
        return {name: value for name, value in tree.items() if name != "build" or value is not None}

    @model_validator(mode="after")
    def _names_differ(self) -> Spec:
        names = [artifact.name for artifact in (*self.models, *self.datasets)]
        if repeated := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(
                f"models and datasets need names of their own: {', '.join(repeated)} stands twice"
            )
        return self

    def meaning(self) -> Digest:
        """Digest of everything but the accelerators. Comments, order and layout do not count."""
        tree = self.tree()
        del tree["accelerators"]
        return digest_json(tree)

    def accelerator_meaning(self, accelerator: str) -> Digest:
        """Digest of one accelerator's part."""
        return digest_json(self.tree()["accelerators"][accelerator])
