"""Check a signed run folder against a trust policy: a numbered list of checks and one verdict.

Only a run that passed every check that was asked for becomes a
`VerifiedManifest`, and nothing but this module makes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from typing import TYPE_CHECKING

from repro.attest.contents import Contents, check_lock, check_manifest, check_traces, read_contents
from repro.attest.demands import Demands, FindFiles, FindImage
from repro.attest.elsewhere import check_artifacts, check_image
from repro.attest.keyring import Trust
from repro.attest.limits import check_roll_back, check_time, future_phases
from repro.attest.outcome import CannotTell, Check, ReplayFinding, Signature, Verification
from repro.attest.replays import apply_rule, examine_replays
from repro.attest.signature import examine_run
from repro.attest.statements import Agreed, agree, check_subjects
from repro.bundle import BUNDLE_SUFFIX
from repro.digest import Digest
from repro.errors import TrustError
from repro.lock import ArtifactLock, Lock
from repro.manifest import _TOKEN, Manifest, VerifiedManifest
from repro.statement import MANIFEST_NAME, RunStatement
from repro.strictjson import MAX_BYTES
from repro.trust import Rule

if TYPE_CHECKING:
    from repro.ports import RunFolder

__all__ = ["Demands", "FindFiles", "FindImage", "verify"]

MAX_BUNDLES = 64
_RUN_BUNDLE = re.compile(r"[^/]+" + re.escape(BUNDLE_SUFFIX))
_REPLAY_BUNDLE = re.compile(r"replays/[^/]+" + re.escape(BUNDLE_SUFFIX))


def verify(folder: RunFolder, trust: Trust, *, now: datetime, demands: Demands | None = None) -> Verification:
    """Check a run folder. Loads no code, follows no address, starts nothing.

    Args:
        folder: the run, as it was received.
        trust: the auditor's own policy and keys.
        now: the auditor's time, aware.
        demands: what else must hold.

    Returns:
        the verdict; nothing the folder holds makes this raise.
    """
    session = _Session(folder, trust, now, demands or Demands())
    for number, (name, check) in enumerate(session.checks(), 1):
        session.make(number, name, check)
    return session.verification()


class _NotAsked(Exception):  # noqa: N818 - an outcome, not a fault
    """Nobody asked for this check, or there is nothing it could be about."""


class _Session:
    """The state that checks hand on. Every check returns what it found in words, or raises."""

    def __init__(self, folder: RunFolder, trust: Trust, now: datetime, demands: Demands) -> None:
        self.folder, self.trust, self.now, self.demands = folder, trust, now, demands
        self.done: list[Check] = []
        self.examined: list[tuple[Signature, RunStatement | None]] = []
        self.replays: tuple[ReplayFinding, ...] = ()
        self.unsigned: tuple[str, ...] = ()
        self.warnings: list[str] = []
        self.names: list[str] = []
        self.agreed: Agreed
        self.contents: Contents
        self.manifest: Manifest
        self.lock: Lock

    def checks(self) -> list[tuple[str, Callable[[], str]]]:
        return [
            ("trust policy", self._policy),
            ("signatures", self._signatures),
            ("signers", self._signers),
            ("statement", self._statement),
            ("roll-back", self._roll_back),
            ("time", self._time),
            ("files", self._files),
            ("manifest", self._manifest),
            ("lock", self._lock),
            ("traces", self._traces),
            ("image", self._image),
            ("models", lambda: self._artifacts("models", self.demands.models, self.lock.models)),
            ("data sets", lambda: self._artifacts("data sets", self.demands.datasets, self.lock.datasets)),
            ("unsigned files", self._unsigned),
            ("replays", self._replays),
        ]

    def make(self, number: int, name: str, check: Callable[[], str]) -> None:
        """Make one check, unless one it rests on has not passed."""
        stopped = next(
            (c for c in self.done if c.state == "failed" or (c.wanted and c.state != "passed")), None
        )
        if stopped is not None:
            found = Check(
                number=number, name=name, state="not-made", detail=f"check {stopped.number} did not pass"
            )
        else:
            found = self._attempt(number, name, check)
        self.done.append(found)

    def _attempt(self, number: int, name: str, check: Callable[[], str]) -> Check:
        try:
            return Check(number=number, name=name, state="passed", detail=check())
        except TrustError as error:
            return Check(number=number, name=name, state="failed", detail=str(error), code=error.kind)
        except CannotTell as reason:
            return Check(number=number, name=name, state="not-made", detail=str(reason))
        except _NotAsked as reason:
            return Check(number=number, name=name, state="not-made", detail=str(reason), wanted=False)

    def verification(self) -> Verification:
        failed = next((check for check in self.done if check.state == "failed"), None)
        missed = any(check.state == "not-made" and check.wanted for check in self.done)
        agreed: Agreed | None = getattr(self, "agreed", None)
        predicate = agreed.statement.predicate if agreed else None
        verified = failed is None and not missed
        return Verification(
            verdict="REJECTED" if failed else "INCOMPLETE" if missed else "VERIFIED",
            code=failed.code if failed else None,
            checks=tuple(self.done),
            signatures=tuple(signature for signature, _ in self.examined),
            replays=self.replays,
            principals=agreed.principals if agreed else (),
            project=predicate.project if predicate else None,
            run_id=predicate.run_id if predicate else None,
            sequence=predicate.sequence if predicate else None,
            payload_digest=agreed.payload_digest if agreed else None,
            unsigned=self.unsigned,
            warnings=tuple(self.warnings),
            manifest=self._verified() if verified else None,
        )

    def _verified(self) -> VerifiedManifest:
        return VerifiedManifest(
            manifest=self.manifest,
            payload_digest=self.agreed.payload_digest,
            principals=self.agreed.principals,
            folder=self.folder.name,
            token=_TOKEN,
        )

    def _run_rule(self) -> Rule:
        rule = self.trust.policy.run_rule
        if rule is None:
            raise TrustError("E_TRUST", "the policy has no rule about runs, so nobody is trusted to sign one")
        return rule

    def _policy(self) -> str:
        policy = self.trust.policy
        if self.trust.expired(self.now):
            raise TrustError("E_TRUST", f"the trust policy is expired since {policy.expires}")
        rule = self._run_rule()
        return f"version {policy.version}: {rule.threshold} of {', '.join(rule.principals)} must sign"

    def _signatures(self) -> str:
        self.names = list(self.folder.names())
        bundles = [name for name in self.names if _RUN_BUNDLE.fullmatch(name)]
        if not bundles:
            raise TrustError("E_BUNDLE", f"the folder holds no signature (*{BUNDLE_SUFFIX})")
        if len(bundles) > MAX_BUNDLES:
            raise TrustError(
                "E_SIZE", f"{len(bundles)} signatures are more than the {MAX_BUNDLES} that are read"
            )
        self.examined = [self._examine(name) for name in bundles]
        states = [signature.state for signature, _ in self.examined]
        if "counts" not in states:
            if "undecided" in states:
                raise CannotTell(self.examined[states.index("undecided")][0].reason)
            first = self.examined[0][0]
            raise TrustError(first.code or "E_SIG", first.reason, where=first.bundle)
        ignored = [f"{s.bundle} ignored: {s.reason}" for s, _ in self.examined if s.state != "counts"]
        return "; ".join([f"{states.count('counts')} of {len(bundles)} by trusted signers", *ignored])

    def _examine(self, name: str) -> tuple[Signature, RunStatement | None]:
        try:
            data = self.folder.read(name, limit=MAX_BYTES)
        except TrustError as error:
            return Signature(bundle=name, state="ignored", code=error.kind, reason=error.message), None
        return examine_run(data, name=name, trust=self.trust, now=self.now)

    def _signers(self) -> str:
        digest: Digest | None = None
        if MANIFEST_NAME in self.names:
            digest, _ = self.folder.digest(MANIFEST_NAME)
        rule = self._run_rule()
        self.agreed = agree(self.examined, rule, digest)
        return f"{', '.join(self.agreed.principals)} signed {self.agreed.payload_digest}"

    def _statement(self) -> str:
        check_subjects(self.agreed.statement)
        return f"{len(self.agreed.statement.subject)} subjects, each listed and signed"

    def _roll_back(self) -> str:
        return check_roll_back(self.agreed, self.trust.policy, self.demands)

    def _time(self) -> str:
        found, warnings = check_time(self.agreed, self.trust.policy, self.now, self.demands.max_age)
        self.warnings += warnings
        return found

    def _files(self) -> str:
        self.contents = read_contents(self.folder, self.agreed.statement)
        return f"{len(self.agreed.statement.predicate.files)} files are those signed"

    def _manifest(self) -> str:
        self.manifest = check_manifest(self.contents, self.agreed.statement)
        self.warnings += future_phases(self.manifest, self.now)
        return "says what the statement says"

    def _lock(self) -> str:
        self.lock = check_lock(self.contents, self.manifest)
        return f"belongs to repro.yaml, and the run to its part {self.manifest.accelerator}"

    def _traces(self) -> str:
        return f"{check_traces(self.contents, self.manifest, self.lock)} traces belong to manifest and lock"

    def _image(self) -> str:
        named, wanted = self.manifest.image, self.demands.image_digest
        if wanted is not None and (named is None or named.identity.manifest_digest != wanted):
            raise TrustError("E_IMAGE", f"the run is attached to {wanted}, and was of another image or none")
        if named is None:
            raise _NotAsked("the run had no image")
        if self.demands.image is None:
            raise _NotAsked("not asked for (--image)")
        return check_image(named.identity, self.demands.image)

    def _artifacts(self, what: str, find: FindFiles | None, locked: tuple[ArtifactLock, ...]) -> str:
        if find is None:
            raise _NotAsked(f"not asked for (--{what.replace(' ', '')})")
        return check_artifacts(locked, self.lock.ignored, find)

    def _unsigned(self) -> str:
        signed = {file.name for file in self.agreed.statement.predicate.files}
        self.unsigned = tuple(
            name
            for name in self.names
            if name not in signed and not _RUN_BUNDLE.fullmatch(name) and not _REPLAY_BUNDLE.fullmatch(name)
        )
        if not self.unsigned:
            return "none"
        if self.demands.strict:
            raise TrustError(
                "E_SUBJECT", f"{self.unsigned[0]!a} is not signed, of {len(self.unsigned)} such files"
            )
        return f"{len(self.unsigned)} files that no signature covers"

    def _replays(self) -> str:
        if not self.demands.replays:
            raise _NotAsked("not asked for")
        bundles = [name for name in self.names if _REPLAY_BUNDLE.fullmatch(name)]
        if len(bundles) > MAX_BUNDLES:
            raise TrustError(
                "E_SIZE", f"{len(bundles)} replays are more than the {MAX_BUNDLES} that are read"
            )
        rule = self.trust.policy.replay_rule
        if rule is None:
            raise _NotAsked(f"the policy asks for none; {len(bundles)} lie in the folder, unread")
        self.replays = examine_replays(
            self.folder,
            bundles,
            trust=self.trust,
            rule=rule,
            run=self.agreed,
            manifest=self.manifest,
            now=self.now,
        )
        return apply_rule(self.replays, rule)
