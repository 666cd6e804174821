"""`manifest.json`: the document a run is signed by, and the proof that it was checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field, ValidationError

from repro.digest import DigestStr
from repro.errors import TrustError
from repro.host import HostFacts
from repro.image import ImageRecord
from repro.lock import FileLock
from repro.noun import Noun
from repro.saved import SavedState
from repro.strictjson import loads
from repro.tolerance import ToleranceSpec
from repro.trace import is_ordinary
from repro.verdict import Verdict

__all__ = [
    "MANIFEST_SCHEMA",
    "CheckpointRecord",
    "InputRecord",
    "Manifest",
    "PhaseRecord",
    "ToolRecord",
    "VerifiedManifest",
    "parse_manifest",
]

MANIFEST_SCHEMA: Final = "https://repro-manifest/manifest/v1"

_TOKEN = object()


class ToolRecord(Noun):
    """The program that captured the run."""

    name: Literal["repro"] = "repro"
    version: str
    """Of this project, as the version of the tool that wrote the document."""
    recorder: DigestStr
    """Digest of the recorder's source files, injected into the run."""


class InputRecord(Noun):
    """A base image, model or data set the run started from."""

    kind: Literal["base", "model", "dataset"]
    """What it is."""
    name: str
    """As in `repro.yaml`; `base` for the base image."""
    requested: str
    """The reference that a person wrote, which may move."""
    digest: DigestStr
    """Config digest of a base; digest over the sorted file list of a model or data set."""
    commit: str | None = None
    """Of a git repository, or of the Hub's; null elsewhere."""


class PhaseRecord(Noun):
    """One process tree of the pilot, from start to end."""

    name: str = Field(
        pattern=r"^(full|interrupted|resumed|bare|probe/full|modules/(target|candidate)"
        r"|(calibration|control)/[a-z]{1,20}-[1-9][0-9]{0,3})$"
    )
    """`full`, `interrupted` and `resumed` are the run itself; the others tell more about it."""
    command: tuple[str, ...]
    """As it was run, word by word; `{checkpoint}` is filled in."""
    started_at: str
    """UTC, `2026-11-30T10:00:00Z`; a claim of whoever captured."""
    milliseconds: int = Field(ge=0)
    """How long it took, from start to end of the process tree."""
    exit_code: int
    """Of the first process; 0 where it ended by itself."""
    first_step: int = Field(ge=0)
    """Steps already done when the phase began: 0, or the checkpoint's step."""
    steps: int = Field(ge=0)
    """Optimizer steps recorded in this phase."""
    world_size: int = Field(ge=1)
    """Ranks, each with a trace of its own."""
    network: Literal["none", "host"] = "none"
    """`host` where the machine did not let the network be taken away; only without an image."""
    perturbation: dict[str, str] = Field(default_factory=dict)
    """Variables in which a calibration run or a control differs from the run itself."""
    trace: tuple[FileLock, ...]
    """Trace files, paths relative to the run folder."""


class ErrorRates(Noun):
    """How often the method was wrong on runs whose truth was known; `docs/tolerance.md` says which runs."""

    harmless: int = Field(ge=0)
    harmless_rejected: int = Field(ge=0)
    faulty: int = Field(ge=0)
    faulty_accepted: int = Field(ge=0)


class CalibrationRecord(Noun):
    """How the phases `calibration/…` and `control/…` are to be used, as `docs/tolerance.md` states it."""

    method: Literal["repro-envelope/1"] = "repro-envelope/1"
    runs: int = Field(ge=1)
    controls: int = Field(ge=0)
    without_effect: tuple[str, ...] = ()
    """Controls that changed nothing in this pilot, and were left out."""
    quantile: str
    """Of the ratios over tensors; a hex float, as are the next two."""
    parameter_floor: str
    scalar_floors: dict[str, str]
    measured: ErrorRates


class CheckpointRecord(Noun):
    """Files the interrupted phase left behind; the resumed phase read them."""

    at_step: int
    """The step that `repro.yaml` asks for."""
    files: tuple[FileLock, ...]
    """Each by content; they are not part of the run folder."""
    saved: SavedState | None = None
    """What an independent process found in them; null where none looked."""


class Manifest(Noun):
    """Everything a replay needs, and everything an auditor may ask."""

    schema_: Literal["https://repro-manifest/manifest/v1"] = Field(default=MANIFEST_SCHEMA, alias="schema")
    """Version of this document."""
    project: str
    """`name` of `repro.yaml`."""
    run_id: str
    """Random, 32 hex digits: another one for every capture."""
    sequence: int = Field(ge=0)
    """Grows from capture to capture in one folder; a policy may set a floor."""
    created_at: str
    """UTC, `2026-11-30T10:00:00Z`; a claim of whoever captured."""
    tool: ToolRecord
    """What captured the run."""
    accelerator: Literal["cpu", "cuda", "rocm"]
    """Which part of `repro.yaml` and `repro.lock` was run."""
    runtime: Literal["image", "host"]
    """`host`: there was no engine, so there is no image; packages come from the lock all the same."""
    image: ImageRecord | None
    """The image it ran in; null with runtime `host`."""
    spec: FileLock
    """`repro.yaml`, a copy of which lies in the run folder."""
    lock: FileLock
    """`repro.lock`, likewise."""
    files: tuple[FileLock, ...]
    """Every other signed file of the run folder."""
    inputs: tuple[InputRecord, ...]
    """Base, models and data sets, as they were locked."""
    seed: int
    """Of all generators, as `repro.yaml` says."""
    determinism: Literal["strict", "warn", "off"]
    """Which settings of torch were made, see [determinism.md](determinism.md)."""
    environment: dict[str, str]
    """Variables set for the pilot, by allow-list; nothing of the caller's environment passes."""
    limits: dict[str, int | None]
    """Memory, processors and the like that the run was given; null is no limit."""
    host: HostFacts
    """The host's driver and the userspace the run loaded, apart."""
    phases: tuple[PhaseRecord, ...]
    """Process trees that were run, in their order."""
    checkpoint: CheckpointRecord | None
    """What was resumed from; null where `repro.yaml` tests no resume."""
    calibration: CalibrationRecord | None = None
    """Null where the run was captured without `--calibrate`."""
    reproduced_itself: Verdict | None
    """Verdict of the interrupted phase against the full one; null where there was none."""
    resumed_exactly: Verdict | None
    """Verdict of the resumed phase against the full one; null where there was none."""
    tolerance: ToleranceSpec
    """How a replay is judged, as `repro.yaml` says."""
    redaction: Literal["repro-redaction/1"] = "repro-redaction/1"
    """Version of the rule by which secrets are left out, see below."""

    @property
    def ordinary(self) -> tuple[PhaseRecord, ...]:
        """Phases that are the run itself, and no calibration of it."""
        return tuple(phase for phase in self.phases if is_ordinary(phase.name))

    def phase(self, name: str) -> PhaseRecord | None:
        """Return the phase of that name, or None."""
        return next((phase for phase in self.phases if phase.name == name), None)


@dataclass(frozen=True, slots=True)
class VerifiedManifest:
    """A manifest whose signature, signer and files were checked.

    Only `repro.attest.verify` makes one: it takes the token of this module.
    """

    manifest: Manifest
    payload_digest: str
    """Digest of the signed statement: the identity of the run."""
    principals: tuple[str, ...]
    folder: str
    token: object

    def __post_init__(self) -> None:
        if self.token is not _TOKEN:
            raise TypeError("a VerifiedManifest is made by repro.attest.verify only")


def parse_manifest(data: bytes, *, where: str) -> Manifest:
    """Parse the exact bytes that were hashed.

    Raises:
        TrustError: kind `E_JSON`, `E_TEXT`, `E_SIZE` or `E_MANIFEST`.
    """
    tree = loads(data, where=where)
    try:
        return Manifest.parse(tree)
    except ValidationError as error:
        first = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"])
        raise TrustError("E_MANIFEST", f"{place}: {first['msg']}", where=where) from None
