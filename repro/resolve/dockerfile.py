"""Which images a Dockerfile names: none of them may move once the lock is made.

Read as https://docs.docker.com/reference/dockerfile/ has it: parser directives,
line continuations, here-documents, global arguments and their substitution.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from repro.errors import LockError

__all__ = ["Dockerfile", "check_dockerfile", "read_dockerfile"]

_DIRECTIVE = re.compile(r"#\s*([a-zA-Z]+)\s*=\s*(\S+)\s*$")
_HEREDOC = re.compile(r"<<-?\s*([\"']?)(\w+)\1")
_VARIABLE = re.compile(r"\$(?:(\w+)|\{(\w+)(?:(:?[-+])([^}]*))?\})")
_FROM_FLAG = re.compile(r"--from=(\S+)")
_MOUNT_FROM = re.compile(r"--mount=\S*?\bfrom=([^,\s]+)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Dockerfile:
    """What a Dockerfile stands on."""

    images: tuple[str, ...]
    """Images from outside, in order, arguments put in; each once."""
    stages: tuple[str, ...]
    """Names of its own stages, in order."""
    frontend: str | None
    """Image of the `syntax` directive; BuildKit fetches it, the classic builder does not."""


def _instructions(text: str) -> Iterator[tuple[int, str]]:
    """Yield each instruction as one line, with the number of its first."""
    first, joined, until = 0, "", ""
    for number, line in enumerate(text.splitlines(), start=1):
        bare = line.strip()
        if until:
            until = "" if bare == until else until
        elif bare and not bare.startswith("#"):
            first = first or number
            joined += bare.removesuffix("\\") if bare.endswith("\\") else bare
            if bare.endswith("\\"):
                continue
            if heredoc := _HEREDOC.search(joined):
                until = heredoc[2]
            yield first, joined
            first, joined = 0, ""
    if joined:
        yield first, joined


def _frontend(text: str) -> str | None:
    """Return the `syntax` directive, which must come before all else."""
    for line in text.removeprefix("\ufeff").splitlines():
        match = _DIRECTIVE.match(line.strip())
        if match is None:
            return None
        if match[1].lower() == "syntax":
            return match[2]
    return None


def _substitute(text: str, values: Mapping[str, str], where: str) -> str:
    def value(match: re.Match[str]) -> str:
        name, operator, word = match[1] or match[2], match[3] or "", match[4] or ""
        known = values.get(name)
        filled = bool(known) if operator.startswith(":") else known is not None
        if operator.endswith("+"):
            return word if filled else ""
        if filled and known is not None:
            return known
        if operator.endswith("-"):
            return word
        raise LockError(
            "dockerfile-argument-missing",
            f"the argument {name} has no value",
            where=where,
            remedy=f"give it a default, ARG {name}=…, before the first FROM",
        )

    return _VARIABLE.sub(value, text)


def read_dockerfile(text: str, *, where: str, arguments: Mapping[str, str]) -> Dockerfile:
    """Read the images and stages of a Dockerfile.

    Args:
        where: the file, for messages.
        arguments: build arguments that are given, which go before defaults.

    Raises:
        LockError: kind `dockerfile-argument-missing`.
    """
    values: dict[str, str] = {}
    images: list[str] = []
    stages: list[str] = []
    started = 0
    for number, line in _instructions(text):
        word, _, rest = line.partition(" ")
        here = f"{where}:{number}"
        if word.upper() == "ARG" and not started:
            for item in rest.split():
                name, given, default = item.partition("=")
                if name in arguments:
                    values[name] = arguments[name]
                elif given:
                    values[name] = _substitute(default.strip("\"'"), values, here)
        elif word.upper() == "FROM":
            started += 1
            words = [part for part in rest.split() if not part.startswith("--")]
            image = _substitute(words[0], values, here) if words else ""
            if image.lower() not in (*stages, "scratch", ""):
                images.append(image)
            stages += [words[2].lower()] if len(words) == 3 and words[1].upper() == "AS" else []
        elif word.upper() in ("COPY", "ADD", "RUN"):
            for source in (*_FROM_FLAG.findall(line), *_MOUNT_FROM.findall(line)):
                if source.lower() not in (*stages, "scratch") and not source.isdigit():
                    images.append(source)
    return Dockerfile(images=tuple(dict.fromkeys(images)), stages=tuple(stages), frontend=_frontend(text))


def check_dockerfile(text: str, *, where: str, base: str) -> None:
    """Refuse a Dockerfile that does not stand on the locked base, or on images that may move.

    Raises:
        LockError: kinds `base-unused`, `image-unpinned`, or as `read_dockerfile` says.
    """
    read = read_dockerfile(text, where=where, arguments={"BASE": base})
    if base not in read.images:
        raise LockError(
            "base-unused",
            "the Dockerfile does not build on the base that repro.yaml names",
            where=where,
            remedy="write ARG BASE, and FROM ${BASE}",
        )
    outside = [image for image in read.images if image != base]
    outside += [read.frontend] if read.frontend else []
    if moving := [image for image in outside if "@sha256:" not in image]:
        raise LockError(
            "image-unpinned",
            f"the Dockerfile takes from images that may move: {', '.join(moving)}",
            where=where,
            remedy="name them by digest, IMAGE@sha256:…",
        )
