"""A signed run on a machine that has nothing of it: its image comes from a registry, or from the lock."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from repro.adapters.docker_engine import DockerEngine
from tests.adapters.debian_registry import serve_registry
from tests.conftest import BASE
from tests.e2e.e2e_world import Signed, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch, pytest.mark.slow]


def test_a_run_is_replayed_in_an_engine_that_never_saw_its_image(
    signed: Signed, private_engine: dict[str, str], engine: DockerEngine, tmp_path: Path
) -> None:
    identity = json.loads((signed.run / "manifest.json").read_text())["image"]["identity"]
    elsewhere = {"DOCKER_HOST": private_engine["DOCKER_HOST"]}
    command = ("replay", signed.run, "--trust", signed.trust, "-C", signed.project)
    with serve_registry(tmp_path / "registry") as host:
        where = f"{host}/team/pilot"
        answer = json.loads(succeed("build", "-C", signed.project, "--push", f"{where}:v1", "--json"))
        assert answer["pushed"] == f"oci://{where}@{identity['manifest_digest']}"
        with DockerEngine.connect(elsewhere) as other:
            assert other.find(identity["config_digest"]) is None
        result = repro(*command, "--image", f"oci://{where}:v1", **elsewhere)
        assert result.returncode == 0, result.stderr
        assert "BITWISE" in result.stdout
        assert "rebuilt" not in result.stderr
        assert "building" not in result.stderr
        with DockerEngine.connect(elsewhere) as other:
            assert other.find(identity["config_digest"]) is not None
            other.client.images.remove(identity["config_digest"], force=True)
            other.load(engine.save(BASE))
        result = repro(*command, "--image", f"oci://{where}:gone", **elsewhere)
    assert result.returncode == 0, result.stderr
    assert "BITWISE" in result.stdout
    assert f"not in oci://{where}:gone: it is rebuilt from the signed lock" in result.stderr
    assert "building" in result.stderr
    with DockerEngine.connect(elsewhere) as other:
        assert other.find(identity["config_digest"]) is not None
