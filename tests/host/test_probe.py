"""A probe of pretended machines, of this one, and the parts it is made of."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from repro.adapters import nvidia
from repro.adapters.assemble import assemble
from repro.adapters.nvidia.nvml_dump import dump
from repro.adapters.probe import engine_facts, probe
from repro.adapters.process import Completed, SubprocessRunner
from repro.adapters.reading import Reading, silent
from repro.adapters.scrub import Scrubber
from repro.adapters.system import cpu_facts, os_facts
from repro.digest import pretty_json
from repro.host import Device, HostFacts, NvidiaDriver
from repro.image import EngineInfo
from repro.strictjson import loads
from tests.host.host_world import FIXTURES

UUID = "GPU-11111111-2222-3333-4444-555555555555"
MISMATCH = b"Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 565.57\n"


class FakeRunner:
    """Tools by name, each with answers by its arguments; None hangs."""

    def __init__(self, tools: Mapping[str, Mapping[tuple[str, ...], tuple[int, bytes] | None]]) -> None:
        self.tools = tools
        self.asked: list[tuple[str, ...]] = []

    def which(self, name: str) -> str | None:
        return f"/usr/bin/{name}" if name in self.tools else None

    def run(self, argv: Sequence[str], *, timeout_s: float = 30.0) -> Completed:
        self.asked.append(tuple(argv))
        answers = self.tools.get(Path(argv[0]).name, {})
        answer = answers.get(tuple(argv[1:]), (1, b""))
        if answer is None:
            return Completed(argv=tuple(argv), exit_code=None, ended="timed-out")
        return Completed(argv=tuple(argv), exit_code=answer[0], stdout=answer[1])


def write(root: Path, files: Mapping[str, str]) -> Path:
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return root


def fixture(name: str) -> tuple[int, bytes]:
    return 0, (FIXTURES / name).read_bytes()


def require_portable(facts: HostFacts) -> None:
    assert HostFacts.parse(loads(pretty_json(facts.tree()), where="facts")) == facts


def test_a_machine_with_nothing_is_a_cpu_machine(tmp_path: Path) -> None:
    runner = FakeRunner({})
    facts = probe(runner, root=tmp_path, environment={})
    assert facts.is_cpu_only() is True
    assert runner.asked == []
    assert {answer.kind for answer in facts.no_answer} == {"tool-missing"}
    assert facts.driver.nvidia is None
    assert facts.driver.amd is None
    require_portable(facts)


def test_this_machine_is_probed_quickly(capsys: pytest.CaptureFixture[str]) -> None:
    runner = SubprocessRunner()
    probe(runner)
    start = time.perf_counter()
    facts = probe(runner)
    spent = (time.perf_counter() - start) * 1000
    with capsys.disabled():
        sys.stdout.write(f"\nprobe of this machine: {spent:.1f} ms, {len(facts.devices)} devices\n")
    assert facts.os.kernel == os.uname().release
    require_portable(facts)


@pytest.mark.parametrize(("driver", "kind"), [(None, "driver-not-loaded"), ("nvidia", "device-access-lost")])
def test_a_device_on_the_bus_is_no_cpu_machine(tmp_path: Path, driver: str | None, kind: str) -> None:
    place = "sys/bus/pci/devices/0000:01:00.0"
    write(tmp_path, {f"{place}/vendor": "0x10de\n", f"{place}/class": "0x030200\n"})
    if driver:
        (tmp_path / "sys/bus/pci/drivers" / driver).mkdir(parents=True)
        (tmp_path / place / "driver").symlink_to(tmp_path / "sys/bus/pci/drivers" / driver)
    facts = probe(FakeRunner({}), root=tmp_path, environment={})
    assert facts.is_cpu_only() is None
    reason = facts.why_none("nvidia")
    assert reason is not None
    assert reason.kind == kind


def test_a_mismatch_still_finds_the_loaded_driver(tmp_path: Path) -> None:
    write(tmp_path, {"proc/driver/nvidia/version": (FIXTURES / "nvidia/proc-open.txt").read_text()})
    words: list[tuple[str, ...]] = [("-q", "-x"), ("-L",), (), ("topo", "-m")]
    runner = FakeRunner({"nvidia-smi": dict.fromkeys(words, (18, MISMATCH))})
    facts = probe(runner, root=tmp_path, environment={})
    driver = facts.driver.nvidia
    assert driver is not None
    assert (driver.version, driver.kernel_module, driver.nvml_version) == ("570.133.20", "open", "565.57")
    reason = facts.why_none("nvidia")
    assert reason is not None
    assert reason.kind == "driver-library-mismatch"
    assert facts.is_cpu_only() is None


def test_a_hanging_tool_is_its_own_kind(tmp_path: Path) -> None:
    facts = probe(FakeRunner({"rocminfo": {(): None}}), root=tmp_path, environment={})
    assert [answer.kind for answer in facts.no_answer if answer.source == "rocminfo"] == ["timed-out"]
    assert facts.is_cpu_only() is None


def test_an_nvidia_machine_keeps_raw_text_without_what_names_it(tmp_path: Path) -> None:
    answers = {
        ("-q", "-x"): fixture("nvidia/log-v12.xml"),
        ("-L",): (0, f"GPU 0: NVIDIA GeForce RTX 4090 (UUID: {UUID})\n".encode()),
        (): fixture("nvidia/table-forward-compat.txt"),
    }
    facts = probe(FakeRunner({"nvidia-smi": answers}), root=tmp_path, environment={})
    said = facts.model_dump_json()
    assert UUID.removeprefix("GPU-") not in said
    assert facts.devices[0].id == Scrubber().stable_id(UUID)
    assert f"id:{facts.devices[0].id}" in said
    listed = next(one for one in facts.evidence if one.command.endswith("-L"))
    assert (listed.exit_code, listed.cut) == (0, False)
    assert "NVIDIA GeForce RTX 4090" in listed.stdout
    revealed = probe(FakeRunner({"nvidia-smi": answers}), root=tmp_path, environment={}, reveal=True)
    assert UUID in revealed.model_dump_json()
    other = probe(FakeRunner({"nvidia-smi": answers}), root=tmp_path, environment={}, salt=b"mine")
    assert other.devices[0].id != facts.devices[0].id
    require_portable(facts)


def test_an_amd_machine_needs_no_tool(tmp_path: Path) -> None:
    node = "sys/class/kfd/kfd/topology/nodes"
    gpu = "simd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\ndomain 0\nlocation_id 17152\n"
    device = "sys/devices/pci0000:40/0000:43:00.0"
    write(
        tmp_path,
        {
            f"{node}/0/properties": "cpu_cores_count 64\nsimd_count 0\n",
            f"{node}/1/properties": gpu + "unique_id 1311768467463790320\n",
            f"{node}/1/gpu_id": "4711\n",
            "sys/module/amdgpu/initstate": "live\n",
            "proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
            "opt/rocm/.info/version": "6.2.4-120\n",
            f"{device}/vendor": "0x1002\n",
            f"{device}/device": "0x740f\n",
            f"{device}/mem_info_vram_total": "68702699520\n",
            f"{device}/unique_id": "123456789abcdef0\n",
            f"{device}/vbios_version": "113-D67301-063\n",
        },
    )
    (tmp_path / "sys/class/drm/card1").mkdir(parents=True)
    (tmp_path / "sys/class/drm/card1/device").symlink_to(tmp_path / device)
    facts = probe(FakeRunner({}), root=tmp_path, environment={"HSA_OVERRIDE_GFX_VERSION": "9.0.0"})
    amd = facts.driver.amd
    assert amd is not None
    assert (amd.version, amd.origin, amd.rocm) == ("6.8.0-45-generic", "in-tree", "6.2.4")
    [found] = facts.devices
    assert (found.arch, found.pci, found.memory_mib, found.compute_units) == (
        "gfx90a",
        "0000:43:00.0",
        65520,
        104,
    )
    assert found.id == Scrubber().stable_id("123456789abcdef0")
    assert "123456789abcdef0" not in facts.model_dump_json()
    assert "1311768467463790320" not in facts.model_dump_json()
    assert facts.overrides == {"HSA_OVERRIDE_GFX_VERSION": "9.0.0"}
    assert "gfx-override" in {note.kind for note in facts.notes}
    assert facts.conflicts == ()
    assert facts.is_cpu_only() is False


@pytest.mark.parametrize(
    ("files", "origin"),
    [
        ({"version": "6.7.0\n", "initstate": "live\n"}, "module"),
        ({"initstate": "live\n"}, "in-tree"),
        ({"parameters": ""}, "built-in"),
    ],
)
def test_where_the_amd_driver_comes_from(tmp_path: Path, files: dict[str, str], origin: str) -> None:
    write(tmp_path, {f"sys/module/amdgpu/{name}": text for name, text in files.items()})
    driver = probe(FakeRunner({}), root=tmp_path, environment={}).driver.amd
    assert driver is not None
    assert driver.origin == origin


def test_sources_that_disagree_are_both_kept() -> None:
    seen = [Device(vendor="nvidia", index=0, memory_mib=size) for size in (80, 81)]
    first = Reading(source="nvml", nvidia=NvidiaDriver(version="550.1"), devices=(seen[0],))
    second = Reading(
        source="table",
        rank=7,
        nvidia=NvidiaDriver(version="535.1"),
        devices=(seen[1], Device(vendor="nvidia", index=1)),
    )
    facts = assemble([second, first])
    assert facts.driver.nvidia is not None
    assert facts.driver.nvidia.version == "550.1", "the source of lower rank is believed"
    assert {
        conflict.fact: [(claim.source, claim.value) for claim in conflict.claims]
        for conflict in facts.conflicts
    } == {
        "driver.nvidia.version": [("nvml", "550.1"), ("table", "535.1")],
        "devices of nvidia": [("nvml", "1"), ("table", "2")],
        "nvidia device 0.memory_mib": [("nvml", "80"), ("table", "81")],
    }
    assert len(facts.devices) == 2


def test_devices_are_one_by_address_then_id_then_index() -> None:
    by_address = Device(vendor="amd", index=3, pci="0000:05:00.0", arch="gfx942")
    by_id = Device(vendor="amd", index=0, id="aa", name="x")
    both = Device(vendor="amd", index=7, pci="0000:05:00.0", id="AA")
    facts = assemble(
        [
            Reading(source="a", devices=(both,)),
            Reading(source="b", rank=1, devices=(by_address,)),
            Reading(source="c", rank=2, devices=(by_id,)),
        ]
    )
    [device] = facts.devices
    assert (device.index, device.arch, device.name) == (7, "gfx942", "x")


def test_a_cut_name_is_no_disagreement_and_another_one_is() -> None:
    whole = Reading(source="L", devices=(Device(vendor="nvidia", index=0, name="NVIDIA RTX 2080 SUPER"),))
    cut = Reading(
        source="table", rank=7, devices=(Device(vendor="nvidia", index=0, name_start="NVIDIA RTX 2080"),)
    )
    assert assemble([whole, cut]).conflicts == ()
    other = Reading(source="table", rank=7, devices=(Device(vendor="nvidia", index=0, name_start="Tesla"),))
    assert [conflict.fact for conflict in assemble([whole, other]).conflicts] == ["nvidia device 0.name"]


def test_devices_of_one_source_contradict_the_others_denial() -> None:
    facts = assemble(
        [silent("amd", "rocm-smi", "no-devices"), Reading(source="rocminfo", devices=(Device(vendor="amd"),))]
    )
    [conflict] = facts.conflicts
    assert {claim.source: claim.value for claim in conflict.claims} == {
        "rocm-smi": "no-devices",
        "rocminfo": "1",
    }


def test_scrubbing_leaves_nothing_of_serials_ids_and_names() -> None:
    scrubber = Scrubber(names=("node17.example", "node17"))
    text = (
        f"GPU 0 (UUID: {UUID}) on node17 at node17.example\n"
        "Serial Number                 : 1234567890123\n"
        '<serial>1234567890123</serial> "Serial Number": "1234567890123", ASIC_SERIAL: 0x1122334455667788\n'
        "unique_id 1311768467463790320\nGPU[0]\t\t: Unique ID: 0x1122334455667788\n"
        "/home/alice/train.py C:\\Users\\alice\\x\nalice is member of video group\nSerial Number : N/A\n"
    )
    clean = scrubber.text(text)
    for secret in (UUID[4:], "1234567890123", "1122334455667788", "1311768467463790320", "alice", "node17"):
        assert secret not in clean, secret
    assert "Serial Number : N/A" in clean
    assert clean.count(f"id:{scrubber.stable_id('1122334455667788')}") == 2
    assert scrubber.text(clean) == clean, "what is clean stays as it is"
    table = "name, serial, hostname\nNVIDIA A40, 1234567890123, node\nNVIDIA A40, [N/A], [N/A]\n"
    assert (
        scrubber.text(table)
        == "name, serial, hostname\nNVIDIA A40, [hidden], [hidden]\nNVIDIA A40, [N/A], [N/A]\n"
    )


def test_evidence_is_text_that_strict_json_carries() -> None:
    evidence = Scrubber().evidence("x\0y", 1, "a\x1b[4mb\ud800" + "e\u0301", "z" * 300_000)
    assert evidence.cut is True
    assert loads(pretty_json(evidence.tree()), where="evidence")["stdout"] == "a\ufffd[4mb\ufffd\u00e9"


def test_commands_run_in_the_c_locale_and_end_in_time(tmp_path: Path) -> None:
    runner = SubprocessRunner({"PATH": os.environ["PATH"], "LC_ALL": "de_DE.UTF-8"})
    answer = runner.run(["sh", "-c", 'printf "%s 40\\302\\260" "$LC_ALL"; exit 3'])
    assert (answer.stdout, answer.exit_code, answer.ended) == ("C 40°".encode(), 3, "exited")
    assert runner.run([str(tmp_path / "absent")]).exit_code == 127
    (tmp_path / "plain").write_text("x")
    assert runner.run([str(tmp_path / "plain")]).ended == "refused"
    assert runner.run(["sh", "-c", "kill -9 $$"]).exit_code == 137
    start = time.monotonic()
    late = runner.run(["sh", "-c", "sleep 60 & sleep 60"], timeout_s=0.3)
    assert (late.ended, late.exit_code) == ("timed-out", None)
    assert time.monotonic() - start < 20
    assert runner.which("sh")
    assert runner.which("no-such-tool-anywhere") is None


class _Nvml:
    """As much of `pynvml` as a driver in trouble shows."""

    class NVMLError(Exception):
        pass

    def __init__(self, trouble: str) -> None:
        self.trouble = trouble

    def nvmlInit(self) -> None:  # noqa: N802
        raise self.NVMLError(self.trouble)


@pytest.mark.parametrize(
    ("trouble", "kind"),
    [
        ("Driver/library version mismatch", "driver-library-mismatch"),
        ("Driver Not Loaded", "driver-not-loaded"),
        ("Insufficient Permissions", "permission-denied"),
        ("NVML Shared Library Not Found", "library-missing"),
        ("Unknown Error", "device-access-lost"),
        ("Timeout", "tool-failed"),
    ],
)
def test_nvml_says_why_it_cannot_start(trouble: str, kind: str) -> None:
    reading = nvidia.read_nvml(pretty_json(dump(_Nvml(trouble))).decode(), "nvml")
    assert [answer.kind for answer in reading.no_answer] == [kind]


class _OneDevice(_Nvml):
    """A library that knows little: most calls are not there."""

    def nvmlInit(self) -> None:  # noqa: N802
        pass

    def nvmlSystemGetDriverVersion(self) -> bytes:  # noqa: N802
        return b"470.57.02"

    def nvmlSystemGetCudaDriverVersion_v2(self) -> int:  # noqa: N802
        return 11040

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return 2

    def nvmlDeviceGetHandleByIndex(self, index: int) -> int:  # noqa: N802
        if index:
            raise self.NVMLError("GPU is lost")
        return index

    def nvmlDeviceGetName(self, handle: int) -> str:  # noqa: N802
        return "Tesla T4"

    def nvmlDeviceGetCudaComputeCapability(self, handle: int) -> tuple[int, int]:  # noqa: N802
        return 7, 5


def test_nvml_gives_what_it_has() -> None:
    reading = nvidia.read_nvml(pretty_json(dump(_OneDevice(""))).decode(), "nvml")
    assert reading.nvidia == NvidiaDriver(version="470.57.02", cuda="11.4")
    first, second = reading.devices or ()
    assert (first.name, first.arch, first.mig, first.memory_mib) == ("Tesla T4", "sm_75", None, None)
    assert (second.name, second.state) == (None, "error")


def test_processor_and_system() -> None:
    files = {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Xeon\nmicrocode\t: 0x1\n"
        "physical id\t: 0\ncore id\t\t: 0\nflags\t\t: fpu avx2 avx512f amx_bf16 hypervisor\n\n"
        "processor\t: 1\nphysical id\t: 0\ncore id\t\t: 0\n",
        "proc/meminfo": "MemTotal:       16384000 kB\nMemFree: 1 kB\n",
        "proc/sys/kernel/osrelease": "6.6.114.1-microsoft-standard-WSL2\n",
        "etc/os-release": 'NAME="Debian"\nPRETTY_NAME="Debian GNU/Linux 12 (bookworm)"\n',
        ".dockerenv": "",
    }
    cpu = cpu_facts(files, architecture="x86_64", usable_threads=2, numa_nodes=1)
    assert cpu.flags == ("amx_bf16", "avx2", "avx512f")
    assert (cpu.vendor, cpu.sockets, cpu.cores, cpu.threads, cpu.memory_mib) == (
        "GenuineIntel",
        1,
        1,
        2,
        16000,
    )
    system = os_facts(files, libc="glibc 2.36")
    assert (system.wsl, system.hypervisor, system.container) == (True, True, "docker")
    assert system.name == "Debian GNU/Linux 12 (bookworm)"
    text = "processor\t: 0\nFeatures\t: fp asimd sve\nCPU implementer\t: 0x41\nCPU part\t: 0xd40\n"
    arm = cpu_facts({"proc/cpuinfo": text})
    assert (arm.vendor, arm.model, arm.flags, arm.cores) == ("0x41", "0xd40", ("asimd", "sve"), None)
    assert cpu_facts({}).flags is None
    assert os_facts({}).wsl is None


def test_an_engine_s_address_stays_out_of_the_facts() -> None:
    info = EngineInfo(
        name="docker",
        version="28.5.2",
        store="containerd",
        host="tcp://10.0.0.1:2376",
        rootless=False,
        data_root=None,
        driver="overlayfs",
        runtime="runc",
        runtimes=("nvidia", "runc"),
    )
    facts = engine_facts(info)
    assert "10.0.0.1" not in facts.model_dump_json()
    assert (facts.driver, facts.runtime, facts.runtimes) == ("overlayfs", "runc", ("nvidia", "runc"))
