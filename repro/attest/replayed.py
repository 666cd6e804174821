"""Say what a replay found: a verdict becomes the payload that its replayer signs, good or bad."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from repro import __version__
from repro.digest import Digest, digest_json
from repro.host import HostFacts
from repro.manifest import PhaseRecord, VerifiedManifest
from repro.statement import (
    Comparison,
    Mismatch,
    ReplayEnvironment,
    Replayer,
    ReplayPredicate,
    Tool,
    replay_statement,
    sha256_of,
)
from repro.verdict import Outcome, Verdict

__all__ = ["Replayed", "replay_payload"]

RESULTS = {
    Outcome.BITWISE: "PASSED",
    Outcome.WITHIN_TOLERANCE: "PASSED",
    Outcome.DIVERGED: "FAILED",
    Outcome.INCOMPARABLE: "INCOMPLETE",
}


@dataclass(frozen=True, kw_only=True, slots=True)
class Replayed:
    """A replay, and who made it on what."""

    verdict: Verdict
    phases: Sequence[PhaseRecord]
    host: HostFacts
    image_digest: str | None
    """Config digest of the image that ran; None on the host."""
    replayer: str
    signers: Sequence[str]
    """Fingerprints of the keys the run was verified against."""
    policy_digest: str
    deviations: Sequence[str]
    """Differences from the signed run that are known before anything is compared."""


def _comparison(replayed: Replayed, steps: int) -> Comparison:
    verdict = replayed.verdict
    first = verdict.first_divergence if verdict.outcome == Outcome.DIVERGED else None
    matched = steps if verdict.reproduced else max(first.step - 1, 0) if first else 0
    outputs = [file.tree() for phase in replayed.phases for file in phase.trace]
    return Comparison(
        mode="bitwise" if verdict.rule in (None, "bitwise") else "tolerance",
        tolerance=None,
        steps_compared=steps if verdict.outcome != Outcome.INCOMPARABLE else 0,
        steps_matched=min(matched, steps),
        first_mismatch=Mismatch(step=first.step, rank=first.rank, what=first.observable) if first else None,
        outputs_digest=sha256_of(digest_json(outputs)),
    )


def _environment(replayed: Replayed) -> ReplayEnvironment:
    host = replayed.host
    nvidia, amd = host.driver.nvidia, host.driver.amd
    arches = sorted({device.arch for device in host.devices if device.arch})
    return ReplayEnvironment(
        gpu=", ".join(arches) or None,
        driver=(nvidia.version if nvidia else None) or (amd.version if amd else None),
        rocm=amd.rocm if amd else None,
        cuda=nvidia.cuda if nvidia else None,
        image_digest=replayed.image_digest,
        deviations=tuple(replayed.deviations),
    )


def replay_payload(
    verified: VerifiedManifest, manifest_digest: str, replayed: Replayed, *, now: datetime
) -> bytes:
    """Return the statement about a replay of a verified run.

    Args:
        manifest_digest: digest of the run's `manifest.json`.
        now: when the statement is made; a claim of whoever signs it.
    """
    manifest = verified.manifest
    full = manifest.phase("full")
    predicate = ReplayPredicate.parse(
        {
            "result": RESULTS[replayed.verdict.outcome],
            "replayer": Replayer(id=replayed.replayer, tool=Tool(name="repro", version=__version__)).tree(),
            "startedAt": replayed.phases[0].started_at,
            "timeCreated": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            "run": {
                "payloadDigest": sha256_of(verified.payload_digest).tree(),
                "verifiedSigners": [name.removeprefix("sha256:") for name in replayed.signers],
            },
            "comparison": _comparison(replayed, full.steps if full else 0).tree(),
            "environment": _environment(replayed).tree(),
            "policy": {"digest": sha256_of(replayed.policy_digest).tree()},
        }
    )
    image = manifest.image
    name = f"{manifest.project}:{manifest.accelerator}"
    return replay_statement(
        predicate,
        manifest_digest=Digest(manifest_digest),
        image=(name, Digest(image.identity.manifest_digest)) if image else None,
    )
