from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from docker.types import DeviceRequest

from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_errors import speaking_to
from repro.adapters.docker_options import OWNER, owner
from repro.adapters.docker_runtime import DockerRuntime
from repro.errors import EngineError, HostError, ReproError, RunError
from repro.image import HeldImage
from repro.job import Job, JobResult, Limits, Mount
from repro.run.ending import require_success

pytestmark = pytest.mark.engine


class Runner:
    def __init__(self, engine: DockerEngine, image: HeldImage) -> None:
        self.engine, self.image = engine, image
        self.lines: list[str] = []

    def job(self, *argv: str, timeout_s: float = 60.0, **members: object) -> Job:
        return Job(
            argv=argv,
            environment={"HOME": "/tmp", **members.pop("environment", {})},  # type: ignore[dict-item]
            workdir="/tmp",
            image=self.image.config_digest,
            timeout_s=timeout_s,
            **members,  # type: ignore[arg-type]
        )

    def run(self, *argv: str, **members: object) -> JobResult:
        return DockerRuntime(self.engine).run(self.job(*argv, **members), on_line=self.lines.append)  # type: ignore[arg-type]

    def ours(self) -> list[str]:
        found = self.engine.client.api.containers(all=True, filters={"label": f"{OWNER}={owner()}"})
        return [container["Id"] for container in found]


@pytest.fixture
def runner(engine: DockerEngine, base_image: HeldImage) -> Runner:
    return Runner(engine, base_image)


def test_output_and_exit_code_come_back_and_nothing_stays(runner: Runner) -> None:
    result = runner.run("sh", "-c", "echo one; echo two >&2; printf 'three\\rfour'; exit 7")
    assert (result.exit_code, result.ended) == (7, "exited")
    assert sorted(runner.lines) == ["four", "one", "three", "two"]
    assert sorted(result.tail) == sorted(runner.lines)
    assert runner.ours() == []


def test_surroundings_are_closed(runner: Runner) -> None:
    script = """
import os, socket
print(os.getuid(), os.getgid(), os.path.exists("/proc/self"), socket.gethostname())
print(sorted(line.split(":")[0].strip() for line in open("/proc/net/dev").readlines()[2:]))
print(socket.gethostbyname("repro"))
status = dict(line.split(":", 1) for line in open("/proc/self/status"))
print(int(status["CapEff"], 16), int(status["CapBnd"], 16), status["NoNewPrivs"].strip())
for place in ("/x", "/workspace", "/etc/x"):
    try:
        open(place, "w")
    except OSError as error:
        print(error.errno)
open("/tmp/x", "w")
import resource
print(resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CORE))
print(os.environ.get("SECRET"))
"""
    os.environ["SECRET"] = "not to be passed on"
    try:
        assert runner.run("python3", "-c", script).exit_code == 0
    finally:
        del os.environ["SECRET"]
    ids = "1000 1000" if os.getuid() == 0 else f"{os.getuid()} {os.getgid()}"
    assert runner.lines == [
        f"{ids} True repro",
        "['lo']",
        "127.0.0.1",
        "0 0 1",
        "30",
        "30",
        "30",
        "(4096, 4096) (0, 0)",
        "None",
    ]


def test_mounts_are_read_only_unless_said_otherwise(runner: Runner, tmp_path: Path) -> None:
    (tmp_path / "in").mkdir()
    (tmp_path / "out" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "data").write_text("42")
    mounts = (
        Mount(source=str(tmp_path / "in"), target="/data/in"),
        Mount(source=str(tmp_path / "out"), target="/data/out", writable=True),
    )
    result = runner.run(
        "sh", "-c", "cat /data/in/data > /data/out/deep/copy; touch /data/in/x", mounts=mounts
    )
    assert result.exit_code == 1
    assert (tmp_path / "out" / "deep" / "copy").read_text() == "42"
    assert "Read-only file system" in runner.lines[-1]


def test_a_hanging_job_is_stopped_with_its_children(runner: Runner) -> None:
    script = "trap '' TERM; sh -c 'trap \"\" TERM; sleep 300' & echo started; while :; do sleep 1; done"
    started = time.monotonic()
    result = runner.run("sh", "-c", script, timeout_s=2.0)
    assert (result.ended, result.exit_code, result.tail) == ("timeout", 137, ("started",))
    assert time.monotonic() - started < 30
    assert runner.ours() == []


def test_out_of_memory_has_its_own_name(runner: Runner) -> None:
    script = "x = [bytearray(50_000_000) for _ in range(100)]"
    result = runner.run("python3", "-c", script, limits=Limits(memory_bytes=200 << 20))
    assert (result.ended, result.exit_code) == ("oom", 137)
    child = f"python3 -c '{script}'; exit 3"
    result = runner.run("sh", "-c", child, limits=Limits(memory_bytes=200 << 20))
    assert (result.ended, result.exit_code) == ("oom", 3)


@pytest.mark.parametrize(
    ("argv", "code"),
    [
        (["no-such-command"], 127),
        (["/no/such/file"], 127),
        (["/etc/passwd"], 126),
        (["python3", "-c", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)"], 139),
        (["sh", "-c", "kill -9 $$"], 137),
        (["sh", "-c", "kill -TERM $$"], 143),
    ],
)
def test_exit_codes_say_what_happened(runner: Runner, argv: list[str], code: int) -> None:
    result = runner.run(*argv)
    assert (result.exit_code, result.ended) == (code, "exited")
    if code < 128:
        assert argv[0] in result.tail[-1]
        assert "tini" not in result.tail[-1]


def test_limits_hold(runner: Runner) -> None:
    script = """
import os, pathlib, resource
for name in ("NOFILE", "CORE", "STACK"):
    print(name, *resource.getrlimit(getattr(resource, f"RLIMIT_{name}")))
for place in ("/dev/shm", "/tmp"):
    room = os.statvfs(place)
    print(place, room.f_blocks * room.f_frsize)
quotas = [pathlib.Path("/sys/fs/cgroup", name) for name in ("cpu/cpu.cfs_quota_us", "cpu.max")]
print(*[path.read_text().split()[0] for path in quotas if path.exists()])
"""
    limits = Limits(
        cpus=0.5,
        shm_bytes=1 << 20,
        tmp_bytes=2 << 20,
        open_files=99,
        stack_bytes=1 << 20,
        memory_bytes=1 << 28,
    )
    assert runner.run("python3", "-c", script, limits=limits).exit_code == 0
    assert runner.lines == [
        "NOFILE 99 99",
        "CORE 0 0",
        f"STACK {1 << 20} {1 << 20}",
        f"/dev/shm {1 << 20}",
        f"/tmp {2 << 20}",
        "50000",
    ]
    many = "import threading\nfor _ in range(99): threading.Thread(target=input).start()"
    assert runner.run("python3", "-c", many, limits=Limits(pids=16)).exit_code != 0
    assert any("can't start new thread" in line for line in runner.lines)


def test_too_little_shared_memory_is_a_signal_of_its_own(runner: Runner) -> None:
    script = """
import mmap, os
file = os.open("/dev/shm/x", os.O_RDWR | os.O_CREAT)
os.ftruncate(file, 4 << 20)
mmap.mmap(file, 4 << 20).write(bytes(4 << 20))
"""
    result = runner.run("python3", "-c", script, limits=Limits(shm_bytes=1 << 20))
    assert (result.exit_code, result.ended) == (128 + signal.SIGBUS, "exited")
    with pytest.raises(RunError) as named:
        require_success("full", result)
    assert named.value.kind == "pilot-out-of-shared-memory"


@pytest.mark.parametrize(
    ("limits", "named"),
    [
        (Limits(open_files=1 << 30), "open_files"),
        (Limits(memory_bytes=1000), "memory"),
        (Limits(cpus=5000.0), "cpus"),
    ],
)
def test_a_limit_beyond_the_machine_is_named(runner: Runner, limits: Limits, named: str) -> None:
    with pytest.raises(EngineError) as refused:
        runner.run("true", limits=limits)
    assert refused.value.kind == "limit-refused"
    assert refused.value.message.endswith(f"asks for: {named}")
    assert runner.ours() == []


@pytest.mark.parametrize(
    ("asked", "kind"),
    [
        (
            {"device_requests": [DeviceRequest(driver="cdi", device_ids=["nvidia.com/gpu=99"])]},
            "gpu-toolkit-absent",
        ),
        ({"device_requests": [DeviceRequest(driver="none", capabilities=[["gpu"]])]}, "gpu-toolkit-absent"),
        ({"runtime": "no-such-runtime"}, "gpu-toolkit-absent"),
        ({"devices": ["/dev/no-kfd:/dev/kfd:rwm"]}, "device-absent"),
        ({"group_add": ["no-such-group"]}, "group-absent"),
    ],
)
def test_what_the_engine_really_says_without_a_device_is_known(
    runner: Runner, asked: dict[str, Any], kind: str
) -> None:
    client = runner.engine.client
    made = None
    try:
        with pytest.raises(ReproError) as named, speaking_to(client, "starting the container"):  # noqa: PT012
            made = client.containers.create(runner.image.id, ["true"], network_mode="none", **asked)
            made.start()
    finally:
        if made is not None:
            made.remove(force=True)
    assert named.value.kind == kind
    assert named.value.remedy


def test_absent_things_have_names(runner: Runner, tmp_path: Path) -> None:
    with pytest.raises(RunError) as absent:
        runner.run("true", mounts=(Mount(source=str(tmp_path / "none"), target="/data"),))
    assert absent.value.kind == "mount-absent"
    assert str(tmp_path / "none") in absent.value.message
    with pytest.raises(EngineError) as image:
        DockerRuntime(runner.engine).run(
            runner.job("true").model_copy(update={"image": "sha256:" + "0" * 64}), on_line=runner.lines.append
        )
    assert image.value.kind == "image-absent"
    if not Path("/dev/kfd").exists():
        with pytest.raises(HostError) as device:
            runner.run("true", accelerator="rocm")
        assert device.value.kind == "device-absent"
    if not Path("/dev/nvidiactl").exists():
        with pytest.raises((EngineError, HostError)) as gpu:
            runner.run("true", accelerator="cuda")
        assert gpu.value.kind in ("gpu-toolkit-absent", "gpu-driver-absent", "gpu-unsupported")
    assert runner.ours() == []


CHILD = """
import sys
from repro.adapters.docker_engine import DockerEngine
from repro.adapters.docker_runtime import DockerRuntime
from repro.job import Job
argv = ("sh", "-c", "echo ready; sleep 300")
job = Job(argv=argv, environment={}, workdir="/", image=sys.argv[1], timeout_s=300.0)
try:
    with DockerEngine.connect() as engine:
        DockerRuntime(engine).run(job, on_line=lambda line: print(line, flush=True))
except KeyboardInterrupt:
    sys.exit(130)
"""


def _containers_of(engine: DockerEngine, pid: int) -> list[str]:
    found = engine.client.api.containers(all=True, filters={"label": OWNER})
    return [c["Id"] for c in found if c["Labels"][OWNER].endswith(f"/{pid}")]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_no_container(engine: DockerEngine, base_image: HeldImage, number: int) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(base_image.config_digest)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        assert len(_containers_of(engine, child.pid)) == 1
        child.send_signal(number)
        assert child.wait(30) == 130
        assert _containers_of(engine, child.pid) == []


def test_what_a_killed_process_left_is_swept_by_the_next(engine: DockerEngine, base_image: HeldImage) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", CHILD, str(base_image.config_digest)], stdout=subprocess.PIPE, text=True
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "ready\n"
        child.kill()
        child.wait(30)
    assert len(_containers_of(engine, child.pid)) == 1
    Runner(engine, base_image).run("true")
    assert _containers_of(engine, child.pid) == []


@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning"
)  # docker-py drops refused sockets
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_an_engine_that_dies_in_the_middle_is_named(
    engine: DockerEngine, base_image: HeldImage, private_engine: dict[str, str], number: int
) -> None:
    pid = int(Path(private_engine["REPRO_ENGINE_RUN"], "pid").read_text())

    def kill(line: str) -> None:
        assert line == "ready"
        os.kill(pid, number)

    with DockerEngine.connect(private_engine) as victim:
        victim.load(engine.save(base_image.id))
        job = Runner(victim, base_image).job("sh", "-c", "echo ready; sleep 300", timeout_s=120.0)
        with pytest.raises(EngineError) as gone:
            DockerRuntime(victim).run(job, on_line=kill)
    assert gone.value.kind == "engine-gone"
    assert gone.value.remedy
    del gone
    gc.collect()
