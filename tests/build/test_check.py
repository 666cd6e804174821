from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import pytest

from repro.build.assemble import assemble_layer
from repro.build.check import explain
from repro.build.compare_layers import LayerFiles, compare_files
from repro.build.normalise import canonical_layer
from repro.build.plan import make_plan
from repro.digest import digest_bytes
from repro.errors import BuildError
from repro.image import BuildPlan
from tests.build.small_project import Small, any_base
from tests.parts import Parts

SITE = "opt/venv/lib/python3.11/site-packages"


@pytest.fixture
def small(parts: Parts, tmp_path: Path) -> Small:
    return Small(parts, tmp_path / "project")


@pytest.fixture
def plan(small: Small) -> BuildPlan:
    return make_plan(small.lock(any_base()), "cpu")


def assembled(plan: BuildPlan, parts: Parts) -> bytes:
    return b"".join(assemble_layer(plan, cache=parts, scratch=parts.folder))


def test_a_layer_straight_from_the_wheels(plan: BuildPlan, parts: Parts) -> None:
    data = assembled(plan, parts)
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        found = {info.name: info for info in archive}
        script = archive.extractfile("opt/venv/bin/tiny")
        assert script is not None
        assert script.read().startswith(b"#!/opt/venv/bin/python\n")
        record = archive.extractfile(f"{SITE}/tinypkg-1.5.dist-info/RECORD")
        assert record is not None
        assert b"../../../bin/tiny,sha256=" in record.read()
    assert {name for name, info in found.items() if info.isfile() and info.mode == 0o755} == {
        "opt/venv/bin/tiny"
    }
    assert f"{SITE}/data/ü.txt" in found
    assert b"".join(canonical_layer(io.BytesIO(data), epoch=plan.epoch, where="test")) == data


ELSEWHERE = """
import sys
from pathlib import Path
sys.path[:0] = sys.argv[1:3]
from tests.parts import Parts
from tests.build.small_project import Small, any_base
from repro.build.assemble import assemble_layer
from repro.build.plan import make_plan
from repro.digest import digest_stream
folder = Path(sys.argv[3])
parts = Parts(folder)
plan = make_plan(Small(parts, folder / "project").lock(any_base()), "cpu")
print(digest_stream(assemble_layer(plan, cache=parts, scratch=folder))[0])
"""


def test_the_same_bytes_in_other_surroundings(plan: BuildPlan, parts: Parts, tmp_path: Path) -> None:
    folder = tmp_path / "other"
    folder.mkdir()
    tests = Path(__file__).parents[1]
    environment = {**os.environ, "TZ": "Asia/Kathmandu", "PYTHONHASHSEED": "7", "LC_ALL": "C"}
    places = (str(tests), str(tests / "build"), str(folder))
    said = subprocess.run(
        ["sh", "-c", 'umask 077; exec "$@"', "sh", sys.executable, "-c", ELSEWHERE, *places],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert said.stdout.strip() == digest_bytes(assembled(plan, parts))


def test_two_wheels_must_agree_on_a_file_they_share(small: Small, parts: Parts) -> None:
    small.wheels.append(parts.wheel("third", "1", {"other.py": ""}))
    agreeing = make_plan(small.lock(any_base()), "cpu")
    assert len(assembled(agreeing, parts)) > 0
    small.wheels[-1] = parts.wheel("third", "2", {"other.py": "changed = True\n"})
    with pytest.raises(BuildError) as conflict:
        assembled(make_plan(small.lock(any_base()), "cpu"), parts)
    assert (conflict.value.kind, conflict.value.where) == ("wheel-conflict", f"{SITE}/other.py")


def test_a_wheel_may_not_leave_its_place(small: Small, parts: Parts) -> None:
    small.wheels.append(parts.wheel("evil", "1", {"evil-1.data/data/../../../../etc/passwd": "x"}))
    with pytest.raises(BuildError) as refused:
        assembled(make_plan(small.lock(any_base()), "cpu"), parts)
    assert refused.value.kind == "wheel-unsafe"


def test_a_file_that_is_no_wheel_is_named(plan: BuildPlan, parts: Parts) -> None:
    parts.held[plan.wheels[0].digest].write_bytes(b"not a zip")
    with pytest.raises(BuildError) as refused:
        assembled(plan, parts)
    assert (refused.value.kind, refused.value.where) == ("wheel-invalid", plan.wheels[0].path)
    with zipfile.ZipFile(parts.held[plan.wheels[0].digest], "w") as archive:
        archive.writestr("x", "")
    with pytest.raises(BuildError) as empty:
        assembled(plan, parts)
    assert empty.value.kind == "wheel-invalid"


def _changed(data: bytes, **changes: Any) -> bytes:
    """The layer with files replaced, added or (None) removed, by path."""
    out = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(data)) as old,
        tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as new,
    ):
        for info in old:
            change = changes.pop(info.name, b"" if info.isdir() else ...)
            if change is None:
                continue
            if isinstance(change, int):
                info.mode, change = change, ...
            stream = old.extractfile(info) if info.isfile() else None
            content = change if isinstance(change, bytes) else stream.read() if stream else b""
            info.size = len(content)
            new.addfile(info, io.BytesIO(content))
        for name, content in changes.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            new.addfile(info, io.BytesIO(content))
    return out.getvalue()


def judge(expected: bytes, found: bytes) -> dict[tuple[str, str], str]:
    left, right = LayerFiles(io.BytesIO(expected), "left"), LayerFiles(io.BytesIO(found), "right")
    return {(item.path, item.aspect): explain(item, left, right) for item in compare_files(left, right)}


def _read(data: bytes, name: str) -> bytes:
    with tarfile.open(fileobj=io.BytesIO(data)) as archive:
        stream = archive.extractfile(name)
        assert stream is not None
        return stream.read()


def test_only_what_pip_and_venv_do_is_explained(plan: BuildPlan, parts: Parts) -> None:
    data = assembled(plan, parts)
    assert judge(data, data) == {}
    info = f"{SITE}/tinypkg-1.5.dist-info"
    record = _read(data, f"{info}/RECORD")
    notes = (
        record + b"tinypkg-1.5.dist-info/INSTALLER,sha256=x,4\ntinypkg-1.5.dist-info/REQUESTED,sha256=x,0\n"
    )
    script = _read(data, "opt/venv/bin/tiny")
    expected: list[tuple[dict[str, Any], tuple[str, str], str]] = [
        ({f"{info}/INSTALLER": b"pip\n"}, (f"{info}/INSTALLER", "presence"), "installer"),
        ({f"{info}/RECORD": notes}, (f"{info}/RECORD", "content"), "installer"),
        ({f"{info}/RECORD": record + b"backdoor.py,,\n"}, (f"{info}/RECORD", "content"), "unexplained"),
        ({"opt/venv/pyvenv.cfg": b"home = /usr/bin\n"}, ("opt/venv/pyvenv.cfg", "presence"), "environment"),
        ({"opt/venv/bin/activate": b""}, ("opt/venv/bin/activate", "presence"), "environment"),
        ({"opt/venv/bin/tiny": script + b"# more\n"}, ("opt/venv/bin/tiny", "content"), "script"),
        (
            {"opt/venv/bin/tiny": script.replace(b"from tinypkg", b"from backdoor")},
            ("opt/venv/bin/tiny", "content"),
            "unexplained",
        ),
        ({"opt/venv/bin/tiny": 0o4755}, ("opt/venv/bin/tiny", "mode"), "unexplained"),
        ({f"{SITE}/other.py": b"changed\n"}, (f"{SITE}/other.py", "content"), "unexplained"),
        ({f"{SITE}/other.py": None}, (f"{SITE}/other.py", "presence"), "unexplained"),
        ({f"{SITE}/sitecustomize.py": b""}, (f"{SITE}/sitecustomize.py", "presence"), "unexplained"),
        ({f"{SITE}/x.pth": b""}, (f"{SITE}/x.pth", "presence"), "unexplained"),
        ({"opt/venv/bin/bash": b""}, ("opt/venv/bin/bash", "presence"), "unexplained"),
        ({"etc/passwd": b""}, ("etc/passwd", "presence"), "unexplained"),
        ({"opt/venv/pyvenv.cfg/x": b""}, ("opt/venv/pyvenv.cfg/x", "presence"), "unexplained"),
    ]
    for changes, key, reason in expected:
        assert judge(data, _changed(data, **changes)) == {key: reason}
