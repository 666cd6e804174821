"""The tutorial, done as it stands: every block of it, in order, in one shell."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from repro import strictyaml
from repro.image import HeldImage
from repro.spec import Spec
from tests.docs.test_docs import ROOT

PAGE = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```sh\n(.*?)^```", PAGE, re.DOTALL | re.MULTILINE)
PLACE = re.compile(r"git clone --quiet (\S+)")


def test_the_spec_of_the_tutorial_can_be_read() -> None:
    (text,) = re.findall(r"cat > repro.yaml <<'END'\n(.*?)^END", PAGE, re.DOTALL | re.MULTILINE)
    spec = strictyaml.validate(strictyaml.load(text.encode(), where="page"), Spec, where="page")
    assert spec.pilot.checkpoint is not None
    assert spec.pilot.steps == 20


@pytest.mark.slow
@pytest.mark.engine
@pytest.mark.network
@pytest.mark.timeout(3000)
def test_the_tutorial_is_true(base_image: HeldImage, tmp_path: Path) -> None:
    """A copy of the project is taken from the folder named by REPRO_NANOGPT, where that is set."""
    address = PLACE.findall(PAGE)[0]
    environment = {**os.environ, "REPRO": str(ROOT), "HOME": str(tmp_path), "GIT_CONFIG_COUNT": "0"}
    environment["PATH"] = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    environment.setdefault("REPRO_CACHE", str(Path.home() / ".cache" / "repro"))
    if copy := os.environ.get("REPRO_NANOGPT"):
        environment |= {"GIT_CONFIG_COUNT": "1", "GIT_CONFIG_KEY_0": f"url.{copy}.insteadOf"}
        environment["GIT_CONFIG_VALUE_0"] = address
    there = subprocess.run(["git", "ls-remote", address], env=environment, capture_output=True, check=False)
    if there.returncode != 0:
        pytest.skip(f"{address} cannot be reached, and REPRO_NANOGPT names no copy")
    script = "set -euxo pipefail\n" + "\n".join(BLOCKS)
    done = subprocess.run(
        ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    said = done.stdout + done.stderr
    assert done.returncode == 0, said
    assert said.count("it looks as if the position in the data was lost") == 1
    assert "train.py has changed since the lock was made" in said
    assert "VERIFIED" in said
    assert "BITWISE  Reproduced to the bit: 40 steps" in said
    assert (tmp_path / "report.html").is_file()
