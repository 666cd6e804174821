from __future__ import annotations

import json
import os
import resource
from pathlib import Path
from typing import Any

import docker
import pytest
import requests
from docker.errors import APIError
from hypothesis import given
from hypothesis import strategies as st

from repro.adapters import docker_options
from repro.adapters.docker_build import Following
from repro.adapters.docker_errors import known, speaking_to
from repro.adapters.docker_options import container_options
from repro.adapters.lines import Lines
from repro.errors import BuildError, EngineError, HostError, NetworkError, ReproError, RunError
from repro.image import EngineInfo
from repro.job import Job, Limits, Mount

CASES = Path(__file__).parents[3] / "shared" / "cases"

SAID: list[tuple[str, type[ReproError], str]] = [
    ("write /var/lib/x: no space left on device", EngineError, "disk-full"),
    ('could not select device driver "" with capabilities: [[gpu]]', EngineError, "gpu-toolkit-absent"),
    ('Could not select device driver "nvidia" with capabilities: [[gpu]]', EngineError, "gpu-toolkit-absent"),
    ("Unknown runtime specified nvidia", EngineError, "gpu-toolkit-absent"),
    ("unknown or invalid runtime name: nvidia", EngineError, "gpu-toolkit-absent"),
    (
        "nvidia-container-cli: initialization error: load library failed: libnvidia-ml.so.1: cannot open",
        HostError,
        "gpu-driver-absent",
    ),
    (
        'error gathering device information while adding custom device "/dev/kfd": no such file or directory',
        HostError,
        "device-absent",
    ),
    (
        "setting up CDI devices: unresolvable CDI devices nvidia.com/gpu=all",
        EngineError,
        "gpu-toolkit-absent",
    ),
    ("container create: stat /dev/kfd: no such file or directory", HostError, "device-absent"),
    (
        "runc create failed: error setting rlimit type 7: operation not permitted",
        EngineError,
        "limit-refused",
    ),
    ("Minimum memory limit allowed is 6MB", EngineError, "limit-refused"),
    ("Range of CPUs is from 0.01 to 2.00, as there are only 2 CPUs", EngineError, "limit-refused"),
    ("container-init binary not found on the host: stat /usr/libexec/x", EngineError, "init-absent"),
    ("Unable to find group render: no matching entries in group file", EngineError, "group-absent"),
    (
        'invalid mount config for type "bind": bind source path does not exist: /data/x',
        RunError,
        "mount-absent",
    ),
    ("manifest for nvidia/cuda:10 not found: manifest unknown: manifest unknown", BuildError, "base-gone"),
    ("pull access denied for x, repository does not exist", NetworkError, "registry-refused"),
    ("dial tcp: lookup registry.example.org: no such host", NetworkError, "registry-unreachable"),
    ("No such image: sha256:00", EngineError, "image-absent"),
]


@pytest.mark.parametrize(("said", "family", "kind"), SAID)
def test_what_engines_say_has_our_own_words(said: str, family: type[ReproError], kind: str) -> None:
    error = known(said, "starting the container")
    assert isinstance(error, family)
    assert (error.kind, error.where) == (kind, "starting the container")
    assert error.remedy
    assert said not in error.message


def test_the_named_thing_is_in_the_message() -> None:
    device = known('error gathering device information while adding custom device "/dev/kfd": no', "x")
    assert device is not None
    assert "/dev/kfd" in device.message
    mount = known("bind source path does not exist: /data/corpus", "x")
    assert mount is not None
    assert "/data/corpus" in mount.message


def test_case_c01_in_three_tongues() -> None:
    case = CASES / "C01"
    if not case.is_dir():
        pytest.skip("the shared cases are not here")
    for log in ("buildkit.log", "classic.log", "podman.log"):
        error = known((case / log).read_text(), "FROM")
        assert error is not None
        assert error.kind == "base-gone", log
    assert json.loads((case / "expected.json").read_text())["error"] == "base-tag-gone"


def test_case_c05_versions_that_the_archive_no_longer_has() -> None:
    case = CASES / "C05"
    if not case.is_dir():
        pytest.skip("the shared cases are not here")
    following = Following(lambda _: None)
    following.take({"stream": "Step 2/2 : RUN apt-get update && apt-get install -y wget"})
    following.take({"stream": (case / "build.log").read_text()})
    with pytest.raises(BuildError) as failed:
        following.take({"error": "The command '/bin/sh -c apt-get …' returned a non-zero code: 100"})
    expected = json.loads((case / "expected.json").read_text())
    assert failed.value.kind == expected["error"]
    for name, version in expected["packages"].items():
        assert f"{name}={version}" in failed.value.message
    assert "Step 2/2" in str(failed.value)


class Answers:
    """A client that does or does not answer a ping."""

    def __init__(self, alive: bool) -> None:
        self.alive = alive

    def ping(self) -> bool:
        if not self.alive:
            raise requests.exceptions.ConnectionError("refused")
        return True


@pytest.mark.parametrize(
    ("error", "alive", "kind"),
    [
        (requests.exceptions.ConnectionError("aborted"), False, "engine-gone"),
        (requests.exceptions.ChunkedEncodingError("cut"), True, "engine-broke-off"),
        (requests.exceptions.ReadTimeout("slow"), False, "engine-gone"),
        (ConnectionResetError(104, "reset"), False, "engine-gone"),
        (docker.errors.StreamParseError("half"), True, "engine-broke-off"),
        (APIError("something new\nsecond line"), True, "engine-failed"),
        (APIError("no space left on device"), True, "disk-full"),
    ],
)
def test_every_break_has_a_name(error: Exception, alive: bool, kind: str) -> None:
    client: Any = Answers(alive)
    with pytest.raises(EngineError) as named, speaking_to(client, "building"):
        raise error
    assert (named.value.kind, named.value.where) == (kind, "building")
    assert named.value.remedy
    assert "second line" not in named.value.message


def test_our_own_errors_pass() -> None:
    client: Any = Answers(True)
    with pytest.raises(RunError) as passed, speaking_to(client, "x"):
        raise RunError("own", "ours")
    assert passed.value.kind == "own"


def _engine(store: str, **members: Any) -> EngineInfo:
    named: dict[str, Any] = {"version": "20.10.24", "rootless": False, **members}
    return EngineInfo(name="docker", store=store, host="unix:///x", data_root=None, **named)  # type: ignore[arg-type]


def _options(
    store: str = "graphdriver",
    rootless: bool = False,
    engine: dict[str, Any] | None = None,
    **members: Any,
) -> dict[str, Any]:
    job = Job(
        argv=("python", "train.py"),
        environment={"A": "1"},
        workdir="/workspace",
        image="sha256:" + "0" * 64,
        mounts=(Mount(source="/a", target="/b"), Mount(source="/c", target="/d", writable=True)),
        timeout_s=1.0,
        **members,
    )
    return container_options(job, _engine(store, rootless=rootless, **(engine or {})))


def test_a_container_is_closed_by_default() -> None:
    options = _options(limits=Limits(memory_bytes=1 << 30, cpus=1.5))
    assert options["network_mode"] == "none"
    assert options["read_only"] is options["init"] is True
    assert options["cap_drop"] == ["ALL"]
    assert options["security_opt"] == ["no-new-privileges"]
    assert options["mem_limit"] == options["memswap_limit"] == 1 << 30
    assert options["nano_cpus"] == 1_500_000_000
    assert (options["entrypoint"], options["command"]) == (["python"], ["train.py"])
    assert [(m["Source"], m["Target"], m["ReadOnly"]) for m in options["mounts"]] == [
        ("/a", "/b", True),
        ("/c", "/d", False),
    ]
    assert not {"privileged", "devices", "device_requests", "group_add"} & options.keys()
    assert "mem_limit" not in _options()
    assert options["use_config_proxy"] is False


def test_limits_of_processes_are_those_asked_for() -> None:
    def ulimits(store: str = "graphdriver", **limits: Any) -> dict[str, tuple[int, int]]:
        found = _options(store, limits=Limits(**limits))["ulimits"]
        return {limit["Name"]: (limit["Soft"], limit["Hard"]) for limit in found}

    assert ulimits() == {"nofile": (4096, 4096), "core": (0, 0)}
    asked = ulimits(open_files=99, locked_bytes=-1, stack_bytes=1 << 20)
    assert asked == {"nofile": (99, 99), "core": (0, 0), "memlock": (-1, -1), "stack": (1 << 20, 1 << 20)}
    most = resource.getrlimit(resource.RLIMIT_NPROC)[1]
    assert ulimits("podman").get("nproc") == (None if most == resource.RLIM_INFINITY else (most, most))
    assert _options(limits=Limits(pids=99))["pids_limit"] == 99


def test_nobody_runs_as_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 0)
    assert _options()["user"] == "1000:1000"
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    monkeypatch.setattr(os, "getgid", lambda: 77)
    assert _options()["user"] == "1234:77"
    assert _options(rootless=True)["user"] == "0:0", "which is the caller, outside"


def test_nvidia_gpus_are_asked_for_and_refused_where_nobody_would_notice() -> None:
    (request,) = _options(accelerator="cuda")["device_requests"]
    assert (request["Count"], request["Capabilities"]) == (-1, [["gpu"]])
    with pytest.raises(EngineError) as refused:
        _options(accelerator="cuda", store="podman", engine={"version": "4.3.1"})
    assert refused.value.kind == "gpu-unsupported"


def test_nvidia_gpus_are_asked_for_by_name_where_only_names_are_set_up(tmp_path: Path) -> None:
    def asked(store: str = "graphdriver", **engine: Any) -> list[str] | None:
        (request,) = _options(accelerator="cuda", store=store, engine=engine)["device_requests"]
        names: list[str] | None = request["DeviceIDs"]
        assert bool(names) == (request["Driver"] == "cdi")
        return names

    folders = (str(tmp_path), "/no/such/folder")
    assert not asked(cdi_folders=folders)
    (tmp_path / "nvidia.yaml").touch()
    assert asked(cdi_folders=folders) == ["nvidia.com/gpu=all"]
    assert not asked(cdi_folders=folders, runtimes=("nvidia", "runc"))
    assert asked(store="podman", version="5.4.2") == ["nvidia.com/gpu=all"]


def test_amd_gpus_are_handed_in_by_node_and_group_number(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "dri").mkdir()
    for name in ("kfd", "dri/renderD129", "dri/renderD128", "dri/card0"):
        (tmp_path / name).touch()
    monkeypatch.setattr(docker_options, "_DEV", tmp_path)
    options = _options(accelerator="rocm")
    nodes = [f"{tmp_path}/kfd", f"{tmp_path}/dri/renderD128", f"{tmp_path}/dri/renderD129"]
    assert options["devices"] == [f"{node}:{node}:rwm" for node in nodes]
    assert options["group_add"] == [str(tmp_path.stat().st_gid)]
    assert options["security_opt"] == ["no-new-privileges", "seccomp=unconfined"]
    (tmp_path / "dri" / "renderD128").unlink()
    (tmp_path / "dri" / "renderD129").unlink()
    with pytest.raises(HostError) as absent:
        _options(accelerator="rocm")
    assert absent.value.kind == "device-absent"


@given(st.lists(st.binary(max_size=20), max_size=10))
def test_lines_do_not_depend_on_how_bytes_arrive(pieces: list[bytes]) -> None:
    def split(chunks: list[bytes]) -> list[str]:
        lines = Lines()
        found = [line for chunk in chunks for line in lines.feed(chunk)]
        return [*found, *lines.close()]

    whole = b"".join(pieces)
    assert split(pieces) == split([whole]) == split([bytes([byte]) for byte in whole])
    assert all("\n" not in line and "\r" not in line and line for line in split(pieces))


def test_a_line_without_end_is_cut() -> None:
    lines = Lines()
    assert [len(line) for line in lines.feed(b"x" * 100_000)] == [100_000]
    assert list(lines.close()) == []
