"""Every form of every tool's answer, in texts of our own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from repro.adapters import amd, nvidia
from repro.adapters.amd.kfd import read_topology
from repro.adapters.amd.values import gfx_of_number
from repro.adapters.nvidia.branches import native_cuda
from repro.adapters.torchenv import read_collect_env
from repro.noun import Noun
from tests.host.host_world import read_fixture


def said(noun: Noun) -> dict[str, Any]:
    """What a noun states, without what it leaves open."""
    return noun.model_dump(exclude_none=True, exclude_defaults=True)


NVIDIA_DRIVERS: dict[str, dict[str, str]] = {
    "table-418.txt": {"version": "418.87.01", "cuda": "10.1", "smi_version": "418.87.01"},
    "table-346.txt": {"version": "346.96", "smi_version": "346.96"},
    "table-windows-512.txt": {"version": "512.95", "cuda": "11.6", "smi_version": "512.95"},
    "table-vgpu-manager.txt": {"version": "535.129.03", "smi_version": "535.129.03"},
    "query-nounits.csv": {"version": "570.133.20"},
    "log-570.txt": {"version": "570.124.06", "cuda": "12.8"},
    "log-v12.xml": {"version": "572.16", "cuda": "12.8"},
    "versions-550.txt": {
        "version": "550.90.07",
        "cuda": "12.4",
        "smi_version": "550.90.07",
        "nvml_version": "550.90",
    },
    "proc-open.txt": {"version": "570.133.20", "kernel_module": "open"},
    "proc-proprietary.txt": {"version": "535.161.07", "kernel_module": "proprietary"},
    "nvml.json": {"version": "575.57.08", "cuda": "12.9"},
}


@pytest.mark.parametrize("name", NVIDIA_DRIVERS)
def test_nvidia_driver(name: str) -> None:
    driver = read_fixture(f"nvidia/{name}").nvidia
    assert driver is not None
    assert said(driver) == NVIDIA_DRIVERS[name]


DEVICES: dict[str, Any] = json.loads(
    (Path(__file__).parent / "expected_devices.json").read_text(encoding="utf-8")
)
"""Fixture to its devices, with all they state and nothing else."""


@pytest.mark.parametrize("name", DEVICES)
def test_devices(name: str) -> None:
    devices = read_fixture(name).devices or ()
    assert json.loads(json.dumps([said(device) for device in devices])) == DEVICES[name]


def test_nvidia_topology() -> None:
    assert [(link.first, link.second, link.kind) for link in read_fixture("nvidia/topology.txt").links] == [
        (0, 1, "NV18")
    ]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 565.57\n",
            "driver-library-mismatch",
        ),
        ("NVIDIA-SMI has failed because it couldn't communicate with NVIDIA driver.\n", "driver-not-loaded"),
        ("Failed to initialize NVML: Driver Not Loaded\n", "driver-not-loaded"),
        ("Failed to initialize NVML: Unknown Error", "device-access-lost"),
        ("Failed to initialize NVML: GPU access blocked by the operating system\n", "device-access-lost"),
        ("Failed to initialize NVML: Insufficient Permissions\n", "permission-denied"),
        ("bash: /usr/bin/nvidia-smi: Permission denied\n", "permission-denied"),
        ("No devices were found\n", "no-devices"),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.\n", "library-missing"),
        (
            "Unable to determine the device handle for GPU 0000:02:00.0: GPU is lost.  Reboot the system\n",
            "gpu-error-state",
        ),
        ("Unable to determine the device handle for GPU0000:89:00.0: Unknown Error\n", "gpu-error-state"),
        ("/bin/sh: 1: nvidia-smi: not found\n", "tool-missing"),
        ("'nvidia-smi' is not recognized as an internal or external command,\n", "tool-missing"),
        ("zsh: command not found: nvidia-smi\n", "tool-missing"),
        ("Failed to initialize NVML: N/A\n", "tool-failed"),
        ('Field "compute_cap" is not a valid field to query.\n', "tool-failed"),
        ("Segmentation fault (core dumped)\n", "tool-failed"),
        ("", "unreadable"),
        ("something else entirely\n", "unreadable"),
        ('<?xml version="1.0" ?>\n<nvidia_smi_log>\n<driver_version>550.1</driver', "unreadable"),
    ],
)
def test_nvidia_gives_no_answer(text: str, kind: str) -> None:
    reading = nvidia.read(text)
    assert [answer.kind for answer in reading.no_answer] == [kind]
    assert not reading.devices


def test_a_mismatch_still_names_the_library() -> None:
    text = "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 565.57\n"
    driver = nvidia.read(text).nvidia
    assert driver is not None
    assert (driver.version, driver.nvml_version) == (None, "565.57")


@pytest.mark.parametrize(
    ("exit_code", "kind"), [(126, "permission-denied"), (127, "tool-missing"), (1, "unreadable")]
)
def test_the_shell_s_codes_speak_where_the_text_does_not(exit_code: int, kind: str) -> None:
    assert nvidia.read("", exit_code=exit_code).no_answer[0].kind == kind


def test_one_lost_device_stands_beside_the_others() -> None:
    lost = "Unable to determine the device handle for GPU 0000:83:00.0: GPU is lost.\n"
    text = f"GPU 0: NVIDIA A40 (UUID: GPU-1)\n{lost}"
    reading = nvidia.read(text)
    assert len(reading.devices or ()) == 1
    assert [answer.kind for answer in reading.no_answer] == ["gpu-error-state"]


@pytest.mark.parametrize(
    ("driver", "cuda"),
    [
        ("535.183.06", "12.2"),
        ("550.54.14", "12.4"),
        ("551.61", "12.4"),
        ("572.16", "12.8"),
        ("580.95.05", "13.0"),
        ("418.87.01", "10.1"),
        ("300.1", None),
        ("900.1", None),
        ("x", None),
        (None, None),
    ],
)
def test_native_cuda(driver: str | None, cuda: str | None) -> None:
    assert native_cuda(driver) == cuda


AMD_DRIVERS: dict[str, dict[str, str]] = {
    "static-6.1.json": {"version": "6.7.0"},
    "static-7.0.json": {"version": "6.8.0-60-generic", "origin": "in-tree"},
    "static-6.4.txt": {"version": "6.14.14"},
    "version-6.4.txt": {
        "version": "6.10.5",
        "rocm": "6.4.1",
        "smi_tool": "25.4.2+aca1101",
        "smi_library": "25.4.0",
    },
    "version-6.1.json": {"rocm": "6.1.3", "smi_tool": "24.5.1+c5106a9", "smi_library": "24.5.2.0"},
    "table-7.0.txt": {"origin": "in-tree", "rocm": "7.0.2", "smi_tool": "26.0.2+39589fda"},
    "table-7.2.txt": {
        "version": "6.16.13-2",
        "rocm": "7.2.0",
        "smi_tool": "26.2.1+ebe22b59",
    },
    "rocm-smi-6.2.json": {"version": "6.8.0-45-generic", "origin": "in-tree"},
    "rocminfo-mi300x-dpx.txt": {"version": "6.10.5", "hsa_runtime": "1.14"},
}


@pytest.mark.parametrize("name", AMD_DRIVERS)
def test_amd_driver(name: str) -> None:
    driver = read_fixture(f"amd/{name}").amd
    assert driver is not None
    assert said(driver) == AMD_DRIVERS[name]


def test_rocminfo_notices_wsl() -> None:
    system = read_fixture("amd/rocminfo-wsl.txt").os
    assert system is not None
    assert system.wsl is True


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("ERROR:root:Driver not initialized (amdgpu not found in modules)\n", "driver-not-loaded"),
        ("ROCk module is NOT loaded, possibly no GPU devices\n", "driver-not-loaded"),
        (
            "ROCk module is loaded\nUnable to open /dev/kfd read-write: Permission denied\n",
            "permission-denied",
        ),
        ("AMDSMI_STATUS_NO_PERM - Permission Denied\n", "permission-denied"),
        (
            "ROCk module is loaded\nUnable to open /dev/kfd read-write: No such file or directory\n",
            "device-access-lost",
        ),
        ("WARNING: No AMD GPUs specified\n", "no-devices"),
        ("ERROR: Unable to detect any GPU devices, check amdgpu version and module status\n", "no-devices"),
        (
            "OSError: libamd_smi.so: cannot open shared object file: No such file or directory\n",
            "library-missing",
        ),
        ("bash: rocm-smi: command not found\n", "tool-missing"),
        ("hsa api call failure at: /src/rocminfo.cc:1282\n", "tool-failed"),
        ("Traceback (most recent call last):\n", "tool-failed"),
        ('[\n    {\n        "gpu": 0,\n', "unreadable"),
        ('{"card0": {"Device ID": "0x1', "unreadable"),
        ("", "unreadable"),
    ],
)
def test_amd_gives_no_answer(text: str, kind: str) -> None:
    reading = amd.read(text, "amd-smi")
    assert [answer.kind for answer in reading.no_answer] == [kind]
    assert not reading.devices


@pytest.mark.parametrize(
    ("number", "arch"),
    [
        (90010, "gfx90a"),
        (90402, "gfx942"),
        (90500, "gfx950"),
        (110000, "gfx1100"),
        (100302, "gfx1032"),
        (120001, "gfx1201"),
        (0, None),
        (91600, None),
    ],
)
def test_gfx_of_number(number: int, arch: str | None) -> None:
    assert gfx_of_number(number) == arch


def test_kfd_reads_memory_and_links() -> None:
    gpu = (
        "cpu_cores_count 0\nsimd_count 416\nsimd_per_cu 4\ngfx_target_version 90010\ndomain 0\n"
        "location_id {}\nunique_id {}\n"
    )
    nodes = {
        0: {"properties": "cpu_cores_count 64\nsimd_count 0\n", "gpu_id": "0\n"},
        4: {
            "properties": gpu.format(17152, 5),
            "gpu_id": "77\n",
            "mem_banks/0/properties": "heap_type 1\nsize_in_bytes 68702699520\n",
            "io_links/0/properties": "type 11\nnode_from 4\nnode_to 9\n",
        },
        9: {
            "properties": gpu.format(25344, 6),
            "gpu_id": "78\n",
            "io_links/0/properties": "type 11\nnode_to 4\n",
        },
    }
    reading = read_topology(nodes)
    assert [(device.pci, device.memory_mib, device.compute_units) for device in reading.devices or ()] == [
        ("0000:43:00.0", 65520, 104),
        ("0000:63:00.0", None, 104),
    ]
    assert [(link.first, link.second, link.kind) for link in reading.links] == [(0, 1, "XGMI")]
    assert reading.cpu is not None
    assert reading.cpu.numa_nodes == 1


def test_kfd_without_devices_says_so() -> None:
    reading = read_topology({0: {"properties": "cpu_cores_count 8\nsimd_count 0\n"}})
    assert [answer.kind for answer in reading.no_answer] == ["no-devices"]


def test_collect_env_of_a_processor_build() -> None:
    reading = read_fixture("torch/collect-cpu.txt")
    assert reading.userspace is not None
    assert said(reading.userspace) == {
        "backend": "cpu",
        "python": "3.11.2",
        "os": "Debian GNU/Linux 12 (bookworm) (x86_64)",
        "libc": "glibc-2.36",
        "torch": "2.13.0+cpu",
        "torch_distribution": "2.13.0+cpu",
        "packages": {"numpy": "2.3.1", "torch": "2.13.0+cpu"},
    }
    assert reading.cpu is not None
    assert said(reading.cpu) == {
        "architecture": "x86_64",
        "vendor": "GenuineIntel",
        "model": "Intel(R) Xeon(R) Gold 6346 CPU @ 3.10GHz",
        "threads": 32,
    }


def test_collect_env_counts_devices_but_not_their_parts() -> None:
    reading = read_fixture("torch/collect-many.txt")
    userspace = reading.userspace
    assert userspace is not None
    assert len(userspace.devices or ()) == 2
    assert (userspace.backend, userspace.cuda_build, userspace.cuda_runtime) == ("cuda", "12.1", "12.4.131")
    assert userspace.cudnn is None, "several libraries are named, none is known to be loaded"
    assert [note.kind for note in reading.notes] == ["version-differs-from-distribution"]


def test_collect_env_as_a_terminal_leaves_it() -> None:
    reading = read_collect_env(
        "Collecting environment information...      PyTorch version: 2.7.0.dev20250123+rocm6.3\n"
    )
    assert reading.userspace is not None
    assert reading.userspace.torch == "2.7.0.dev20250123+rocm6.3"


def test_the_board_s_id_is_not_the_device_s() -> None:
    row = "0       [0x471e : 0xc8]       42.0C  6.0W   N/A, N/A        0Mhz    96Mhz   0%    auto\n"
    text = "Device  [Model : Revision]    Temp    Power  Partitions      SCLK    MCLK    Fan  Perf\n" + row
    [device] = amd.read(text + "ROCm System Management Interface\n", "rocm-smi").devices or ()
    assert (device.pci_device_id, device.pci_subsystem_id) == (None, "0x471e")


def test_rocm_smi_names_the_kernel_as_driver() -> None:
    text = "device,Driver version\ncardsystem,4.18.0-348.12.2.el8_5.x86_64\n"
    driver = amd.read(text, "rocm-smi").amd
    assert driver is not None
    assert (driver.version, driver.origin) == ("4.18.0-348.12.2.el8_5.x86_64", "in-tree")


def test_xml_declares_no_entity() -> None:
    bomb = '<!DOCTYPE x [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]>\n'
    text = f"{bomb}<nvidia_smi_log><driver_version>&b;</driver_version></nvidia_smi_log>\n"
    assert [answer.kind for answer in nvidia.read(text).no_answer] == ["unreadable"]
