"""`repro init`, first and again: it never takes back what a person wrote."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from repro.cli.project import read_spec
from tests.cli.test_cli import repro
from tests.e2e.e2e_world import ROOT

TRAIN = """\
import torch
from transformers import AutoModel
model = AutoModel.from_pretrained("org/small")
optimizer = torch.optim.SGD(model.parameters())
if __name__ == "__main__":
    optimizer.step()
"""


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "requirements.txt").write_text("torch\n")
    return tmp_path


def init(project: Path, *arguments: str) -> list[str]:
    result = repro("init", "-C", str(project), *arguments)
    assert result.returncode == 0, result.stderr
    return result.stdout.splitlines()


def files(project: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in project.iterdir() if path.is_file()}


def test_the_first_time_it_writes_a_spec_that_can_be_read(project: Path) -> None:
    lines = init(project)
    assert lines[:3] == [
        f"wrote {project}/Dockerfile.cpu",
        f"wrote {project}/repro.yaml",
        "for you to decide:",
    ]
    assert "  train.py:3 loads the model 'org/small': name it under models" in lines
    spec = read_spec(project).spec
    assert spec.pilot.command == ("python", "train.py")
    assert spec.accelerators["cpu"].requirements == ("requirements.txt",)


def test_again_it_changes_nothing(project: Path) -> None:
    init(project)
    before = files(project)
    lines = init(project)
    assert files(project) == before
    assert not [line for line in lines if line.startswith(("wrote", "added"))]
    assert f"left {project}/Dockerfile.cpu" in lines


def test_again_it_keeps_the_persons_edits(project: Path) -> None:
    init(project)
    spec = project / "repro.yaml"
    edited = spec.read_text().replace("steps: 20", "steps:   7      # mine").replace("seed: 0\n", "")
    edited += "models:   # two of them\n  - {name: small, hub: org/small}\n"
    spec.write_text(edited)
    (project / "Dockerfile.cpu").write_text("# mine\n")
    lines = init(project, "-a", "cpu", "-a", "cuda")
    new = spec.read_text()
    assert [line for line in new.splitlines() if line in edited.splitlines()] == edited.splitlines()
    assert "steps:   7      # mine" in new
    assert (project / "Dockerfile.cpu").read_text() == "# mine\n"
    assert (project / "Dockerfile.cuda").read_bytes() == (ROOT / "Dockerfile.cuda").read_bytes()
    assert f"added to {spec}: seed, accelerators.cuda" in lines
    assert any(line.startswith(f"left in {spec}: version, name, pilot.command") for line in lines)
    assert "  base is an example: name the image that your Dockerfile stands on" in lines
    assert not any("org/small" in line for line in lines), "the model is named by now"
    assert read_spec(project).spec.seed == 0


def test_accelerators_that_are_named_need_no_option(project: Path) -> None:
    init(project, "-a", "rocm")
    before = files(project)
    init(project)
    assert files(project) == before


def test_a_dockerfile_of_another_name_is_no_reason_to_write_ours(project: Path) -> None:
    init(project)
    spec = project / "repro.yaml"
    spec.write_text(spec.read_text().replace("dockerfile: Dockerfile.cpu", "dockerfile: docker/mine"))
    (project / "Dockerfile.cpu").unlink()
    init(project)
    assert not (project / "Dockerfile.cpu").exists()


def test_a_spec_with_a_flaw_is_left_and_the_flaw_is_said(project: Path) -> None:
    (project / "repro.yaml").write_text("version: 1\npilot: {steps: 3\n")
    before = files(project)
    result = repro("init", "-C", str(project))
    assert result.returncode == 1
    assert "error[yaml-invalid]" in result.stderr
    assert files(project) == before


def test_what_is_no_plain_file_is_refused(project: Path) -> None:
    os.mkfifo(project / "repro.yaml")
    result = repro("init", "-C", str(project))
    assert result.returncode == 1
    assert "error[spec-not-a-file]" in result.stderr
