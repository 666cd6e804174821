from __future__ import annotations

import os
import signal
import socket
import sys
import time
from pathlib import Path

import pytest

from repro.adapters.host_runtime import HostRuntime
from repro.errors import BuildError, HostError
from repro.image import BuildPlan
from repro.job import Job, JobResult, Mount
from tests.parts import Parts

ZERO = "sha256:" + "0" * 64


class Quiet:
    def start(self, what: str, total: int | None = None) -> None: ...
    def advance(self, amount: int = 1, note: str = "") -> None: ...
    def line(self, text: str) -> None: ...


class Runner:
    """Shares one environment; each test has its own lines."""

    def __init__(self, parts: Parts) -> None:
        self.parts, self.lines = parts, list[str]()
        entry = "tiny = tinypkg:VALUE.bit_length"
        self.plan = BuildPlan(
            name="tiny",
            accelerator="cpu",
            architecture="amd64",
            python=f"{sys.version_info.major}.{sys.version_info.minor}",
            epoch=0,
            base_reference="none",
            base_manifest_digest=None,
            base_config_digest=ZERO,
            base_diff_ids=(),
            dockerfile=parts.wheel("unused", "1", {}),
            arguments={},
            pip=parts.pip(),
            wheels=(parts.wheel("tinypkg", "1.5", {"tinypkg.py": "VALUE = 42\n"}, scripts=entry),),
            source=(),
            rules="none",
        )

    def runtime(self, plan: BuildPlan | None = None) -> HostRuntime:
        return HostRuntime(plan or self.plan, cache=self.parts, progress=Quiet())

    def run(self, *argv: str, timeout_s: float = 60.0, **members: object) -> JobResult:
        environment = {"HOME": "/tmp", **members.pop("environment", {})}  # type: ignore[dict-item]
        job = Job(
            argv=argv,
            environment=environment,
            workdir="/workspace",
            image=None,
            timeout_s=timeout_s,
            **members,  # type: ignore[arg-type]
        )
        return self.runtime().run(job, on_line=self.lines.append)


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Runner:
    return Runner(Parts(tmp_path_factory.mktemp("parts")))


@pytest.fixture
def runner(shared: Runner) -> Runner:
    shared.lines = []
    return shared


def test_the_locked_packages_and_nothing_else(runner: Runner) -> None:
    script = (
        "import tinypkg, importlib.metadata as m; print(tinypkg.VALUE, [d.name for d in m.distributions()])"
    )
    os.environ["SECRET"] = "not to be passed on"
    try:
        result = runner.run("python", "-c", f"{script}; import os; print(os.environ.get('SECRET'))")
    finally:
        del os.environ["SECRET"]
    assert (result.exit_code, result.ended) == (0, "exited")
    assert runner.lines == ["42 ['tinypkg']", "None"]
    before = time.monotonic()
    assert runner.run("tiny").exit_code == 6
    assert time.monotonic() - before < 5, "the environment is made once"


def test_mounts_appear_where_the_job_looks_for_them(runner: Runner, tmp_path: Path) -> None:
    for name in ("source.py", "data.txt"):
        (tmp_path / name).write_text(
            "import helper\nprint(helper.__file__.endswith('/workspace/helper.py'))\n"
        )
    (tmp_path / "helper.py").write_text("")
    (tmp_path / "trace").mkdir()
    mounts = (
        Mount(source=str(tmp_path / "source.py"), target="/workspace/train.py"),
        Mount(source=str(tmp_path / "helper.py"), target="/workspace/helper.py"),
        Mount(source=str(tmp_path / "data.txt"), target="/data/corpus.txt"),
        Mount(source=str(tmp_path / "trace"), target="/repro/trace", writable=True),
    )
    assert runner.run("python", "train.py", mounts=mounts).exit_code == 0
    assert runner.lines == ["True"]
    script = """
import os, shutil, sys
shutil.copy(sys.argv[1], os.environ["TRACE"] + "/copy")
print(os.environ["BOTH"], os.getcwd())
"""
    environment = {"TRACE": "/repro/trace", "BOTH": "/repro/trace:/workspace/x:/elsewhere"}
    result = runner.run("python", "-c", script, "/data/corpus.txt", mounts=mounts, environment=environment)
    assert result.exit_code == 0
    assert (tmp_path / "trace" / "copy").read_text() == (tmp_path / "data.txt").read_text()
    both, cwd = runner.lines[-1].split(" ")
    assert both == f"{cwd.removesuffix('/workspace')}/repro/trace:{cwd}/x:/elsewhere"


ESCAPE = """
import os, subprocess, sys, time
script = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(300)"
child = subprocess.Popen([sys.executable, "-c", script], start_new_session=True)
open("out/pid", "w").write(str(child.pid))
print("ready", flush=True)
if sys.argv[1] == "wait":
    time.sleep(300)
"""


def _note(tmp_path: Path) -> tuple[Path, tuple[Mount, ...]]:
    out = tmp_path / "out"
    out.mkdir()
    return out / "pid", (Mount(source=str(out), target="/workspace/out", writable=True),)


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.parametrize(("mode", "ended"), [("wait", "timeout"), ("leave", "exited")])
def test_children_in_their_own_session_end_with_the_job(
    runner: Runner, tmp_path: Path, mode: str, ended: str
) -> None:
    runner.run("true")
    note, mounts = _note(tmp_path)
    result = runner.run("python", "-c", ESCAPE, mode, timeout_s=5.0, mounts=mounts)
    assert result.ended == ended
    assert runner.lines == ["ready"]
    assert not _alive(int(note.read_text()))


@pytest.mark.parametrize(
    ("argv", "code"), [(["no-such-command"], 127), (["/etc/passwd"], 126), (["sh", "-c", "kill -9 $$"], 137)]
)
def test_exit_codes_say_what_happened(runner: Runner, argv: list[str], code: int) -> None:
    assert runner.run(*argv).exit_code == code


def test_the_network_is_gone_or_the_result_says_that_it_is_not(runner: Runner) -> None:
    script = """
import socket
print([name for _, name in socket.if_nameindex()])
print(socket.gethostbyname(socket.gethostname()))
"""
    result = runner.run("python", "-c", script)
    if result.network == "none":
        assert runner.lines == ["['lo']", "127.0.0.1"]
    else:
        assert runner.lines[0] == str([name for _, name in socket.if_nameindex()])


def test_an_interrupt_ends_every_process(runner: Runner, tmp_path: Path) -> None:
    runner.run("true")
    note, mounts = _note(tmp_path)
    child = os.fork()
    if child == 0:
        code = 1
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            runner.run("python", "-c", ESCAPE, "wait", mounts=mounts)
        except KeyboardInterrupt:
            code = 130
        finally:
            os._exit(code)
    deadline = time.monotonic() + 30
    while not (note.exists() and note.read_text()) and time.monotonic() < deadline:
        time.sleep(0.05)
    os.kill(child, signal.SIGTERM)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 130
    assert not _alive(int(note.read_text()))
    assert list((runner.parts.folder / "scratch").iterdir()) == []


def test_what_is_missing_has_a_name(runner: Runner) -> None:
    job = Job(argv=("true",), environment={}, workdir="/workspace", image=None, timeout_s=5.0)
    with pytest.raises(HostError) as python:
        runner.runtime(runner.plan.model_copy(update={"python": "3.2"})).run(job, on_line=runner.lines.append)
    assert python.value.kind == "interpreter-absent"
    stranger = runner.plan.wheels[0].model_copy(update={"digest": ZERO})
    with pytest.raises(BuildError) as wheel:
        runner.runtime(runner.plan.model_copy(update={"wheels": (stranger,)})).run(
            job, on_line=runner.lines.append
        )
    assert wheel.value.kind == "wheel-absent"
    parts = runner.parts
    before = sorted(parts.folder.glob("venvs/*/"))
    held = parts.held[runner.plan.wheels[0].digest]
    parts.held[ZERO] = held
    with pytest.raises(BuildError) as differs:
        runner.runtime(runner.plan.model_copy(update={"wheels": (stranger,)})).run(
            job, on_line=runner.lines.append
        )
    assert differs.value.kind == "venv-failed"
    assert "HASH" in differs.value.message.upper()
    assert sorted(parts.folder.glob("venvs/*/")) == before
