"""What a person meets first when something is wrong: a name, a remedy, and nothing half-written."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_options import OWNER
from tests.e2e.e2e_world import ENTRY, make_keys, repro, succeed

pytestmark = [pytest.mark.engine, pytest.mark.network]

MakeSmall = Callable[..., Path]


def owners(engine: DockerEngine) -> list[int]:
    """Process numbers of those who made the containers that are there."""
    found = engine.client.api.containers(all=True, filters={"label": OWNER})
    return [int(container["Labels"][OWNER].rpartition("/")[2]) for container in found]


def left_over(engine: DockerEngine) -> list[int]:
    """Owners that are gone while their containers are not."""
    return [pid for pid in owners(engine) if not Path(f"/proc/{pid}").exists()]


def capture(project: Path, key: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return repro("capture", "-C", project, "--key", key, **environment)


def no_run_is_left(project: Path) -> bool:
    runs = project / "manifests"
    return not runs.exists() or not [path for path in runs.iterdir() if path.is_dir()]


def test_no_engine(small: MakeSmall, tmp_path: Path) -> None:
    project = small("print('never')")
    succeed("lock", "-C", project)
    key, _ = make_keys(tmp_path)
    result = capture(project, key, DOCKER_HOST="unix:///nowhere/docker.sock")
    assert result.returncode == 1
    assert "error[engine-absent]" in result.stderr
    assert "--runtime host" in result.stderr
    assert no_run_is_left(project)


def test_no_base(small: MakeSmall) -> None:
    project = small("print('never')", base="repro-base:of-no-such-tag")
    result = repro("lock", "-C", project)
    assert result.returncode == 1
    assert "error[base-" in result.stderr
    assert not (project / "repro.lock").exists()
    assert not (project / "locks").exists()


def test_no_lock(small: MakeSmall) -> None:
    result = repro("build", "-C", small("print('never')"))
    assert result.returncode == 1
    assert "error[lock-missing]" in result.stderr


def test_a_stale_lock(small: MakeSmall) -> None:
    project = small("print('never')")
    succeed("lock", "-C", project)
    (project / "pilot.py").write_text("print('changed')")
    result = repro("build", "-C", project)
    assert result.returncode == 1
    assert "error[lock-stale]" in result.stderr
    assert "pilot.py has changed" in result.stderr
    assert repro("lock", "--check", "-C", project).returncode == 3


def test_a_pilot_that_fails(small: MakeSmall, tmp_path: Path, engine: DockerEngine) -> None:
    project = small("import sys; print('the reason'); sys.exit(7)")
    succeed("lock", "-C", project)
    key, _ = make_keys(tmp_path)
    result = capture(project, key)
    assert result.returncode == 1
    assert "error[pilot-failed]" in result.stderr
    assert "exited with 7" in result.stderr
    assert "the reason" in result.stderr
    assert no_run_is_left(project)
    assert left_over(engine) == []


def test_a_pilot_that_hangs_is_stopped_with_its_children(
    small: MakeSmall, tmp_path: Path, engine: DockerEngine
) -> None:
    source = "import subprocess, time; subprocess.Popen(['sleep', '600']); time.sleep(600)"
    project = small(source, timeout="3s")
    succeed("lock", "-C", project)
    key, _ = make_keys(tmp_path)
    result = capture(project, key)
    assert result.returncode == 1
    assert "error[pilot-timeout]" in result.stderr
    assert no_run_is_left(project)
    assert left_over(engine) == []


def test_a_pilot_that_was_not_recorded(small: MakeSmall, tmp_path: Path) -> None:
    project = small("print('trains nothing')")
    succeed("lock", "-C", project)
    key, _ = make_keys(tmp_path)
    result = capture(project, key)
    assert result.returncode == 1
    assert "error[recorder-absent]" in result.stderr


@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(
    small: MakeSmall, tmp_path: Path, engine: DockerEngine, sent: signal.Signals
) -> None:
    project = small("import time; print('here', flush=True); time.sleep(600)")
    succeed("lock", "-C", project)
    succeed("build", "-C", project)
    key, _ = make_keys(tmp_path)
    command = [sys.executable, "-c", ENTRY, "capture", "-C", str(project), "--key", str(key)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        deadline = time.monotonic() + 60
        while process.pid not in owners(engine) and time.monotonic() < deadline:
            time.sleep(0.2)
        assert process.pid in owners(engine)
        os.kill(process.pid, sent)
        _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert left_over(engine) == []
    assert no_run_is_left(project)


def test_a_full_disk(small: MakeSmall, tmp_path: Path) -> None:
    if os.getuid() != 0:
        pytest.skip("a small file system needs root to be mounted")
    project = small("print('never')")
    succeed("lock", "-C", project)
    tight = tmp_path / "tight"
    tight.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(tight)], check=True)
    try:
        result = repro("lock", "--upgrade", "-C", project, REPRO_CACHE=str(tight))
        assert result.returncode == 1
        assert "error[disk-full]" in result.stderr
        assert "Traceback" not in result.stderr
        assert repro("lock", "--check", "-C", project).returncode == 0
    finally:
        subprocess.run(["umount", str(tight)], check=True)


def test_no_network(small: MakeSmall, tmp_path: Path) -> None:
    project = small("print('never')")
    closed = {
        "REPRO_CACHE": str(tmp_path / "empty"),
        "PIP_CONFIG_FILE": os.devnull,
        "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
        "PIP_FIND_LINKS": "",
        "PIP_RETRIES": "0",
    }
    result = repro("lock", "-C", project, **closed)
    assert result.returncode == 1
    assert "error[" in result.stderr
    assert "Traceback" not in result.stderr
    assert not (project / "repro.lock").exists()
