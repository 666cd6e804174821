from __future__ import annotations

from pathlib import Path

import pytest

from tests.attest.attest_world import World


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A run signed by `train`, and a policy that trusts `train` and `lab` to sign runs."""
    made = World(tmp_path)
    made.sign()
    return made
