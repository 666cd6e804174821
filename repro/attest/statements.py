"""Which of the signed statements is about this folder, and whether enough principals signed it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from repro.attest.outcome import CannotTell, Signature
from repro.attest.paths import check_name
from repro.digest import Digest
from repro.errors import TrustError
from repro.statement import IMAGE_MEDIA_TYPE, MANIFEST_NAME, RunStatement
from repro.trust import Rule

__all__ = ["Agreed", "agree", "check_subjects"]


@dataclass(frozen=True, slots=True)
class Agreed:
    """The statement that enough principals signed."""

    statement: RunStatement
    payload_digest: Digest
    signatures: tuple[Signature, ...]

    @property
    def principals(self) -> tuple[str, ...]:
        """Who signed it, each once."""
        return tuple(sorted({s.principal for s in self.signatures if s.principal}))


def agree(
    examined: Sequence[tuple[Signature, RunStatement | None]], rule: Rule, manifest_digest: Digest | None
) -> Agreed:
    """Find the one statement that reaches the rule's threshold of distinct principals.

    Args:
        examined: every bundle, and the statement of those that count.
        rule: the policy's rule about runs.
        manifest_digest: of the `manifest.json` in the folder; tells apart statements about several runs.

    Raises:
        TrustError: kind `E_THRESHOLD` where none does, or where two about one run do.
        CannotTell: where bundles that could not be judged would decide it.
    """
    groups: dict[Digest, Agreed] = {}
    for signature, statement in examined:
        if statement is not None and signature.payload_digest is not None:
            known = groups.get(signature.payload_digest)
            signatures = (*(known.signatures if known else ()), signature)
            groups[signature.payload_digest] = Agreed(statement, signature.payload_digest, signatures)
    reached = [group for group in groups.values() if len(group.principals) >= rule.threshold]
    if len(reached) > 1:
        _refuse_equivocation(reached)
        reached = [group for group in reached if _manifest_digest(group.statement) == manifest_digest]
    if len(reached) == 1:
        return reached[0]
    if any(signature.state == "undecided" for signature, _ in examined):
        raise CannotTell("signatures that could not be judged would decide whether enough principals signed")
    most = max((len(group.principals) for group in groups.values()), default=0)
    raise TrustError(
        "E_THRESHOLD", f"{most} of {rule.threshold} principals signed one and the same statement"
    )


def _refuse_equivocation(reached: Sequence[Agreed]) -> None:
    runs = [(group.statement.predicate.project, group.statement.predicate.run_id) for group in reached]
    if len(set(runs)) < len(runs):
        raise TrustError("E_THRESHOLD", "trusted principals signed two different statements about one run")


def _manifest_digest(statement: RunStatement) -> str | None:
    found = (s.digest.sha256 for s in statement.subject if s.name == MANIFEST_NAME)
    digest = next(found, None)
    return f"sha256:{digest}" if digest else None


def check_subjects(statement: RunStatement) -> None:
    """Subjects must be the predicate's files and its image: no more, and no fewer.

    Raises:
        TrustError: kind `E_PATH` or `E_SUBJECT`.
    """
    predicate = statement.predicate
    files = [file.name for file in predicate.files]
    for name in files:
        check_name(name)
    if files.count(MANIFEST_NAME) != 1:
        raise TrustError("E_SUBJECT", f"{MANIFEST_NAME} is not among the signed files")
    expected = [*files, *([predicate.image.name] if predicate.image else [])]
    subjects = {subject.name: subject for subject in statement.subject}
    if len(set(expected)) != len(expected):
        raise TrustError("E_SUBJECT", "the statement lists a file twice")
    if missing := sorted(set(expected) - set(subjects)):
        raise TrustError("E_SUBJECT", f"{missing[0]!a} is listed but not signed")
    if surplus := sorted(set(subjects) - set(expected)):
        raise TrustError("E_SUBJECT", f"{surplus[0]!a} is signed but not listed")
    for name, subject in subjects.items():
        is_image = predicate.image is not None and name == predicate.image.name
        if (subject.media_type == IMAGE_MEDIA_TYPE) != is_image:
            raise TrustError("E_SUBJECT", f"{name!a} has another media type than its place allows")
