"""`trust.yaml`: whom an auditor believes, since when, until when, and about what.

Written by the auditor and never taken from a run folder. `docs/trust.md` is
its description.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from repro.digest import DigestStr
from repro.errors import SpecError
from repro.statement import REPLAY_TYPE, RUN_TYPE, Wire
from repro.strictyaml import load, validate

__all__ = [
    "CLOCK_SKEW",
    "TRUST_SCHEMA",
    "Authority",
    "Identity",
    "Moment",
    "Root",
    "Rule",
    "TimeAuthority",
    "TrustPolicy",
    "TrustedKey",
    "parse_moment",
    "parse_policy",
]

TRUST_SCHEMA = "https://repro-manifest/trust/v1"
CLOCK_SKEW = timedelta(minutes=5)
"""How far a signer's clock may be ahead of the auditor's before a time counts as future."""

_MOMENT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}Z")


def parse_moment(text: str) -> datetime:
    """Read `2026-11-30T10:00:00Z`, the only form of time in signed files and policies.

    Raises:
        ValueError: for another form, or a date that does not exist.
    """
    if not _MOMENT.fullmatch(text):
        raise ValueError("write a time as 2026-11-30T10:00:00Z")
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def _moment(text: str) -> str:
    parse_moment(text)
    return text


def _beside(path: str) -> str:
    parts = path.split("/")
    if any(part in ("", ".", "..") for part in parts) or "\\" in path:
        raise ValueError("write a path below the folder of the trust file, with forward slashes")
    return path


Moment = Annotated[str, AfterValidator(_moment)]
RelativePath = Annotated[str, StringConstraints(min_length=1, max_length=255), AfterValidator(_beside)]
Principal = Annotated[str, StringConstraints(pattern=r"^[a-z0-9](?:[a-z0-9._-]{0,62}[a-z0-9])?$")]


class TrustedKey(Wire):
    """A key, whose it is, and when it counts. Without dates it counts until it is retired or revoked."""

    file: RelativePath
    fingerprint: DigestStr
    principal: Principal
    not_before: Moment | None = None
    not_after: Moment | None = None
    status: Literal["active", "retired", "revoked"] = "active"
    revoked_from: Moment | None = None
    """From when on the key may have been in other hands."""

    @model_validator(mode="after")
    def _consistent(self) -> TrustedKey:
        if (self.status == "revoked") != (self.revoked_from is not None):
            raise ValueError("revokedFrom goes with status revoked, and only with it")
        if self.not_before and self.not_after and self.not_before >= self.not_after:
            raise ValueError("notBefore must come before notAfter")
        return self


class Identity(Wire):
    """A name in certificates, compared exactly, and the principal it stands for."""

    san: Annotated[str, StringConstraints(min_length=1, max_length=1024)]
    principal: Principal


class Authority(Wire):
    """A private certificate authority: PEM files and the names it may vouch for."""

    name: Principal
    roots: tuple[RelativePath, ...] = Field(min_length=1)
    intermediates: tuple[RelativePath, ...] = ()
    identities: tuple[Identity, ...] = Field(min_length=1)


class TimeAuthority(Wire):
    """A time-stamping authority: its certificate and the root above it, PEM files."""

    name: Principal
    certificate: RelativePath
    root: RelativePath


class Rule(Wire):
    """What must be signed, and by how many of whom."""

    predicate_type: Literal["https://repro-manifest/run/v1", "https://repro-manifest/replay/v1"]
    threshold: int = Field(ge=1)
    """How many different principals must sign the same payload, or have replayed with success."""
    principals: tuple[Principal, ...] = Field(min_length=1)
    independent_of_run_signers: bool = True
    """A principal that signed the run does not count as its replayer."""
    result: Literal["PASSED"] = "PASSED"
    allowed_deviations: tuple[str, ...] = ()
    """Deviations a counted replay may name, exactly as written in it."""

    @model_validator(mode="after")
    def _reachable(self) -> Rule:
        if len(set(self.principals)) != len(self.principals):
            raise ValueError("a principal stands twice")
        if self.threshold > len(self.principals):
            raise ValueError(f"a threshold of {self.threshold} cannot be reached by {len(self.principals)}")
        return self


class Root(Wire):
    """Who may replace the policy: principals of these keys, of the old policy and of the new one."""

    threshold: int = Field(ge=1)
    keys: tuple[DigestStr, ...] = Field(min_length=1)
    """Fingerprints; each stands among the policy's keys."""


class TrustPolicy(Wire):
    """All of `trust.yaml`."""

    schema_: Literal["https://repro-manifest/trust/v1"] = Field(alias="schema")
    version: int = Field(ge=1)
    expires: Moment | None = None
    root: Root | None = None
    keys: tuple[TrustedKey, ...] = ()
    cas: tuple[Authority, ...] = ()
    tsas: tuple[TimeAuthority, ...] = ()
    rules: tuple[Rule, ...] = Field(min_length=1)
    min_sequence: dict[str, Annotated[int, Field(ge=0)]] = Field(default_factory=dict)
    """Lowest run number believed, by project: older runs are roll-backs."""
    revoked_payloads: tuple[DigestStr, ...] = ()
    future_times: Literal["warn", "refuse"] = "warn"
    """What to do about a run that is said to be made in the future."""

    @model_validator(mode="after")
    def _consistent(self) -> TrustPolicy:
        fingerprints = [key.fingerprint for key in self.keys]
        if len(set(fingerprints)) != len(fingerprints):
            raise ValueError("a key stands twice")
        kinds = [rule.predicate_type for rule in self.rules]
        if len(set(kinds)) != len(kinds):
            raise ValueError("two rules are about one predicate type")
        known = {key.principal for key in self.keys}
        known |= {identity.principal for ca in self.cas for identity in ca.identities}
        if strangers := sorted({name for rule in self.rules for name in rule.principals} - known):
            raise ValueError(f"no key and no certificate identity belongs to {', '.join(strangers)}")
        if self.root is not None:
            holders = {key.principal for key in self.keys if key.fingerprint in self.root.keys}
            if set(self.root.keys) - set(fingerprints):
                raise ValueError("a root key stands not among the keys")
            if self.root.threshold > len(holders):
                raise ValueError(
                    f"a root threshold of {self.root.threshold} cannot be reached by {len(holders)}"
                )
        return self

    def rule(self, predicate_type: str) -> Rule | None:
        """The rule about one kind of statement."""
        return next((rule for rule in self.rules if rule.predicate_type == predicate_type), None)

    @property
    def run_rule(self) -> Rule | None:
        """Who may sign runs."""
        return self.rule(RUN_TYPE)

    @property
    def replay_rule(self) -> Rule | None:
        """Who must have replayed."""
        return self.rule(REPLAY_TYPE)


def parse_policy(data: bytes, *, where: str) -> TrustPolicy:
    """Read a trust policy.

    Raises:
        SpecError: kind `E_YAML` where it is no such YAML, `E_TRUST` where it makes no sense; with every flaw.
    """
    try:
        document = load(data, where=where)
    except SpecError as error:
        raise _named("E_YAML", error) from None
    try:
        return validate(document, TrustPolicy, where=where)
    except SpecError as error:
        raise _named("E_TRUST", error) from None


def _named(kind: str, error: SpecError) -> SpecError:
    return SpecError(kind, error.message, where=error.where, remedy=error.remedy, flaws=error.flaws)
