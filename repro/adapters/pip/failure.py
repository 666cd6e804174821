"""What pip and pip-compile say when they fail, as named errors."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence

from packaging.utils import canonicalize_name

from repro.errors import FileError, LockError, NetworkError, ReproError

__all__ = ["DISK_FULL", "disk_full", "explain", "redact"]

_SECRET = re.compile(r"(?<=://)[^/\s@'\"]+@")

Explain = Callable[[re.Match[str], str, Mapping[str, str]], ReproError]


def redact(text: str) -> str:
    """Take user names, passwords and tokens out of every URL."""
    return _SECRET.sub("", text)


def _incompatible(_: re.Match[str], said: str, tools: Mapping[str, str]) -> ReproError:
    fault = [line for line in said.splitlines() if line.startswith(("TypeError", "AttributeError"))]
    return LockError(
        "pip-tools-pip-incompatible",
        f"pip-tools {tools['pip-tools']} does not work with pip {tools['pip']}: {fault[-1]}",
        remedy="pip 26.3 and pip-tools 7.6.2 work together; repro uses its own pair of both",
    )


def _vcs(match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return LockError(
        "unhashable-vcs",
        f"{match[1]} comes from version control, which has no hash",
        remedy="build a wheel of that commit, serve it, and require the wheel",
    )


def _constraint(_match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return LockError(
        "constraint-with-extras",
        "a constraint names extras, which constrains nothing",
        remedy="take the extras out of the constraint, and require them in a requirements file",
    )


def _hashes(_: re.Match[str], said: str, _tools: Mapping[str, str]) -> ReproError:
    found = re.search(r"^\s*(\S+)(?: from .*)?:\s*\n\s*Expected sha256 (\w+)\s*\n\s*Got\s+(\w+)", said, re.M)
    what = f"{found[1]} is sha256:{found[3]}, not sha256:{found[2]}" if found else "a file has another hash"
    return LockError(
        "hash-contradiction",
        f"{what} as its index says",
        remedy="ask whoever runs the index; do not install the file before they answer",
    )


def _conflict(_: re.Match[str], said: str, _tools: Mapping[str, str]) -> ReproError:
    causes = re.findall(r"^\s{4,}(\S.*(?:depends on|requested|requires).*)$", said, re.MULTILINE)
    told = "; ".join(dict.fromkeys(" ".join(cause.split()) for cause in causes))
    return LockError(
        "requirements-conflict",
        f"no set of versions satisfies every requirement: {told or 'pip names no cause'}",
        remedy="loosen one of these requirements, or correct a version that no index has",
    )


def _untrusted(_: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return NetworkError(
        "index-untrusted",
        "the certificate of a package index could not be confirmed",
        remedy="give the authority's certificate to pip: pip config set global.cert FILE",
    )


def _unusable(match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return NetworkError(
        "index-unusable",
        f"pip does not use the index {match[1]}: a folder that is not there, or no HTTPS",
        remedy="correct its address in repro.yaml or the requirements file",
    )


def _refused(match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return NetworkError(
        "index-refused",
        f"a package index refused access ({match[1]})",
        remedy="give pip the credentials: in .netrc, a keyring, or ${VARIABLE} in the index address",
    )


def _unreachable(_: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return NetworkError(
        "index-unreachable",
        "a package index does not answer",
        remedy="check the network and pip's index settings: pip config list",
    )


def _broken(match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return NetworkError(
        "index-broken",
        f"a package index answers {match[1]} to what it offers itself",
        remedy="try again later, or ask whoever runs the index",
    )


def _absent(match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    versions = (match[2] or "none").strip()
    wheels = f"versions with a fitting wheel: {versions}" if versions != "none" else "no version has one"
    return LockError(
        "no-matching-wheel",
        f"no wheel for the image's Python and platform satisfies {match[1]} ({wheels})",
        remedy="loosen the version, name the index that has a wheel under indexes in repro.yaml, or build "
        "a wheel of the source distribution and serve it",
    )


DISK_FULL = "No space left on device"
"""What the system says of a full disk, in the C locale."""


def disk_full(where: str | None = None) -> FileError:
    """Name a full disk."""
    return FileError(
        "disk-full", "no space is left on the device", where=where, remedy="free some space and run again"
    )


def _full(_match: re.Match[str], _said: str, _tools: Mapping[str, str]) -> ReproError:
    return disk_full()


# The first that matches names the failure: what is outside this machine comes before what follows from it.
_PATTERNS: tuple[tuple[re.Pattern[str], Explain], ...] = tuple(
    (re.compile(pattern, re.MULTILINE), explain)
    for pattern, explain in (
        (r"piptools[\s\S]*^(?:TypeError|AttributeError): ", _incompatible),
        (DISK_FULL, _full),
        (r"have a way to hash version control repositories:\s*\n\s*(\S+)", _vcs),
        (r"Constraints cannot have extras", _constraint),
        (r"DO NOT MATCH THE HASHES", _hashes),
        (r"pip does not use this index for url: (\S+)", _unusable),
        (r"CERTIFICATE_VERIFY_FAILED|problem confirming the ssl certificate|SSLError", _untrusted),
        (r"\b(401|407) Client Error", _refused),
        (
            r"Failed to establish a new connection|Name or service not known|Connection refused|"
            r"Network is unreachable|[Tt]imed out|connection error|Connection aborted|Max retries exceeded|"
            r"proxy connection error",
            _unreachable,
        ),
        (r"\b((?!40[34])[45]\d\d) (?:Client|Server) Error", _broken),
        (r"conflicting dependencies", _conflict),
        (
            r"satisfies the requirement (.+?)(?: \(from [^v][^)]*\))*(?: \(from versions: ([^)]*)\))?$",
            _absent,
        ),
        (r"No matching distribution found for (\S+)()", _absent),
        (r"\b([45]\d\d) (?:Client|Server) Error", _broken),
    )
)


def _from_source(said: str, unbuilt: Mapping[str, Sequence[str]]) -> ReproError | None:
    """Name a package that an index offers only as a source distribution."""
    wanted = re.search(r"(?:satisfies the requirement|matching distribution found for) ([\w.-]+)", said)
    name = canonicalize_name(wanted[1]) if wanted else ""
    if name not in unbuilt:
        return None
    return LockError(
        "source-distribution-only",
        f"of {name} there is no wheel that fits, only source distributions: {', '.join(unbuilt[name][-3:])}",
        remedy=f"build it once against the locked packages, with `pip wheel --no-deps --no-build-isolation "
        f"{name}==VERSION` inside the image; put the wheel into a folder of the project, and name the folder "
        "with --find-links in the requirements file",
    )


def explain(
    said: str, tools: Mapping[str, str], unbuilt: Mapping[str, Sequence[str]] | None = None
) -> ReproError:
    """Name a failure of pip or pip-compile.

    Args:
        said: everything they wrote, secrets taken out.
        tools: versions of `pip` and `pip-tools`.
        unbuilt: file names of source distributions that were passed over, by normalised package name.
    """
    for pattern, make in _PATTERNS:
        if (match := pattern.search(said)) is not None:
            source = _from_source(said, unbuilt or {}) if make is _absent else None
            return source or make(match, said, tools)
    lines = [line for line in said.splitlines() if line.strip()]
    return LockError(
        "resolver-failed",
        "pip could not resolve the requirements; its last lines were:\n  " + "\n  ".join(lines[-6:]),
    )
