"""The verbs as functions: the page's example runs, and what cannot be done is raised by name."""

from __future__ import annotations

import inspect
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from repro import api
from repro.errors import ReproError
from repro.lock import Lock
from repro.verdict import Outcome
from tests.e2e.e2e_world import ROOT

PAGE = (ROOT / "docs" / "library.md").read_text(encoding="utf-8")
RUN, TRUST = ROOT / "manifests" / "pilot.cpu", ROOT / "manifests" / "trust.yaml"


def test_the_example_of_the_page_runs() -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0] == "VERIFIED"
    assert done.stdout.splitlines()[2].startswith("BITWISE ")
    assert done.stderr == ""


def test_the_page_names_every_function_with_its_parameters() -> None:
    rows = re.findall(r"^\| `(\w+)\(([^)]*)\)`", PAGE, re.MULTILINE)
    assert sorted(name for name, _ in rows) == sorted(api.__all__)
    for name, told in rows:
        parameters = inspect.signature(getattr(api, name)).parameters
        assert [one.partition("=")[0].strip() for one in told.split(",")] == list(parameters)


def test_a_lock_is_checked(tmp_path: Path) -> None:
    shutil.copytree(ROOT / "examples" / "pilot", tmp_path / "pilot")
    with (tmp_path / "pilot" / "train.py").open("a") as stream:
        stream.write("# changed\n")
    freshness = api.check(tmp_path / "pilot")
    assert not freshness.fresh
    assert any("train.py" in reason for reason in freshness.reasons)


def test_what_cannot_be_done_is_raised_by_name(tmp_path: Path) -> None:
    with pytest.raises(ReproError) as caught:
        api.check(tmp_path)
    assert caught.value.kind == "spec-missing"
    shutil.copytree(RUN, tmp_path / "run")
    (tmp_path / "run" / "repro.lock").write_text("{}")
    assert api.verify(tmp_path / "run", TRUST).verdict == "REJECTED"
    with pytest.raises(ReproError) as caught:
        api.replay(tmp_path / "run", TRUST, tmp_path)
    assert caught.value.kind == "E_SUBJECT"


def test_a_run_is_equal_to_itself() -> None:
    assert api.compare(RUN, str(RUN)).outcome == Outcome.BITWISE
    assert api.manifest(RUN).project == "pilot"


@pytest.mark.network
@pytest.mark.engine
def test_a_project_is_locked(tmp_path: Path) -> None:
    project = tmp_path / "pilot"
    shutil.copytree(
        ROOT / "examples" / "pilot", project, ignore=shutil.ignore_patterns("repro.lock", "locks")
    )
    assert isinstance(api.lock(project, "cpu"), Lock)
    assert api.check(project).fresh
