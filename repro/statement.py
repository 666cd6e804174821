"""What is signed: in-toto v1 statements about a run and about a replay, member by member.

`docs/signing.md` describes every member.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final, Literal, TypeVar

from pydantic import ConfigDict, Field, StringConstraints, ValidationError, model_serializer, model_validator
from pydantic.alias_generators import to_camel

from repro.digest import Digest, canonical_json
from repro.errors import TrustError
from repro.noun import Noun
from repro.strictjson import loads

__all__ = [
    "IMAGE_MEDIA_TYPE",
    "MANIFEST_NAME",
    "MAX_SUBJECTS",
    "REPLAY_TYPE",
    "RUN_PAYLOAD_NAME",
    "RUN_TYPE",
    "STATEMENT_TYPE",
    "Comparison",
    "InputDigest",
    "Mismatch",
    "ReplayEnvironment",
    "ReplayPredicate",
    "ReplayStatement",
    "Replayer",
    "Role",
    "RunPredicate",
    "RunStatement",
    "Sha256",
    "SignedFile",
    "SignedImage",
    "SignedInput",
    "Subject",
    "Tool",
    "Wire",
    "parse_replay_statement",
    "parse_run_statement",
    "parse_wire",
    "replay_statement",
    "run_statement",
    "sha256_of",
]

STATEMENT_TYPE: Final = "https://in-toto.io/Statement/v1"
RUN_TYPE: Final = "https://repro-manifest/run/v1"
REPLAY_TYPE: Final = "https://repro-manifest/replay/v1"
IMAGE_MEDIA_TYPE: Final = "application/vnd.oci.image.manifest.v1+json"
MANIFEST_NAME: Final = "manifest.json"
RUN_PAYLOAD_NAME = "run.statement.json"
"""Name of the subject that stands for a run's payload in a replay statement."""
MAX_SUBJECTS = 1024
"""More are refused by sigstore-go, and so by cosign."""

Hex64 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
Hex40 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{40}$")]
Text = Annotated[str, StringConstraints(min_length=1, max_length=4096)]
HexFloat = Annotated[str, StringConstraints(pattern=r"^-?0x[01]\.[0-9a-f]+p[+-][0-9]+$")]
Role = Literal["manifest", "spec", "lock", "packages", "trace", "other"]
S = TypeVar("S", bound=Noun)


class Wire(Noun):
    """A noun whose members are camelCase in JSON, and nowhere else."""

    model_config = ConfigDict(alias_generator=to_camel, validate_by_name=True, validate_by_alias=True)


class Sha256(Wire):
    """The only digest a subject may carry: lower-case hex, without a prefix."""

    sha256: Hex64


def sha256_of(digest: Digest | str) -> Sha256:
    """Turn `sha256:<hex>` into a digest member."""
    return Sha256(sha256=digest.removeprefix("sha256:"))


class Subject(Wire):
    """A thing the statement is about, known by its digest."""

    name: Text
    digest: Sha256
    media_type: Literal["application/vnd.oci.image.manifest.v1+json"] | None = None

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: Any) -> dict[str, Any]:
        tree: dict[str, Any] = dump(self)
        return {key: value for key, value in tree.items() if value is not None}


class Tool(Wire):
    """The program that made the statement."""

    name: Text
    version: Text


class SignedFile(Wire):
    """A file of the run folder: POSIX path, what it is, size in bytes. Its digest is the subject's."""

    name: Text
    role: Role
    size: int = Field(ge=0)


class SignedImage(Wire):
    """The image the run used: a name for people, and `os/architecture`. Its digest is the subject's."""

    name: Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._/:-]{0,254}$")]
    platform: Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+/[a-z0-9_]+(/[a-z0-9]+)?$")]


class InputDigest(Wire):
    """What an input is: a digest of bytes, a git commit, or both."""

    sha256: Hex64 | None = None
    git_commit: Hex40 | None = None

    @model_validator(mode="after")
    def _some(self) -> InputDigest:
        if self.sha256 is None and self.git_commit is None:
            raise ValueError("an input needs sha256 or gitCommit")
        return self

    @model_serializer(mode="wrap")
    def _without_absent(self, dump: Any) -> dict[str, Any]:
        tree: dict[str, Any] = dump(self)
        return {key: value for key, value in tree.items() if value is not None}


class SignedInput(Wire):
    """Something the run started from. Never a subject: an input does not make a run verify."""

    uri: Text
    digest: InputDigest


class RunPredicate(Wire):
    """What is said about a run."""

    tool: Tool
    project: Text
    run_id: Text
    sequence: int = Field(ge=0)
    created_at: str
    """UTC, `2026-11-30T10:00:00Z`; a claim of the signer."""
    manifest: Literal["manifest.json"]
    files: tuple[SignedFile, ...] = Field(min_length=1, max_length=MAX_SUBJECTS)
    image: SignedImage | None
    """Null where the run had no image."""
    inputs: tuple[SignedInput, ...]


class Mismatch(Wire):
    """The first thing that differed."""

    step: int | None
    rank: int | None
    what: Text


class Comparison(Wire):
    """How two runs were put side by side."""

    mode: Literal["bitwise", "tolerance"]
    tolerance: HexFloat | None
    """Largest deviation allowed, as a hex float; null where none or where each observable has its own."""
    steps_compared: int = Field(ge=0)
    steps_matched: int = Field(ge=0)
    first_mismatch: Mismatch | None
    outputs_digest: Sha256 | None
    """Over the replayer's own trace; null where the replay wrote none."""


class ReplayEnvironment(Wire):
    """Where the replay ran; null is unknown or absent."""

    gpu: str | None
    driver: str | None
    rocm: str | None
    cuda: str | None
    image_digest: Annotated[str, StringConstraints(pattern=r"^sha256:[0-9a-f]{64}$")] | None
    deviations: tuple[Text, ...]
    """Differences from the signed run that the replayer knows of."""


class Replayer(Wire):
    """Who replayed, in their own words."""

    id: Text
    tool: Tool


class _RunReference(Wire):
    payload_digest: Sha256
    verified_signers: tuple[Hex64, ...]
    """Fingerprints of the keys the replayer checked the run against."""


class _PolicyReference(Wire):
    digest: Sha256
    """Of the trust policy the replayer used."""


class ReplayPredicate(Wire):
    """What is said about a replay."""

    result: Literal["PASSED", "FAILED", "INCOMPLETE"]
    replayer: Replayer
    started_at: str
    time_created: str
    run: _RunReference
    comparison: Comparison
    environment: ReplayEnvironment
    policy: _PolicyReference


class _Statement(Wire):
    type_: Literal["https://in-toto.io/Statement/v1"] = Field(alias="_type")
    subject: tuple[Subject, ...] = Field(min_length=1, max_length=MAX_SUBJECTS)

    @model_validator(mode="after")
    def _one_name_each(self) -> _Statement:
        names = [subject.name.casefold() for subject in self.subject]
        if len(set(names)) != len(names):
            raise ValueError("two subjects have one name, or names that differ in case only")
        return self


class RunStatement(_Statement):
    """The payload of a run's signature."""

    predicate_type: Literal["https://repro-manifest/run/v1"]
    predicate: RunPredicate


class ReplayStatement(_Statement):
    """The payload of a replay's signature."""

    predicate_type: Literal["https://repro-manifest/replay/v1"]
    predicate: ReplayPredicate


def parse_wire(model: type[S], code: str, data: bytes, where: str) -> S:
    """Parse strict JSON into a noun.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_SIZE`, or `code` where the members are not the noun's.
    """
    tree = loads(data, where=where)
    try:
        return model.parse(tree)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        message = f"{place}: {first['msg']}" if place else str(first["msg"])
        raise TrustError(code, message, where=where) from None


def parse_run_statement(payload: bytes, *, where: str) -> RunStatement:
    """Parse the payload of a run's signature.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_SIZE` or `E_STMT`.
    """
    return parse_wire(RunStatement, "E_STMT", payload, where)


def parse_replay_statement(payload: bytes, *, where: str) -> ReplayStatement:
    """Parse the payload of a replay's signature.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_SIZE` or `E_STMT`.
    """
    return parse_wire(ReplayStatement, "E_STMT", payload, where)


def run_statement(predicate: RunPredicate, digests: Sequence[Digest], image_digest: Digest | None) -> bytes:
    """Encode the payload that says: this run is mine.

    Args:
        predicate: what is said; its files and its image become the subjects.
        digests: one for each of `predicate.files`, in their order.
        image_digest: digest of the image's OCI manifest; None exactly where there is no image.
    """
    subjects = [
        Subject(name=file.name, digest=sha256_of(digest))
        for file, digest in zip(predicate.files, digests, strict=True)
    ]
    subjects += _image_subject(predicate.image.name if predicate.image else None, image_digest)
    statement = RunStatement(
        type_=STATEMENT_TYPE, subject=tuple(subjects), predicate_type=RUN_TYPE, predicate=predicate
    )
    return canonical_json(statement.tree())


def replay_statement(
    predicate: ReplayPredicate, *, manifest_digest: Digest, image: tuple[str, Digest] | None
) -> bytes:
    """Encode the payload that says: I replayed this run, and this is what I found.

    Args:
        predicate: what was found; the run's payload becomes the first subject.
        manifest_digest: digest of the run's `manifest.json`.
        image: name and OCI manifest digest of the run's image, as in the run's own statement.
    """
    subjects = [
        Subject(name=RUN_PAYLOAD_NAME, digest=predicate.run.payload_digest),
        Subject(name=MANIFEST_NAME, digest=sha256_of(manifest_digest)),
        *(_image_subject(*image) if image else []),
    ]
    statement = ReplayStatement(
        type_=STATEMENT_TYPE, subject=tuple(subjects), predicate_type=REPLAY_TYPE, predicate=predicate
    )
    return canonical_json(statement.tree())


def _image_subject(name: str | None, digest: Digest | None) -> list[Subject]:
    if (name is None) != (digest is None):
        raise ValueError("an image has both a name and a digest")
    if name is None or digest is None:
        return []
    return [Subject(name=name, digest=sha256_of(digest), media_type=IMAGE_MEDIA_TYPE)]
