"""Fixtures of the end-to-end tests."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.image import HeldImage
from tests.e2e.e2e_world import (
    ROOT,
    SMALL_SPEC,
    TINY_CHECKPOINT,
    TINY_STEPS,
    Signed,
    make_keys,
    replace_once,
    succeed,
)

MakeSmall = Callable[..., Path]


@pytest.fixture(scope="session")
def signed(base_image: HeldImage, tmp_path_factory: pytest.TempPathFactory) -> Signed:
    """The reference pilot, shortened, locked, built, run, recorded and signed for real."""
    folder = tmp_path_factory.mktemp("signed")
    project = folder / "pilot"
    left_out = shutil.ignore_patterns("out", "__pycache__", "repro.lock", "locks")
    shutil.copytree(ROOT / "examples" / "pilot", project, ignore=left_out)
    replace_once(project / "repro.yaml", "steps: 20", f"steps: {TINY_STEPS}")
    replace_once(project / "repro.yaml", "at_step: 10", f"at_step: {TINY_CHECKPOINT}")
    replace_once(project / "configs" / "pilot.yaml", "\nsteps: 20", f"\nsteps: {TINY_STEPS}")
    replace_once(project / "configs" / "pilot.yaml", "at_step: 10", f"at_step: {TINY_CHECKPOINT}")
    key, trust = make_keys(folder)
    succeed("lock", "-C", project)
    succeed("capture", "-C", project, "--key", key, "--out", folder / "runs")
    return Signed(project, folder / "runs" / "pilot.cpu", trust, key)


@pytest.fixture
def small(tmp_path: Path) -> MakeSmall:
    """A project whose pilot needs no torch: for failures that come before the first step."""

    def make(
        source: str,
        *,
        command: str = "python, pilot.py",
        timeout: str = "60s",
        base: str = "repro-base:bookworm",
    ) -> Path:
        project = tmp_path / "a project"
        project.mkdir()
        shutil.copy(ROOT / "Dockerfile.cpu", project)
        (project / "pilot.py").write_text(source)
        (project / "requirements.in").write_text("pyyaml\n")
        (project / "repro.yaml").write_text(SMALL_SPEC.format(command=command, timeout=timeout, base=base))
        return project

    return make
