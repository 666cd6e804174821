"""A run folder as one file: the same bytes always, and back; whatever else is refused and leaves nothing."""

from __future__ import annotations

import io
import json
import os
import stat
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import pytest
from click.testing import CliRunner, Result
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repro.adapters.packing import packed, unpack
from repro.attest.outcome import Verification
from repro.attest.paths import check_name
from repro.cli import cli
from repro.cli.verifying import check_folder
from repro.errors import FileError, ReproError
from tests.e2e.e2e_world import ROOT

names = st.from_regex(r"[A-Za-z0-9_]{1,12}(/[A-Za-z0-9_]{1,12}){0,3}", fullmatch=True)


def tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


def write(folder: Path, files: dict[str, bytes]) -> None:
    for name, data in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def clash(files: dict[str, bytes]) -> bool:
    """Whether one name is a folder of another."""
    return any(other.startswith(f"{name}/") for name in files for other in files)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.dictionaries(names, st.binary(max_size=2000), max_size=6).filter(lambda files: not clash(files)))
def test_packing_and_back_is_the_same_folder(
    tmp_path_factory: pytest.TempPathFactory, files: dict[str, bytes]
) -> None:
    folder = tmp_path_factory.mktemp("pack")
    (folder / "run").mkdir()
    write(folder / "run", files)
    data = b"".join(packed(folder / "run", check_name))
    (folder / "file.tar").write_bytes(data)
    unpack(folder / "file.tar", folder / "back", check_name)
    assert tree(folder / "back") == files
    for place in (folder / "back").rglob("*"):
        os.utime(place, (1, 1))
    assert b"".join(packed(folder / "back", check_name)) == data


def test_the_signed_run_travels_and_verifies(tmp_path: Path) -> None:
    kept, file = ROOT / "manifests", tmp_path / "pilot.cpu.repro.tar"
    runner = CliRunner()
    assert runner.invoke(cli, ["pack", str(kept / "pilot.cpu"), "-o", str(file)]).exit_code == 0
    target = tmp_path / "elsewhere" / "pilot.cpu"
    assert runner.invoke(cli, ["unpack", str(file), "-o", str(target)]).exit_code == 0
    assert tree(target) == tree(kept / "pilot.cpu")
    verified = runner.invoke(
        cli, ["verify", str(target), "--trust", str(kept / "trust.yaml")], standalone_mode=False
    )
    assert verified.return_value == 0
    again = runner.invoke(cli, ["unpack", str(file), "-o", str(target)], standalone_mode=False)
    assert isinstance(again.exception, FileError)
    assert again.exception.kind == "folder-exists"


def member(name: str, data: bytes = b"x", **changes: object) -> tuple[tarfile.TarInfo, bytes]:
    info = tarfile.TarInfo(name)
    info.size = len(data)
    for key, value in changes.items():
        setattr(info, key, value)
    return info, data if info.type == tarfile.REGTYPE else b""


def archive(*members: tuple[tarfile.TarInfo, bytes], form: Literal[0, 1, 2] = tarfile.PAX_FORMAT) -> bytes:
    buffer = io.BytesIO()
    for info, data in members:
        buffer.write(info.tobuf(form))
        buffer.write(data + bytes(-len(data) % 512))
    return buffer.getvalue() + bytes(1024)


GOOD = archive(member("a"), member("b"))
ATTACKS: dict[str, Callable[[], bytes]] = {
    "up": lambda: archive(member("../a")),
    "up in the middle": lambda: archive(member("a/../../b")),
    "absolute": lambda: archive(member("/etc/passwd")),
    "backslash": lambda: archive(member("a\\..\\b")),
    "drive": lambda: archive(member("C:/a")),
    "dot": lambda: archive(member("./a")),
    "look-alike": lambda: archive(member("е.json")),  # a Cyrillic letter
    "new line": lambda: archive(member("a\nb")),
    "symbolic link": lambda: archive(member("a", type=tarfile.SYMTYPE, linkname="/", size=0), member("a/b")),
    "hard link": lambda: archive(member("a"), member("b", type=tarfile.LNKTYPE, linkname="a", size=0)),
    "pipe": lambda: archive(member("a", type=tarfile.FIFOTYPE, size=0)),
    "device": lambda: archive(member("a", type=tarfile.CHRTYPE, size=0)),
    "folder": lambda: archive(member("a", type=tarfile.DIRTYPE, size=0)),
    "twice": lambda: archive(member("a"), member("a", b"y")),
    "file and folder": lambda: archive(member("a"), member("a/b")),
    "folder and file": lambda: archive(member("a/b"), member("a")),
    "another order": lambda: archive(member("b"), member("a")),
    "executable": lambda: archive(member("a", mode=0o4755)),
    "owner": lambda: archive(member("a", uid=0, uname="root", gname="root")),
    "time": lambda: archive(member("a", mtime=1)),
    "another format": lambda: archive(member("a" * 120), form=tarfile.GNU_FORMAT),
    "cut": lambda: GOOD[:700],
    "cut in the end": lambda: GOOD[:-512],
    "something behind the end": lambda: GOOD + b"x" * 512,
    "more zeros": lambda: GOOD + bytes(512),
    "something in the padding": lambda: GOOD[:600] + b"!" + GOOD[601:],
    "no archive": lambda: b"hello" * 300,
    "empty": lambda: b"",
    "packed": lambda: b"\x1f\x8b\x08" + GOOD,
    "a size that is not there": lambda: archive(member("a", size=1 << 40)),
    "sparse": lambda: archive(member("a", pax_headers={"GNU.sparse.major": "1", "GNU.sparse.minor": "0"})),
}  # fmt: skip


@pytest.mark.parametrize("attack", ATTACKS)
def test_whatever_packing_does_not_write_is_refused_and_leaves_nothing(tmp_path: Path, attack: str) -> None:
    file = tmp_path / "file.tar"
    file.write_bytes(ATTACKS[attack]())
    with pytest.raises(ReproError) as caught:
        unpack(file, tmp_path / "here" / "run", check_name)
    assert caught.value.kind in ("pack-malformed", "E_PATH")
    assert [path.name for path in tmp_path.iterdir() if path.name != "here"] == ["file.tar"]
    assert list((tmp_path / "here").iterdir()) == []


def test_what_is_good_is_not_refused(tmp_path: Path) -> None:
    (tmp_path / "file.tar").write_bytes(archive(member("a", mode=0o644), member("b", mode=0o644)))
    unpack(tmp_path / "file.tar", tmp_path / "run", check_name)
    assert tree(tmp_path / "run") == {"a": b"x", "b": b"x"}


def test_a_link_is_not_packed(tmp_path: Path) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to("/etc/passwd")
    with pytest.raises(FileError) as caught:
        list(packed(tmp_path / "run", check_name))
    assert caught.value.kind == "file-special"


@pytest.fixture
def sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The kept run as one file, where folders for a while are made in a place that can be looked at."""
    (tmp_path / "for a while").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "for a while"))
    file = tmp_path / "pilot.cpu.repro.tar"
    file.write_bytes(b"".join(packed(ROOT / "manifests" / "pilot.cpu", check_name)))
    return file


def verify(file: Path, *arguments: str) -> Result:
    trust = str(ROOT / "manifests" / "trust.yaml")
    return CliRunner().invoke(cli, ["verify", str(file), "--trust", trust, *arguments], standalone_mode=False)


def test_a_packed_run_is_verified_as_it_is_and_leaves_nothing(sent: Path) -> None:
    packed_said, folder_said = verify(sent, "--json"), verify(ROOT / "manifests" / "pilot.cpu", "--json")
    assert packed_said.return_value == folder_said.return_value == 0
    assert json.loads(packed_said.stdout) == json.loads(folder_said.stdout)
    assert list((sent.parent / "for a while").iterdir()) == []


def test_while_it_is_verified_nobody_else_can_read_it(sent: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    modes = []

    def look(folder: Path, *rest: object) -> Verification:
        modes.append(stat.S_IMODE(folder.parent.stat().st_mode))
        return check_folder(folder, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr("repro.cli.verifying.check_folder", look)
    assert verify(sent).return_value == 0
    assert modes == [0o700]


def test_a_packed_run_with_a_changed_file_is_rejected(sent: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    unpack(sent, run, check_name)
    (run / "repro.yaml").write_bytes((run / "repro.yaml").read_bytes() + b"\n")
    sent.write_bytes(b"".join(packed(run, check_name)))
    said = verify(sent)
    assert said.return_value == 3
    assert "REJECTED" in said.stdout
    assert list((sent.parent / "for a while").iterdir()) == []


@pytest.mark.parametrize(
    ("data", "kind"), [(GOOD, "not-a-run"), (GOOD[:-512], "pack-malformed"), (b"{}", "pack-malformed")]
)
def test_a_file_that_is_no_run_is_said_by_its_own_name(sent: Path, data: bytes, kind: str) -> None:
    sent.write_bytes(data)
    error = verify(sent).exception
    assert isinstance(error, FileError)
    assert (error.kind, error.where) == (kind, str(sent))
    assert list((sent.parent / "for a while").iterdir()) == []


@pytest.mark.parametrize("attack", ["up", "absolute", "symbolic link"])
def test_an_attack_is_no_verified_run(sent: Path, attack: str) -> None:
    sent.write_bytes(ATTACKS[attack]())
    assert isinstance(verify(sent).exception, ReproError)
    assert list((sent.parent / "for a while").iterdir()) == []
