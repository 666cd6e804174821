"""`repro build --check` for CI: what it found, as JUnit XML and as annotations."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.e2e.conftest import MakeSmall
from tests.e2e.e2e_world import replace_once, repro, succeed

pytestmark = pytest.mark.engine


def states(path: Path) -> dict[str | None, str]:
    cases = ElementTree.fromstring(path.read_bytes()).iter("testcase")
    return {case.get("name"): case[0].tag if len(case) else "passed" for case in cases}


@pytest.mark.slow
def test_the_same_image_passes(base_image: object, small: MakeSmall, tmp_path: Path) -> None:
    project = small("print('never')")
    succeed("lock", "-C", project)
    result = repro(
        "build", "--check", "-C", project, "--junit", tmp_path / "b.xml", "--annotations", "github"
    )
    assert result.returncode == 0, result.stderr
    assert states(tmp_path / "b.xml") == {
        "image is the same": "passed",
        "files are those of the wheels": "passed",
    }
    assert "::error" not in result.stderr


def test_another_image_is_said_at_the_dockerfile(
    base_image: object, small: MakeSmall, tmp_path: Path
) -> None:
    project = small("print('never')")
    copied = "COPY source /out/workspace\n"
    replace_once(project / "Dockerfile.cpu", copied, f"{copied}RUN date +%s%N > /out/workspace/odd.txt\n")
    succeed("lock", "-C", project)
    result = repro(
        "build", "--check", "-C", project, "--junit", tmp_path / "b.xml", "--annotations", "github"
    )
    assert result.returncode == 3, result.stderr
    assert states(tmp_path / "b.xml") == {
        "image is the same": "failure",
        "files are those of the wheels": "passed",
    }
    said = [line for line in result.stderr.splitlines() if line.startswith("::error ")]
    assert len(said) == 1
    assert "/Dockerfile.cpu,title=repro build --check%3A differs::image " in said[0]


def test_junit_is_for_a_check(tmp_path: Path) -> None:
    assert repro("build", "--junit", tmp_path / "b.xml").returncode == 2
