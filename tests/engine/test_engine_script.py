"""scripts/engine: finds an engine, or starts, recovers and stops a private one."""

from __future__ import annotations

import http.server
import os
import shutil
import signal
import socketserver
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "engine"

can_start = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("dockerd") is None, reason="a private engine needs root and dockerd"
)


class Private:
    """A second private engine in a folder of its own; socket paths must be short."""

    def __init__(self, folder: Path) -> None:
        self.run = folder / "run"
        self.host = f"unix://{self.run}/docker.sock"
        self.environment = os.environ | {
            "REPRO_ENGINE_ROOT": str(folder / "data root"),
            "REPRO_ENGINE_RUN": str(self.run),
        }

    def __call__(self, verb: str, *prefix: str) -> subprocess.CompletedProcess[str]:
        return call(verb, *prefix, environment=self.environment)

    @property
    def pid(self) -> int:
        return int((self.run / "pid").read_text())

    def daemon(self) -> int:
        """The dockerd under the process that the pid file names."""
        done = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=True)
        return int(done.stdout)


def call(verb: str, *prefix: str, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [*prefix, str(SCRIPT), verb]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120, check=False)


@pytest.fixture
def private() -> Iterator[Private]:
    with tempfile.TemporaryDirectory(prefix="re-") as folder:
        engine = Private(Path(folder))
        yield engine
        engine("stop")


def gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    return state == "Z"


@pytest.mark.engine
@can_start
def test_an_engine_is_started_once_and_stopped(private: Private) -> None:
    assert private("host").returncode == 1

    first = private("start")
    assert (first.returncode, first.stdout) == (0, f"{private.host}\n"), first.stderr
    pid = private.pid

    began = time.monotonic()
    again = private("start")
    assert time.monotonic() - began < 2
    assert (again.stdout, again.stderr, private.pid) == (f"{private.host}\n", "", pid)
    assert private("host").stdout == f"{private.host}\n"
    assert private("status").stdout == f"{private.host} (private, pid {pid})\n"

    assert private("stop").returncode == 0
    assert gone(pid)
    assert private("host").returncode == 1
    assert private("status").returncode == 1
    assert private("stop").returncode == 0


@pytest.mark.engine
@can_start
@pytest.mark.parametrize("victim", ["daemon", "pid"])
def test_a_killed_engine_takes_everything_with_it_and_starts_anew(private: Private, victim: str) -> None:
    private("start")
    first, daemon = private.pid, private.daemon()
    os.kill(daemon if victim == "daemon" else first, signal.SIGKILL)
    deadline = time.monotonic() + 10
    while not (gone(first) and gone(daemon)):
        assert time.monotonic() < deadline
        time.sleep(0.02)

    assert private("host").returncode == 1
    again = private("start")
    assert (again.returncode, again.stdout) == (0, f"{private.host}\n"), again.stderr
    assert private.pid != first


@pytest.mark.engine
@can_start
def test_a_pid_file_that_names_a_stranger_is_not_believed(private: Private) -> None:
    private.run.mkdir()
    stranger = subprocess.Popen(["sleep", "60"])
    try:
        (private.run / "pid").write_text(f"{stranger.pid}\n")
        assert private("stop").returncode == 0
        assert private("start").returncode == 0
        assert private.pid != stranger.pid
        assert stranger.poll() is None
    finally:
        stranger.kill()
        stranger.wait()


@pytest.mark.engine
@can_start
def test_a_bridge_of_another_engine_stays(private: Private) -> None:
    script = (
        'ip link add docker0 type bridge && "$0" start && ip -o link show docker0 && "$0" stop '
        "&& ip -o link show docker0"
    )
    done = subprocess.run(
        ["unshare", "--net", "bash", "-c", script, str(SCRIPT)],
        env=private.environment,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("docker0:") == 2


@pytest.mark.engine
@can_start
def test_an_engine_holds_no_pipe_of_its_caller_open(private: Private) -> None:
    reader, writer = os.pipe()
    with subprocess.Popen([str(SCRIPT), "start"], env=private.environment, pass_fds=[writer]) as starting:
        os.close(writer)
        assert starting.wait(timeout=120) == 0
    with os.fdopen(reader, "rb") as pipe:
        assert pipe.read() == b""  # the end of the file: nobody has the other end


@pytest.mark.engine
@can_start
def test_two_starts_at_once_give_one_engine(private: Private) -> None:
    both = [
        subprocess.Popen([str(SCRIPT), "start"], env=private.environment, stdout=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    assert [starting.communicate(timeout=120)[0] for starting in both] == [f"{private.host}\n"] * 2
    running = subprocess.run(
        ["pgrep", "-f", f"^dockerd --config-file={private.run}/"], capture_output=True, text=True, check=True
    )
    assert running.stdout.split() == [str(private.daemon())]


def test_without_root_it_says_what_remains(private: Private) -> None:
    done = private("start", "unshare", "--user")
    if "unshare failed" in done.stderr:
        pytest.skip("this machine lets nobody make a user namespace")
    assert done.returncode == 3
    assert done.stdout == ""
    assert "--runtime host" in done.stderr


def test_a_socket_path_that_is_too_long_is_refused(private: Private) -> None:
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        pytest.skip("only looked at where an engine could be started")
    private.environment["REPRO_ENGINE_RUN"] = f"{private.run}/{'x' * 100}"
    done = private("start")
    assert done.returncode == 1
    assert "too long" in done.stderr


def test_anything_else_is_a_usage_error() -> None:
    done = call("restart", environment=dict(os.environ))
    assert done.returncode == 2
    assert done.stdout == ""
    assert "engine start" in done.stderr


class Ping(http.server.BaseHTTPRequestHandler):
    """The one answer by which an engine is known."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"OK")

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        pass


@pytest.fixture
def found() -> Iterator[str]:
    """The DOCKER_HOST of something that answers as an engine does."""
    with tempfile.TemporaryDirectory(prefix="re-") as folder:
        path = f"{folder}/docker.sock"
        with socketserver.ThreadingUnixStreamServer(path, Ping) as server:
            thread = threading.Thread(target=server.serve_forever)
            thread.start()
            yield f"unix://{path}"
            server.shutdown()
            thread.join()


def test_an_engine_that_answers_is_used_as_found(found: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REPRO_ENGINE_")}
    environment["DOCKER_HOST"] = found
    for verb in ("start", "host"):
        done = call(verb, environment=environment)
        assert (done.returncode, done.stdout, done.stderr) == (0, f"{found}\n", "")
    assert call("status", environment=environment).stdout == f"{found} (as found)\n"


def test_a_docker_host_that_does_not_answer_is_named(found: str) -> None:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("REPRO_ENGINE_")}
    dead = f"{found}.gone"
    done = call("host", environment=environment | {"DOCKER_HOST": dead})
    assert dead in done.stderr
    assert dead not in done.stdout
