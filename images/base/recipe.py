"""From packages to an image: everything that decides the image's bytes is in this file and in the lock."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shlex
import shutil
import tarfile
from collections.abc import Sequence
from pathlib import Path

from basics import architecture, run, say, sha256_of, written
from packages import INCLUDE, NO_USRMERGE, SUITE, TAG, Package

__all__ = ["digest_in", "key_of", "make_image"]

EPOCH = 1767225600  # the one time stamp of everything made here
CREATED = "2026-01-01T00:00:00Z"


def key_of(packages: Sequence[Package]) -> str:
    """Name of what this very recipe makes of these packages."""
    return hashlib.sha256(Path(__file__).read_bytes() + _listing(packages)).hexdigest()


def make_image(packages: Sequence[Package], archive: Path, scratch: Path) -> None:
    """Write the image of packages that are in the cache as a docker-archive; uses no network."""
    say(f"installing {len(packages)} packages into an empty folder, with no network")
    _pack(_make_layer(packages, scratch), packages, archive)


def digest_in(archive: Path) -> str:
    """The config digest of a docker-archive that `make_image` wrote."""
    with tarfile.open(archive) as tar:
        config = tar.next()
    return f"sha256:{config.name.removesuffix('.json')}" if config else ""


def _listing(packages: Sequence[Package]) -> bytes:
    return "\n".join(map(str, packages)).encode()


def _make_layer(packages: Sequence[Package], scratch: Path) -> Path:
    """Install the packages into an empty folder and pack it as a tar.

    mmdebstrap sets every time stamp after EPOCH to EPOCH, sorts, and removes logs and caches itself. What it
    leaves of this machine is removed here. So are apt's folders: there is no apt in the image, and their
    owners depend on whether apt's own user could reach the scratch folder.
    """
    (scratch / "sources.list").write_text(_make_repository(packages, scratch / "repository"))
    (scratch / "preferences").write_text(NO_USRMERGE)
    layer = scratch / "layer.tar"
    pin = "/etc/apt/preferences.d/no-usrmerge"
    leftovers = (
        *(pin, "/etc/apt/sources.list.d/*", "/etc/hostname", "/etc/resolv.conf"),
        *("/var/cache/apt", "/var/lib/apt", "/var/log/apt"),
    )
    run(
        *(("unshare", "--net") if os.geteuid() == 0 else ()),
        "mmdebstrap",
        "--variant=essential",
        f"--include={','.join(INCLUDE)}",
        "--hook-dir=/usr/share/mmdebstrap/hooks/merged-usr",
        f'--setup-hook=install -D -m 644 {shlex.quote(str(scratch / "preferences"))} "$1"{pin}',
        *(f"--dpkgopt=path-exclude=/usr/share/{part}/*" for part in ("doc", "man", "locale")),
        "--dpkgopt=path-include=/usr/share/doc/*/copyright",
        "--skip=cleanup/apt",
        "--customize-hook=rm -rf " + " ".join(f'"$1"{path}' for path in leftovers),
        SUITE,
        layer,
        scratch / "sources.list",
        env=os.environ | {"SOURCE_DATE_EPOCH": str(EPOCH), "LC_ALL": "C.UTF-8"},
    )
    return layer


def _make_repository(packages: Sequence[Package], folder: Path) -> str:
    """Lay out a Debian repository of just these packages and return its sources line."""
    pool, dist = folder / "pool", folder / "dists" / SUITE
    pool.mkdir(parents=True)
    records = []
    for package in packages:
        deb = pool / f"{package.name}_{package.sha256}.deb"
        shutil.copyfile(package.file, deb)
        control = run("dpkg-deb", "--field", deb)
        place = f"Filename: pool/{deb.name}\nSize: {deb.stat().st_size}\nSHA256: {package.sha256}\n"
        records.append(control + place)
    index = "\n".join(records).encode()
    name = f"main/binary-{architecture()}/Packages"
    (dist / name).parent.mkdir(parents=True)
    (dist / name).write_bytes(index)
    (dist / "Release").write_text(
        f"Suite: {SUITE}\nCodename: {SUITE}\nComponents: main\nArchitectures: {architecture()}\n"
        f"SHA256:\n {hashlib.sha256(index).hexdigest()} {len(index)} {name}\n"
    )
    return f"deb [trusted=yes] copy://{str(folder).replace(' ', '%20')} {SUITE} main\n"


def _config(layer_sha256: str, packages: Sequence[Package]) -> bytes:
    """The image's config, written by us alone: its digest is the same on every machine and engine."""
    listing = f"sha256:{hashlib.sha256(_listing(packages)).hexdigest()}"
    config = {
        "architecture": architecture(),
        "config": {
            "Cmd": ["bash"],
            "Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG=C.UTF-8"],
            "Labels": {
                "org.opencontainers.image.description": f"Debian {SUITE} and Python, from locked packages",
                "org.opencontainers.image.revision": listing,
                "org.opencontainers.image.title": "repro-base",
                "org.opencontainers.image.version": SUITE,
            },
        },
        "created": CREATED,
        "history": [{"created": CREATED, "created_by": f"{len(packages)} packages of Debian {SUITE}"}],
        "os": "linux",
        "rootfs": {"diff_ids": [f"sha256:{layer_sha256}"], "type": "layers"},
    }
    return json.dumps(config, sort_keys=True, separators=(",", ":")).encode()


def _pack(layer: Path, packages: Sequence[Package], archive: Path) -> None:
    """Write a docker-archive, the config first, so that its digest is read without the layer."""
    layer_sha256 = sha256_of(layer)
    config = _config(layer_sha256, packages)
    name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = json.dumps([{"Config": name, "Layers": [f"{layer_sha256}.tar"], "RepoTags": [TAG]}]).encode()
    with written(archive) as part, tarfile.open(part, "w", format=tarfile.USTAR_FORMAT) as tar:
        for file, data in ((name, config), ("manifest.json", manifest)):
            tar.addfile(_member(file, len(data)), io.BytesIO(data))
        with layer.open("rb") as stream:
            tar.addfile(_member(f"{layer_sha256}.tar", layer.stat().st_size), stream)


def _member(name: str, size: int) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.size, member.mtime = size, EPOCH
    return member
