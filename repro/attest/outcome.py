"""What verification found, check by check, as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from repro.digest import Digest
from repro.manifest import VerifiedManifest

__all__ = ["CannotTell", "Check", "ReplayFinding", "Signature", "Verdict", "Verification"]

Verdict = Literal["VERIFIED", "REJECTED", "INCOMPLETE"]


class CannotTell(Exception):  # noqa: N818 - an outcome, not a fault
    """A check that was asked for could not be made; the message says why."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Check:
    """One numbered check. `wanted` is False where nobody asked for it, so that it decides nothing."""

    number: int
    name: str
    state: Literal["passed", "failed", "not-made"]
    detail: str
    code: str | None = None
    wanted: bool = True


@dataclass(frozen=True, kw_only=True, slots=True)
class Signature:
    """What was found out about one bundle."""

    bundle: str
    """Name of the file, relative to the run folder."""
    state: Literal["counts", "ignored", "undecided"]
    code: str | None = None
    reason: str = ""
    principal: str | None = None
    fingerprint: Digest | None = None
    """Of the public key."""
    method: Literal["key", "certificate"] | None = None
    time: str | None = None
    """What the validity was judged by: `now`, or the name and time of a time stamp."""
    payload_digest: Digest | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplayFinding:
    """One replay statement: who says what about this run, and whether the rule counts it."""

    signature: Signature
    result: Literal["PASSED", "FAILED", "INCOMPLETE"] | None
    counts: bool
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Verification:
    """The answer to `repro verify`."""

    verdict: Verdict
    code: str | None
    """Code of the first failed check."""
    checks: tuple[Check, ...]
    signatures: tuple[Signature, ...]
    replays: tuple[ReplayFinding, ...]
    principals: tuple[str, ...]
    """Who signed the run, of those that count."""
    project: str | None
    run_id: str | None
    sequence: int | None
    payload_digest: Digest | None
    """The identity of the run."""
    unsigned: tuple[str, ...]
    """Files of the folder that no signature covers."""
    warnings: tuple[str, ...]
    manifest: VerifiedManifest | None
    """Set where the verdict is VERIFIED, and nowhere else."""

    def tree(self) -> dict[str, Any]:
        """Return plain values for JSON; the manifest itself stays in its file."""
        from dataclasses import asdict, fields

        tree = {f.name: getattr(self, f.name) for f in fields(self) if f.name != "manifest"}
        return {
            **tree,
            "checks": [asdict(check) for check in self.checks],
            "signatures": [asdict(signature) for signature in self.signatures],
            "replays": [asdict(replay) for replay in self.replays],
        }
