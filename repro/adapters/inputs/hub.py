"""The Hugging Face Hub, through its own client, whose cache, token, endpoint and offline switch apply."""

from __future__ import annotations

import os
import re
import shutil
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from repro.errors import LockError, NetworkError, ReproError
from repro.ports import Progress
from repro.resolution import Found, Reference

__all__ = ["HubSource", "revision_kind"]

RevisionKind = Literal["commit", "short-hash", "pull-ref", "branch"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHORT = re.compile(r"[0-9a-f]{7,39}")
_WORKERS = 8


def revision_kind(revision: str) -> RevisionKind:
    """Say what a revision looks like. Only a `commit` is the same for ever; a tag looks like a branch."""
    if _COMMIT.fullmatch(revision):
        return "commit"
    if _SHORT.fullmatch(revision):
        return "short-hash"
    return "pull-ref" if revision.startswith("refs/pr/") else "branch"


class HubSource:
    """Fulfils `repro.ports.ArtifactSource` for `hub:`."""

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        """Write the files of `owner/name` at one commit.

        The revision is a commit, a short hash, a branch, a tag or `refs/pr/N`; by default `main`.

        Raises:
            LockError: kinds `hub-extra-missing`, `hub-malformed`, `gated`, `no-access-or-missing`,
                `revision-missing`, `no-ref-in-cache`.
            NetworkError: kind `hub-unavailable`.
        """
        try:
            import huggingface_hub.constants
            import huggingface_hub.errors
            import huggingface_hub.utils
        except ImportError:
            raise LockError(
                "hub-extra-missing",
                "hub: needs huggingface_hub",
                where=reference.text,
                remedy="install it: pip install 'repro-manifest[hub]'",
            ) from None
        asked = _Asked(huggingface_hub, reference)
        if huggingface_hub.constants.HF_HUB_OFFLINE:
            return asked.from_cache(into)
        return asked.from_hub(into, progress)


class _Asked:
    """One reference, and the client that answers."""

    def __init__(self, client: Any, reference: Reference) -> None:
        self.client = client
        self.name = reference.text
        self.revision = reference.revision or "main"
        self.role = reference.role
        self.endpoint = os.environ.get("HF_ENDPOINT") or None
        errors = client.errors
        self.raised = (errors.HTTPError, errors.HFValidationError, OSError)
        """What the client raises: answers of the Hub, names it cannot read, and a Hub that is not there."""

    def from_hub(self, into: Path, progress: Progress) -> Found:
        """Resolve on the Hub, fetch what the client's cache has not got, and write the files."""
        try:
            return self._from_hub(into, progress)
        except self.raised as error:
            raise self._named(error) from None

    def _from_hub(self, into: Path, progress: Progress) -> Found:
        api = self.client.HfApi(endpoint=self.endpoint)
        info = api.repo_info(
            self.name, revision=self._complete(api), repo_type=self.role, files_metadata=True
        )
        names = [sibling.rfilename for sibling in info.siblings]
        for name in names:
            self._check_name(name)
        progress.start(f"fetch {self.name}", total=len(names))
        self.client.utils.disable_progress_bars()

        def fetch(name: str) -> None:
            place = self.client.hf_hub_download(
                info.id, name, repo_type=self.role, revision=info.sha, endpoint=self.endpoint
            )
            _put(Path(place), into / name)
            progress.advance(note=name)

        with ThreadPoolExecutor(_WORKERS) as pool:
            list(pool.map(fetch, names))
        licence = getattr(info.card_data, "license", None) if info.card_data else None
        return Found(
            requested=self.name,
            resolved=info.id if info.id != self.name else None,
            commit=info.sha,
            licence=licence if isinstance(licence, str) else None,
            hints={sibling.rfilename: tag for sibling in info.siblings if (tag := _etag(sibling))},
        )

    def _check_name(self, name: str) -> None:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts:
            raise LockError(
                "hub-malformed",
                f"a file's name leads out of its folder: {name!r}",
                where=self.name,
                remedy="ask whoever keeps the repository",
            )

    def _complete(self, api: Any) -> str:
        """Make 40 digits of a short hash, which the Hub does not resolve everywhere."""
        if revision_kind(self.revision) != "short-hash":
            return self.revision
        commits = [commit.commit_id for commit in api.list_repo_commits(self.name, repo_type=self.role)]
        matching = [commit for commit in commits if commit.startswith(self.revision)]
        return matching[0] if len(matching) == 1 else self.revision

    def from_cache(self, into: Path) -> Found:
        """Take a commit from the client's cache; a branch only where the cache knows what it stood for."""
        folder = f"{self.role}s--{self.name.replace('/', '--')}"
        repository = Path(self.client.constants.HF_HUB_CACHE) / folder
        snapshots = repository / "snapshots"
        commits = sorted(path.name for path in snapshots.iterdir()) if snapshots.is_dir() else []
        ref = repository / "refs" / self.revision
        commit = self.revision
        if revision_kind(self.revision) != "commit":
            commit = ref.read_text(encoding="utf-8").strip() if ref.is_file() else ""
        if commit not in commits:
            held = ", ".join(commits) or "no commit"
            raise LockError(
                "no-ref-in-cache",
                f"offline, {self.revision} of {self.name} cannot be resolved; the cache holds {held}",
                where=self.name,
                remedy="write one of these commits as revision, or lock with the Hub in reach",
            )
        for path in sorted((snapshots / commit).rglob("*")):
            if path.is_file():
                _put(path, into / path.relative_to(snapshots / commit))
        return Found(requested=self.name, commit=commit)

    def _named(self, error: Exception) -> ReproError:
        """Name what the client raised."""
        errors = self.client.errors
        if isinstance(error, errors.HFValidationError):
            return LockError(
                "hub-malformed",
                "this is no name of a Hub repository",
                where=self.name,
                remedy="write owner/name",
            )
        if isinstance(error, errors.GatedRepoError):
            return LockError(
                "gated",
                "the Hub gives these files only to those who accepted its conditions",
                where=self.name,
                remedy=f"accept them on the page of {self.name}, then log in with `hf auth login`",
            )
        if isinstance(error, errors.RevisionNotFoundError):
            return LockError(
                "revision-missing",
                f"{self.name} has no revision {self.revision}",
                where=self.name,
                remedy="correct revision in repro.yaml",
            )
        if isinstance(error, errors.RepositoryNotFoundError):
            return LockError(
                "no-access-or-missing",
                "the Hub says the same of what is not there and of what is private: this is one of the two",
                where=self.name,
                remedy="check the name; if it is private, log in with `hf auth login`",
            )
        return NetworkError(
            "hub-unavailable",
            f"the Hub does not answer as it should ({type(error).__name__}), which says nothing of the files",
            where=self.name,
            remedy="try again later, or write the commit as revision and lock offline from the cache",
        )


def _etag(sibling: Any) -> str | None:
    """What the Hub calls a file: git's blob id, or the SHA-256 in an LFS pointer."""
    if sibling.lfs is not None:
        return f"lfs sha256 {sibling.lfs.sha256}"
    return f"git blob {sibling.blob_id}" if sibling.blob_id else None


def _put(source: Path, place: Path) -> None:
    """Link to the cached bytes where the file system can, copy where it cannot."""
    place.parent.mkdir(parents=True, exist_ok=True)
    bytes_of = source.resolve(strict=True)
    try:
        os.link(bytes_of, place)
    except OSError:
        shutil.copyfile(bytes_of, place)
