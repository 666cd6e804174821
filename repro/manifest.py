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
    recorder: DigestStr
    """Digest of the recorder's source files, injected into the run."""


class InputRecord(Noun):
    """A base image, model or data set the run started from."""

    kind: Literal["base", "model", "dataset"]
    name: str
    requested: str
    digest: DigestStr
    """Config digest of a base; digest over the sorted file list of a model or data set."""
    commit: str | None = None


class PhaseRecord(Noun):
    """One process tree of the pilot, from start to end."""

    name: str = Field(
        pattern=r"^(full|interrupted|resumed|bare|probe/full|(calibration|control)/[a-z]{1,20}-[1-9][0-9]{0,3})$"
    )
    """`full`, `interrupted` and `resumed` are the run itself; the others tell more about it."""
    command: tuple[str, ...]
    started_at: str
    """UTC, `2026-11-30T10:00:00Z`; a claim of whoever captured."""
    milliseconds: int = Field(ge=0)
    exit_code: int
    first_step: int = Field(ge=0)
    """Steps already done when the phase began: 0, or the checkpoint's step."""
    steps: int = Field(ge=0)
    world_size: int = Field(ge=1)
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
    files: tuple[FileLock, ...]
    saved: SavedState | None = None
    """What an independent process found in them; null where none looked."""


class Manifest(Noun):
    """Everything a replay needs, and everything an auditor may ask."""

    schema_: Literal["https://repro-manifest/manifest/v1"] = Field(default=MANIFEST_SCHEMA, alias="schema")
    project: str
    run_id: str
    sequence: int = Field(ge=0)
    created_at: str
    tool: ToolRecord
    accelerator: Literal["cpu", "cuda", "rocm"]
    runtime: Literal["image", "host"]
    """`host`: there was no engine, so there is no image; packages come from the lock all the same."""
    image: ImageRecord | None
    spec: FileLock
    lock: FileLock
    files: tuple[FileLock, ...]
    """Every other signed file of the run folder."""
    inputs: tuple[InputRecord, ...]
    seed: int
    determinism: Literal["strict", "warn", "off"]
    environment: dict[str, str]
    """Variables set for the pilot, by allow-list; nothing of the caller's environment passes."""
    limits: dict[str, int | None]
    host: HostFacts
    """The host's driver and the userspace the run loaded, apart."""
    phases: tuple[PhaseRecord, ...]
    checkpoint: CheckpointRecord | None
    calibration: CalibrationRecord | None = None
    """Null where the run was captured without `--calibrate`."""
    reproduced_itself: Verdict | None
    """Verdict of the interrupted phase against the full one; null where there was none."""
    resumed_exactly: Verdict | None
    """Verdict of the resumed phase against the full one; null where there was none."""
    tolerance: ToleranceSpec
    redaction: Literal["repro-redaction/1"] = "repro-redaction/1"

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
