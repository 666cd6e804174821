"""One digest of what an image holds: the same unpacked, run or converted, another when it changes."""

from __future__ import annotations

import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from repro.adapters.docker_engine import DockerEngine
from repro.build import rootfs
from repro.build.archive import open_archive
from repro.build.contents import image_listing
from repro.build.rootfs import LEFT_OUT, contents_digest, walk
from repro.cli import cli
from repro.digest import digest_bytes
from repro.image import HeldImage

DOCKERFILE = """\
ARG BASE
FROM ${BASE}
RUN mkdir -p /t/a/b /t/d /t/e && echo 1 > /t/a/b/f && ln /t/a/b/f /t/a/hard && ln -s b/f /t/a/soft \\
 && echo x > /t/d/x && echo y > /t/e/y && echo s > "/t/n ü" && echo 1 > /t/gone && mkfifo /t/pipe
RUN rm -r /t/d && mkdir /t/d && echo z > /t/d/z && rm /t/gone
RUN rm -r /t/a/b && echo now a file > /t/a/b
RUN rm /t/a/b && mkdir /t/a/b && echo g > /t/a/b/g
RUN rm -r /t/e && ln -s a /t/e && chmod 755 /t/a/b/g && chmod 4711 /t/d/z
RUN chmod 600 "/t/n ü" && chown 1000:1000 /t/a/hard && rm -r /var/lib/dpkg/info
"""

PLAIN = ("-noI", "-noD", "-noF", "-noX", "-quiet")
"""Packed with nothing, which is quicker."""


@dataclass
class Converted:
    """An image of many layers, saved; and its root filesystem, unpacked."""

    engine: DockerEngine
    image: str
    archive: Path
    folder: Path

    def unpacked(self, to: Path, *options: str) -> Path:
        """The files of a container, as `docker export` gives them, unpacked by tar."""
        to.mkdir()
        command = ["tar", "-x", "-C", str(to), "--exclude=dev/*", *options, "-f", str(self.folder / "export")]
        subprocess.run(command, check=True, umask=0o077)
        return to


def repro(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, list(map(str, arguments)), standalone_mode=False)


def digest_of(folder: Path) -> str:
    return contents_digest(dict(walk(os.fsencode(folder))))


@pytest.fixture(scope="module")
def converted(
    quiet_engine: DockerEngine, base_image: HeldImage, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Converted]:
    folder, context = tmp_path_factory.mktemp("contents"), io.BytesIO()
    with tarfile.open(fileobj=context, mode="w") as archive:
        info = tarfile.TarInfo("Dockerfile")
        info.size = len(DOCKERFILE.encode())
        archive.addfile(info, io.BytesIO(DOCKERFILE.encode()))
    base = str(base_image.config_digest)
    image = quiet_engine.build(iter((context.getvalue(),)), arguments={"BASE": base}, on_line=lambda _: None)
    (folder / "save").write_bytes(b"".join(quiet_engine.save(image)))
    container = quiet_engine.client.containers.create(image, ["true"])
    (folder / "export").write_bytes(b"".join(container.export()))
    container.remove()
    yield Converted(quiet_engine, image, folder / "save", folder)
    quiet_engine.client.images.remove(image, force=True)


@pytest.mark.engine
def test_layers_over_layers_are_what_a_container_sees(converted: Converted, tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    listing = image_listing(open_archive(converted.archive, scratch=tmp_path / "scratch"))
    seen = dict(walk(os.fsencode(converted.unpacked(tmp_path / "unpacked", "--same-permissions"))))
    assert seen == {path: value for path, value in listing.items() if not rootfs.is_left_out(path)}
    ours = {path.decode() for path in listing if path.startswith(b"t/")}
    assert ours == {"t/a/b/g", "t/a/hard", "t/a/soft", "t/d/z", "t/e", "t/n ü"}
    assert (listing[b"t/e"], listing[b"t/a/b/g"][0]) == ((b"link", b"a"), b"program")


@pytest.mark.engine
def test_unpacking_by_anybody_and_squashing_keep_the_digest(converted: Converted, tmp_path: Path) -> None:
    result = repro("image", "digest", converted.archive, "--json")
    expected = json.loads(result.stdout)["contents"]
    other = converted.unpacked(tmp_path / "theirs", "--no-same-owner", "--no-same-permissions", "--touch")
    assert (other / "t" / "n ü").stat().st_uid == os.getuid()
    assert repro("image", "digest", other, "--expect", expected).return_value == 0
    if shutil.which("mksquashfs") is None:
        return
    squashed = tmp_path / "image.squashfs"
    for command in (
        ["mksquashfs", str(other), str(squashed), "-all-root", "-no-xattrs", *PLAIN],
        ["unsquashfs", "-quiet", "-d", str(tmp_path / "again"), str(squashed)],
    ):
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    assert repro("image", "digest", tmp_path / "again", "--expect", expected).return_value == 0


@pytest.mark.engine
def test_the_same_program_says_the_same_inside_a_job(converted: Converted, tmp_path: Path) -> None:
    expected = json.loads(repro("image", "digest", converted.archive, "--json").stdout)["contents"]
    program = str(Path(rootfs.__file__))
    shutil.copy(program, tmp_path / "rootfs.py")

    def inside(*arguments: str, before: str = "true") -> tuple[int, str]:
        argv = " ".join(("python3 /tmp/rootfs.py", *arguments))
        container = converted.engine.client.containers.run(
            converted.image,
            ["sh", "-c", f"{before} && cat > /dev/null < /etc/hosts && {argv}"],
            user="0:0",
            network_mode="none",
            volumes={str(tmp_path): {"bind": "/tmp", "mode": "ro"}},
            detach=True,
        )
        try:
            code = container.wait()["StatusCode"]
            return code, container.logs().decode().strip()
        finally:
            container.remove(force=True)

    assert inside("/", expected) == (0, expected)
    code, found = inside("/", expected, before="echo more >> /t/a/b/g")
    assert code == 3
    assert found.startswith("sha256:")
    assert found != expected


@pytest.mark.engine
def test_an_image_of_the_engine_is_named_too(
    converted: Converted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(DockerEngine, "connect", lambda: converted.engine)
    monkeypatch.setattr(converted.engine, "close", lambda: None)
    saved = json.loads(repro("image", "digest", converted.archive, "--json").stdout)
    held = json.loads(repro("image", "digest", converted.image, "--json").stdout)
    assert held == saved
    assert held["image"] == converted.image
    absent = repro("image", "digest", str(tmp_path / "nothing"))
    assert getattr(absent.exception, "kind", None) == "image-absent"


def small_tree(root: Path) -> None:
    (root / "bin").mkdir(parents=True)
    (root / "bin" / "run").write_text("#!/bin/sh\n")
    (root / "bin" / "run").chmod(0o755)
    for name in ("data", "data twin"):
        (root / name).write_text("1")
    (root / "link").symlink_to("data")
    (root / "empty").mkdir()


def _retarget(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").symlink_to("date")


def _file_for_link(root: Path) -> None:
    (root / "link").unlink()
    (root / "link").write_text("1")


def _hard_link(root: Path) -> None:
    (root / "data").unlink()
    os.link(root / "data twin", root / "data")


def _of_a_runtime(root: Path) -> None:
    for name in LEFT_OUT:
        place = root / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text("of a runtime")


CHANGES: dict[str, tuple[Callable[[Path], object], bool]] = {
    "a byte": (lambda root: (root / "data").write_text("2"), True),
    "a name": (lambda root: (root / "data").rename(root / "date"), True),
    "a file more": (lambda root: (root / "empty" / "x").write_text(""), True),
    "a file less": (lambda root: (root / "data").unlink(), True),
    "a target": (_retarget, True),
    "a file for a link": (_file_for_link, True),
    "not executable": (lambda root: (root / "bin" / "run").chmod(0o644), True),
    "executable": (lambda root: (root / "data").chmod(0o744), True),
    "a time": (lambda root: os.utime(root / "data", (1, 1)), False),
    "for others": (lambda root: (root / "data").chmod(0o600), False),
    "an empty folder": (lambda root: (root / "empty").rmdir(), False),
    "a hard link": (_hard_link, False),
    "of a runtime": (_of_a_runtime, False),
}


@pytest.mark.parametrize(("change", "seen"), CHANGES.values(), ids=CHANGES)
def test_what_counts_and_what_does_not(
    tmp_path: Path, change: Callable[[Path], object], *, seen: bool
) -> None:
    small_tree(tmp_path / "root")
    before = digest_of(tmp_path / "root")
    change(tmp_path / "root")
    assert (digest_of(tmp_path / "root") != before) is seen
    result = repro("image", "digest", tmp_path / "root", "--expect", before)
    assert result.return_value == (3 if seen else 0)
    assert (f"differs  {before} was expected" in result.stdout) is seen


def test_the_format_is_what_the_page_says(tmp_path: Path) -> None:
    small_tree(tmp_path)
    one, run = (hashlib.sha256(data).hexdigest() for data in (b"1", b"#!/bin/sh\n"))
    fields = (
        "program",
        "bin/run",
        run,
        "file",
        "data",
        one,
        "file",
        "data twin",
        one,
        "link",
        "link",
        "data",
    )
    assert digest_of(tmp_path) == digest_bytes(b"".join(field.encode() + b"\0" for field in fields))
    result = subprocess.run(
        [sys.executable, "-I", "-S", rootfs.__file__, str(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
    )
    assert result.stdout == digest_of(tmp_path) + "\n"


def test_names_with_any_bytes_are_kept_apart(tmp_path: Path) -> None:
    for name in (b"a\xff", b"a\xfe", b"line\nend"):
        (tmp_path / os.fsdecode(name)).write_text("1")
    assert {path for path, _ in walk(os.fsencode(tmp_path))} == {b"a\xff", b"a\xfe", b"line\nend"}


def test_a_digest_that_is_none_is_refused(tmp_path: Path) -> None:
    result = repro("image", "digest", tmp_path, "--expect", "sha256:12")
    assert "--expect needs sha256:" in str(result.exception)
