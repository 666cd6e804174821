"""A git repository at one commit, byte for byte as it was committed, Git LFS files included."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from repro.adapters.inputs.lfs import fetch_pointers
from repro.adapters.inputs.url import without_secret
from repro.errors import LockError, NetworkError
from repro.ports import Progress
from repro.resolution import Found, Reference

__all__ = ["GitSource"]

_COMMIT = re.compile(r"[0-9a-f]{40}")
_CHUNK = 1 << 20
_SCHEME = re.compile(r"(?:https?|ssh|git|file)://|[\w.-]+@[\w.-]+:|/|\.{1,2}/")


class GitSource:
    """Fulfils `repro.ports.ArtifactSource` for `git:`."""

    def materialise(self, reference: Reference, into: Path, progress: Progress) -> Found:
        """Write every file of a commit; filters, hooks and line-end rules of this machine do not apply.

        The revision is a branch, a tag or a commit; by default the remote's own HEAD.

        Raises:
            LockError: kinds `git-missing`, `git-malformed`, `git-unsafe`, `revision-missing`, `lfs-differs`.
            NetworkError: kind `git-unreachable`, or as `fetch_pointers` says.
        """
        place = without_secret(reference.text)
        if not _SCHEME.match(reference.text) or (reference.revision or "").startswith("-"):
            raise LockError(
                "git-malformed",
                "this is no address of a git repository",
                where=place,
                remedy="write https://HOST/PATH, ssh://…, user@host:path, or a folder",
            )
        with tempfile.TemporaryDirectory(dir=into.parent) as folder:
            repository = _Repository(Path(folder), reference.text)
            commit = repository.fetch(reference.revision)
            warnings = repository.write(commit, into)
        fetch_pointers(into, reference.text, progress)
        return Found(requested=place, commit=commit, warnings=tuple(warnings))


class _Repository:
    """A bare repository for one fetch."""

    def __init__(self, folder: Path, reference: str) -> None:
        self.folder = folder
        self.reference = reference
        self._run("init", "--quiet", "--bare", ".")

    def _command(self, *arguments: str) -> list[str]:
        settings = ["core.hooksPath=/dev/null", "protocol.ext.allow=never", "gc.auto=0"]
        return ["git", *(word for setting in settings for word in ("-c", setting)), *arguments]

    def _environment(self) -> dict[str, str]:
        kept = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
        kept |= {key: os.environ[key] for key in ("GIT_SSL_CAINFO", "GIT_SSH_COMMAND") if key in os.environ}
        return kept | {"GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}

    def _run(self, *arguments: str) -> str:
        """Run git in the repository. Raises CalledProcessError."""
        try:
            done = subprocess.run(
                self._command(*arguments),
                cwd=self.folder,
                env=self._environment(),
                stdin=subprocess.DEVNULL,
                capture_output=True,
                check=True,
            )
        except FileNotFoundError:
            raise LockError(
                "git-missing",
                "the git command is not there",
                where=without_secret(self.reference),
                remedy="install git",
            ) from None
        return done.stdout.decode("utf-8", "replace")

    def _remote(self, *arguments: str) -> str:
        try:
            return self._run(*arguments)
        except subprocess.CalledProcessError as error:
            said = error.stderr.decode("utf-8", "replace").strip().splitlines()
            reason = said[-1] if said else "git gave no reason"
            told = reason.replace(self.reference, without_secret(self.reference))
            raise NetworkError(
                "git-unreachable",
                f"the repository cannot be read: {told}",
                where=without_secret(self.reference),
                remedy="check the address, the network, and git's credentials for it",
            ) from None

    def fetch(self, revision: str | None) -> str:
        """Bring in one commit and return its 40 digits."""
        remote = self.reference
        if revision is None or not _COMMIT.fullmatch(revision):
            commit = self._named(revision or "HEAD")
        else:
            commit = revision
        try:
            self._run("fetch", "--quiet", "--depth=1", "--no-tags", "--", remote, commit)
        except subprocess.CalledProcessError:
            # Servers need not serve a commit by its id; they all serve their branches and tags.
            self._remote("fetch", "--quiet", "--", remote, "+refs/*:refs/remotes/origin/*")
        try:
            return self._run("rev-parse", "--verify", "--quiet", f"{commit}^{{commit}}").strip()
        except subprocess.CalledProcessError:
            raise self._absent(revision or "HEAD") from None

    def _named(self, name: str) -> str:
        """Ask the remote what a branch or tag is now; a tag that stands for a commit leads to it."""
        listed = self._remote("ls-remote", "--", self.reference)
        known = {ref: commit for commit, _, ref in (line.partition("\t") for line in listed.splitlines())}
        for ref in (name, f"refs/tags/{name}^{{}}", f"refs/tags/{name}", f"refs/heads/{name}"):
            if ref in known:
                return known[ref]
        if re.fullmatch(r"[0-9a-f]{4,39}", name):
            self._remote("fetch", "--quiet", "--", self.reference, "+refs/*:refs/remotes/origin/*")
            return name
        raise self._absent(name)

    def _absent(self, name: str) -> LockError:
        return LockError(
            "revision-missing",
            f"the repository has no branch, tag or commit {name}",
            where=without_secret(self.reference),
            remedy="correct revision in repro.yaml",
        )

    def _place(self, into: Path, path: str) -> Path:
        """Return where to write a path of the tree, with its folder made. A tree may say anything."""
        place = into / path
        if {"", ".", "..", ".git"} & set(path.split("/")):
            inside = False
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            inside = place.parent.resolve().is_relative_to(into.resolve())
        if not inside:
            raise LockError(
                "git-unsafe",
                f"the commit holds the path {path!r}, which leads out of its own folder",
                where=without_secret(self.reference),
                remedy="do not use this repository",
            )
        return place

    @contextmanager
    def _objects(self) -> Iterator[tuple[IO[bytes], IO[bytes]]]:
        with subprocess.Popen(
            self._command("cat-file", "--batch"),
            cwd=self.folder,
            env=self._environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as process:
            assert process.stdin is not None
            assert process.stdout is not None
            yield process.stdin, process.stdout
            process.stdin.close()

    def write(self, commit: str, into: Path) -> list[str]:
        """Write the blobs of a commit as files and links; return warnings of what was left out."""
        warnings = []
        listed = self._run("ls-tree", "-r", "-z", commit)
        with self._objects() as (ask, answer):
            for entry in filter(None, listed.split("\0")):
                head, path = entry.split("\t", 1)
                mode, kind, blob = head.split()
                if kind != "blob":
                    warnings.append(f"{path} is a submodule, which is not fetched")
                    continue
                ask.write(f"{blob}\n".encode())
                ask.flush()
                size = int(answer.readline().split()[2])
                place = self._place(into, path)
                if mode == "120000":
                    place.symlink_to(answer.read(size).decode("utf-8", "surrogateescape"))
                else:
                    _copy(answer, place, size)
                answer.read(1)
        return warnings


def _copy(source: IO[bytes], place: Path, size: int) -> None:
    with place.open("xb") as stream:
        while size:
            chunk = source.read(min(size, _CHUNK))
            stream.write(chunk)
            size -= len(chunk)
