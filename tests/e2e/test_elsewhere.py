"""A signed run on a machine that has nothing of it: its image comes from a registry, or from the lock."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from repro.adapters.docker_engine import DockerEngine
from tests.adapters.debian_registry import serve_registry
from tests.conftest import BASE
from tests.e2e.e2e_world import Signed, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network, pytest.mark.torch]


def test_nothing_runs_where_the_lock_gives_another_image_than_was_signed(
    signed: Signed, tmp_path: Path
) -> None:
    run, other = tmp_path / "run", "sha256:" + "0" * 64
    shutil.copytree(signed.run, run, ignore=shutil.ignore_patterns("*.sigstore.json", "replays"))
    manifest = run / "manifest.json"
    image = json.loads(manifest.read_text())["image"]["identity"]["config_digest"]
    manifest.write_text(manifest.read_text().replace(image, other))
    succeed("sign", run, "--key", signed.key)
    result = repro("replay", run, "--trust", signed.trust, "-C", signed.project)
    assert result.returncode == 1
    assert "it is rebuilt from the signed lock" in result.stderr
    assert (
        f"error[image-differs] the image built from the signed lock is {image}, and {other}" in result.stderr
    )
    assert "run: every step" not in result.stderr
    result = repro("replay", run, "--trust", signed.trust, "-C", signed.project, "--current", "--image", "x")
    assert result.returncode == 2


@pytest.mark.slow
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
