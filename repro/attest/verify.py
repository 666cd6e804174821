"""Check a signed run folder against a trust policy: a numbered list of checks and one verdict.

Only a run that passed every check that was asked for becomes a
`VerifiedManifest`, and nothing but this module makes one.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from repro.attest.contents import Contents, check_lock, check_manifest, check_traces, read_contents
from repro.attest.keyring import Trust
from repro.attest.outcome import CannotTell, Check, ReplayFinding, Signature, Verification
from repro.attest.replays import apply_rule, examine_replays
from repro.attest.signature import examine_run
from repro.attest.statements import Agreed, agree, check_subjects
from repro.bundle import BUNDLE_SUFFIX
from repro.digest import Digest
from repro.errors import ReproError, TrustError
from repro.image import ImageIdentity
from repro.lock import ArtifactLock, FileLock, Lock
from repro.manifest import _TOKEN, Manifest, VerifiedManifest
from repro.ports import RunFolder
from repro.statement import MANIFEST_NAME, RunStatement
from repro.strictjson import MAX_BYTES
from repro.trust import CLOCK_SKEW, Rule, parse_moment

__all__ = ["Demands", "FindFiles", "FindImage", "verify"]

FindImage = Callable[[ImageIdentity], ImageIdentity | None]
"""Looks for an image where the caller said, and says what lies there."""

FindFiles = Callable[[ArtifactLock], Iterable[FileLock] | None]
"""Hashes the files of a model or a data set where the caller has them."""

MAX_BUNDLES = 64
_RUN_BUNDLE = re.compile(r"[^/]+" + re.escape(BUNDLE_SUFFIX))
_REPLAY_BUNDLE = re.compile(r"replays/[^/]+" + re.escape(BUNDLE_SUFFIX))


@dataclass(frozen=True, kw_only=True, slots=True)
class Demands:
    """What an auditor asks for beyond the policy."""

    project: str | None = None
    run_id: str | None = None
    max_age: timedelta | None = None
    """Largest age of the signature, proved by a time stamp."""
    strict: bool = False
    """Refuse files that no signature covers."""
    replays: bool = True
    """Apply the policy's rule about replays; False while a replay is about to be made."""
    image: FindImage | None = None
    models: FindFiles | None = None
    datasets: FindFiles | None = None


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
        predicate, policy = self.agreed.statement.predicate, self.trust.policy
        if self.agreed.payload_digest in policy.revoked_payloads:
            raise TrustError("E_REVOKED", "the policy takes trust away from this very run")
        if self.demands.project not in (None, predicate.project):
            raise TrustError(
                "E_REPLAY", f"the run is of project {predicate.project!a}, not {self.demands.project!a}"
            )
        if self.demands.run_id not in (None, predicate.run_id):
            raise TrustError("E_REPLAY", f"the run is {predicate.run_id!a}, not {self.demands.run_id!a}")
        floor = policy.min_sequence.get(predicate.project)
        if floor is not None and predicate.sequence < floor:
            raise TrustError(
                "E_REPLAY", f"run number {predicate.sequence} is older than {floor}, the oldest believed"
            )
        if floor is None:
            return f"run number {predicate.sequence} of {predicate.project!a}; the policy names no oldest one"
        return f"run number {predicate.sequence} of {predicate.project!a}, {floor} or later is believed"

    def _time(self) -> str:
        created = self.agreed.statement.predicate.created_at
        try:
            moment = parse_moment(created)
        except ValueError as error:
            raise TrustError("E_TIME", f"createdAt is {created!a}: {error}") from None
        if moment > self.now + CLOCK_SKEW:
            raise TrustError("E_TIME", f"createdAt {created} is in the future")
        times = sorted({signature.time or "" for signature in self.agreed.signatures})
        if self.demands.max_age is not None:
            self._check_age(times, self.demands.max_age)
        return f"signers say {created}; keys judged by {', '.join(times)}"

    def _check_age(self, times: list[str], limit: timedelta) -> None:
        proved = [parse_moment(time.rpartition(" ")[2]) for time in times if time != "now"]
        if not proved:
            raise CannotTell("an age was demanded, and no time stamp proves one")
        if self.now - max(proved) > limit:
            raise TrustError("E_TIME", f"the latest time stamp, {max(proved):%Y-%m-%dT%H:%M:%SZ}, is too old")

    def _files(self) -> str:
        self.contents = read_contents(self.folder, self.agreed.statement)
        return f"{len(self.agreed.statement.predicate.files)} files are those signed"

    def _manifest(self) -> str:
        self.manifest = check_manifest(self.contents, self.agreed.statement)
        for phase in self.manifest.phases:
            self._check_phase_time(phase.name, phase.started_at)
        return "says what the statement says"

    def _check_phase_time(self, phase: str, started_at: str) -> None:
        """Such times are claims, and decide nothing."""
        try:
            future = parse_moment(started_at) > self.now + CLOCK_SKEW
        except ValueError:
            raise TrustError("E_TIME", f"{started_at!a} is no time", where=f"phase {phase}") from None
        if future:
            self.warnings.append(f"signed-in-the-future: phase {phase} is said to start at {started_at}")

    def _lock(self) -> str:
        self.lock = check_lock(self.contents, self.manifest)
        return f"belongs to repro.yaml, and the run to its part {self.manifest.accelerator}"

    def _traces(self) -> str:
        return f"{check_traces(self.contents, self.manifest, self.lock)} traces belong to manifest and lock"

    def _image(self) -> str:
        if self.manifest.image is None:
            raise _NotAsked("the run had no image")
        if self.demands.image is None:
            raise _NotAsked("not asked for (--image)")
        identity = self.manifest.image.identity
        try:
            found = self.demands.image(identity)
        except ReproError as error:
            if isinstance(error, TrustError):
                raise
            raise CannotTell(str(error)) from None
        if found is None:
            raise CannotTell("no image lies where it was looked for")
        if found != identity:
            message = f"config {found.config_digest} was found where {identity.config_digest} was signed"
            raise TrustError("E_IMAGE", message)
        return f"the image is the one signed, {identity.config_digest}"

    def _artifacts(self, what: str, find: FindFiles | None, locked: tuple[ArtifactLock, ...]) -> str:
        if find is None:
            raise _NotAsked(f"not asked for (--{what.replace(' ', '')})")
        for artifact in locked:
            try:
                found = find(artifact)
            except ReproError as error:
                raise CannotTell(str(error)) from None
            if found is None:
                raise CannotTell(f"{artifact.name} is not there")
            there = {file.path: file.digest for file in found}
            for file in artifact.files:
                if there.get(file.path) != file.digest:
                    raise TrustError("E_INPUT", f"{file.path!a} is not what was locked", where=artifact.name)
        return f"{len(locked)} are those locked"

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
