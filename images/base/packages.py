"""The base's packages: what is locked, and how it comes from the mirror into the cache."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from basics import CACHE, BaseError, run, say, sha256_of, written

__all__ = [
    "INCLUDE",
    "NO_USRMERGE",
    "SUITE",
    "TAG",
    "Lock",
    "Mirror",
    "MovedError",
    "Package",
    "complete",
    "read_lock",
    "write_lock",
]

SUITE = "bookworm"
TAG = f"repro-base:{SUITE}"
INCLUDE = ("ca-certificates", "libgomp1", "libstdc++6", "python3", "usr-is-merged")

# usrmerge is the other way to satisfy init-system-helpers; it would bring all of perl into the image.
NO_USRMERGE = "Package: usrmerge\nPin: release *\nPin-Priority: -1\n\n"


@dataclass(frozen=True, order=True)
class Package:
    """One Debian package file."""

    name: str
    version: str
    architecture: str
    sha256: str

    def __str__(self) -> str:
        return f"{self.name} {self.version} {self.architecture} {self.sha256}"

    @property
    def file(self) -> Path:
        """Where the cache keeps it."""
        return CACHE / "debs" / f"{self.sha256}.deb"


@dataclass(frozen=True)
class Lock:
    """All packages of the base, sorted, and the config digest of the image they gave when locked."""

    packages: tuple[Package, ...]
    image: str | None


class MovedError(Exception):
    """The mirror no longer has some locked packages; `pairs` holds each beside the version it has now."""

    def __init__(self, pairs: Sequence[tuple[Package, str]]) -> None:
        super().__init__(pairs)
        self.pairs = pairs

    def __str__(self) -> str:
        lines = [f"  {package.name}: {package.version} -> {version}" for package, version in self.pairs]
        return "\n".join([f"the mirror moved on from {len(lines)} of the locked packages:", *lines])


def read_lock(path: Path) -> Lock:
    """Read a lock file; a line that is no package is a `BaseError`."""
    image, packages = None, []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        fields = line.split()
        if line.startswith("# image "):
            image = fields[2]
        elif not line.startswith("#"):
            if len(fields) != 4:
                raise BaseError(f"{path}:{number}: expected name, version, architecture and sha256")
            packages.append(Package(*fields))
    return Lock(tuple(packages), image)


def write_lock(path: Path, lock: Lock) -> None:
    """Write a lock file whole."""
    head = f"# Packages of {TAG}: name, version, architecture, sha256. Written by images/base/build.\n"
    with written(path) as part:
        part.write_text(
            head + f"# image {lock.image}\n" + "".join(f"{package}\n" for package in lock.packages)
        )


class Mirror:
    """This machine's apt sources, seen as if nothing were installed; only Debian's own SUITE counts."""

    def __init__(self, scratch: Path) -> None:
        self.archives = scratch / "cache" / "archives"
        (self.archives / "partial").mkdir(parents=True)
        (scratch / "lists" / "partial").mkdir(parents=True)
        (scratch / "status").touch()
        suites = (SUITE, f"{SUITE}-updates", f"{SUITE}-security")
        pins = [f"Package: *\nPin: release o=Debian,n={suite}\nPin-Priority: 500\n\n" for suite in suites]
        pins.append("Package: *\nPin: release *\nPin-Priority: -1\n")
        (scratch / "preferences").write_text(NO_USRMERGE + "".join(pins))
        (scratch / "apt.conf").write_text(
            f'Dir::State "{scratch}"; Dir::State::status "{scratch}/status"; Dir::Cache "{scratch}/cache";\n'
            f'Dir::Etc::preferences "{scratch}/preferences"; Dir::Etc::preferencesparts "/dev/null";\n'
            "#clear APT::Architectures;\n"
            "#clear APT::Update::Post-Invoke;\n"
            "#clear APT::Update::Post-Invoke-Success;\n"
            'APT::Install-Recommends "false"; APT::Sandbox::User "root"; Acquire::Languages "none";\n'
            'pkgCacheGen::ForceEssential ",";\n'  # apt counts itself among the essential packages otherwise
        )
        self.environment = os.environ | {"APT_CONFIG": str(scratch / "apt.conf"), "LC_ALL": "C.UTF-8"}
        self._apt("apt-get", "update", "-qq")
        if f"n={SUITE}," not in self._apt("apt-cache", "policy"):
            raise BaseError(
                f"this machine's apt got no Debian {SUITE}: look at its sources and at the network"
            )

    def newest(self) -> tuple[Package, ...]:
        """Bring everything the image needs, as the mirror has it now, into the cache."""
        say("asking the mirror for the newest packages")
        self._apt("apt-get", "install", "--download-only", "-y", "-qq", "?essential", *INCLUDE)
        return self._keep()

    def fetch(self, wanted: Sequence[Package]) -> None:
        """Bring locked packages into the cache; what the mirror no longer has is a `MovedError`."""
        say(f"fetching {len(wanted)} locked packages")
        there = self._listed([package.name for package in wanted])
        moved = []
        for package in wanted:
            offers = there.get(package.name, {})
            if package.sha256 not in offers:
                moved.append((package, next(iter(offers.values()), "nothing")))
        if moved:
            raise MovedError(moved)
        self._apt("apt-get", "download", "-qq", *(f"{package.name}={package.version}" for package in wanted))
        if missing := set(wanted) - set(self._keep()):
            raise BaseError(
                f"the mirror sent other bytes than it lists for {', '.join(p.name for p in missing)}"
            )

    def _listed(self, names: Sequence[str]) -> dict[str, dict[str, str]]:
        """What the mirror offers of each name: sha256 to version, the newest first."""
        listed: dict[str, dict[str, str]] = {}
        for record in self._apt("apt-cache", "show", *names).split("\n\n"):
            pairs = (line.split(": ", 1) for line in record.splitlines() if ": " in line and line[0] != " ")
            fields = dict(pairs)
            if "SHA256" in fields:
                listed.setdefault(fields["Package"], {})[fields["SHA256"]] = fields["Version"]
        return listed

    def _keep(self) -> tuple[Package, ...]:
        packages = []
        for deb in self.archives.glob("*.deb"):
            name, version, architecture = unquote(deb.stem).split("_")
            package = Package(name, version, architecture, sha256_of(deb))
            with written(package.file) as part:
                shutil.copyfile(deb, part)
            packages.append(package)
        return tuple(sorted(packages))

    def _apt(self, *command: str) -> str:
        return run(*command, env=self.environment, cwd=self.archives)


def complete(packages: Sequence[Package], scratch: Path) -> None:
    """Have every locked package in the cache, whole."""
    for package in packages:
        if package.file.exists() and sha256_of(package.file) != package.sha256:
            say(f"{package.file} is damaged; fetching it again")
            package.file.unlink()
    if wanted := [package for package in packages if not package.file.exists()]:
        Mirror(scratch).fetch(wanted)
