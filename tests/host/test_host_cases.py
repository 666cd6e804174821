"""Family A of the shared cases: real outputs of tools, and the facts that must come out of them.

The cases are not part of this repository: `../shared/cases`, or the folder that
`REPRO_CASES` names. This file is the one place where their words are ours.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from repro.adapters import amd, nvidia
from repro.adapters.amd.kfd import read_topology
from repro.adapters.assemble import assemble
from repro.adapters.cells import decode, pci_address
from repro.adapters.reading import Reading
from repro.adapters.torchenv import read_collect_env
from repro.host import AmdDriver, Device, HostFacts, NvidiaDriver

CASES = Path(os.environ.get("REPRO_CASES") or Path(__file__).parents[3] / "shared" / "cases")
FOLDERS = sorted(folder for folder in CASES.glob("A*") if (folder / "expected.json").is_file())

ABOUT = {"id", "family", "provenance", "notes", "vendor"}
"""Members of `expected.json` that state no fact of the machine."""

BESIDE = {"expected.json", "exit_codes.json", "command.txt"}
"""Files that are no tool's output."""

OUR_KINDS = {
    "access-lost": "device-access-lost",
    "device-in-error": "gpu-error-state",
    "driver-mismatch": "driver-library-mismatch",
    "insufficient-permissions": "permission-denied",
    "no-device": "no-devices",
    "nvml-mismatch": "driver-library-mismatch",
    "tool-absent": "tool-missing",
}
"""Their word for a kind, where it is not ours."""


def kfd_nodes(folder: Path) -> dict[int, dict[str, str]]:
    nodes: dict[int, dict[str, str]] = {}
    for path in folder.rglob("*"):
        if path.is_file():
            number, *rest = path.relative_to(folder / "topology" / "nodes").parts
            nodes.setdefault(int(number), {})["/".join(rest)] = decode(path.read_bytes())
    return nodes


def reading_of(path: Path, vendor: str | None, exit_code: int | None = None) -> Reading:
    text = decode(path.read_bytes())
    name = path.name
    if name.startswith("collect_env"):
        return read_collect_env(text)
    tool = next(
        (tool for tool in ("amd-smi", "rocm-smi", "rocminfo", "nvidia-smi") if name.startswith(tool)), None
    )
    if tool in ("amd-smi", "rocm-smi", "rocminfo") or (tool is None and vendor == "amd"):
        return amd.read(text, tool or "amd-smi", exit_code=exit_code)
    assert tool == "nvidia-smi" or vendor == "nvidia", f"{name}: no reader"
    return nvidia.read(text, tool or "nvidia-smi", exit_code=exit_code)


def files_of(folder: Path) -> list[Path]:
    return [path for path in sorted(folder.iterdir()) if path.is_file() and path.name not in BESIDE]


def facts_of(folder: Path, vendor: str | None) -> HostFacts:
    readings = [reading_of(path, vendor) for path in files_of(folder)]
    if (folder / "kfd").is_dir():
        readings.append(read_topology(kfd_nodes(folder / "kfd")))
    return assemble(readings)


def driver_version(facts: HostFacts) -> str | None:
    return (facts.driver.nvidia or NvidiaDriver()).version or (facts.driver.amd or AmdDriver()).version


def gpu_count(facts: HostFacts) -> int | None:
    if facts.devices:
        return len(facts.devices)
    if facts.userspace.devices is not None:
        return len(facts.userspace.devices)
    return 0 if any(answer.kind == "no-devices" for answer in facts.no_answer) else None


def visible(facts: HostFacts) -> list[Device]:
    """One entry for each part, as a program counts devices."""
    return [device for device in facts.devices for _ in range(max(1, len(device.partitions)))]


def name_of(device: Device) -> str | None:
    return device.name or (f"{device.name_start}..." if device.name_start else None)


def one(values: list[Any]) -> Any:
    """The value that all devices share."""
    assert len(set(values)) <= 1, values
    return values[0] if values else None


def switch_word(value: bool | None) -> str:
    return "N/A" if value is None else "Enabled" if value else "Disabled"


def names(facts: HostFacts) -> list[str | None]:
    if facts.devices:
        return [name_of(device) for device in facts.devices]
    return [device.name for device in facts.userspace.devices or ()]


def targets(facts: HostFacts) -> Any:
    if facts.userspace.model:
        return facts.userspace.model.arch
    return [device.arch for device in visible(facts)]


def kinds(facts: HostFacts) -> set[str]:
    found: set[str] = {note.kind for note in facts.notes} | {answer.kind for answer in facts.no_answer}
    return found | ({"tools-disagree"} if facts.conflicts else set())


def reason(facts: HostFacts) -> str | None:
    return next((said.kind for vendor in ("nvidia", "amd") if (said := facts.why_none(vendor))), None)


def deciding_source(facts: HostFacts) -> str:
    return next(
        claim.source for conflict in facts.conflicts for claim in conflict.claims if claim.value.isdigit()
    )


def environment(facts: HostFacts) -> str | None:
    return "wsl" if facts.os.wsl else facts.os.container


FACTS: dict[str, Callable[[HostFacts], Any]] = {
    "amdsmi_library": lambda facts: facts.driver.amd and facts.driver.amd.smi_library,
    "amdsmi_tool": lambda facts: facts.driver.amd and facts.driver.amd.smi_tool,
    "backend": lambda facts: facts.userspace.backend,
    "compute_partition": lambda facts: one([device.compute_partition for device in facts.devices]),
    "compute_units": lambda facts: one([device.compute_units for device in facts.devices]),
    "cpu_nodes": lambda facts: facts.cpu.numa_nodes,
    "cuda_build": lambda facts: facts.userspace.cuda_build,
    "cuda_driver_version": lambda facts: facts.driver.nvidia and facts.driver.nvidia.cuda,
    "cuda_runtime": lambda facts: facts.userspace.cuda_runtime,
    "cudnn": lambda facts: facts.userspace.cudnn,
    "device_id": lambda facts: int(one([device.pci_device_id for device in facts.devices]), 16),
    "device_ids": lambda facts: [
        device.pci_device_id or device.pci_subsystem_id for device in visible(facts)
    ],
    "driver_version": driver_version,
    "environment": environment,
    "error_gpus": lambda facts: [device.index for device in facts.devices if device.state == "error"],
    "gfx": targets,
    "gpu_count": gpu_count,
    "gpu_names": names,
    "gpu_nodes_in_fixture": lambda facts: len(visible(facts)),
    "hip_build": lambda facts: facts.userspace.hip_build,
    "hip_runtime": lambda facts: facts.userspace.hip_runtime,
    "memory_mib": lambda facts: one([device.memory_mib for device in facts.devices]),
    "memory_partition": lambda facts: one([device.memory_partition for device in facts.devices]),
    "mig": lambda facts: switch_word(one([device.mig for device in facts.devices])),
    "mig_device_count": lambda facts: sum(len(device.partitions) for device in facts.devices),
    "mig_devices": lambda facts: [part.profile for device in facts.devices for part in device.partitions],
    "miopen": lambda facts: facts.userspace.miopen,
    "name": lambda facts: one([name_of(device) for device in facts.devices]),
    "native_cuda_of_driver": lambda facts: facts.driver.nvidia and facts.driver.nvidia.cuda_native,
    "nvml_version": lambda facts: facts.driver.nvidia and facts.driver.nvidia.nvml_version,
    "packages": lambda facts: facts.userspace.packages,
    "pci_bus_ids": lambda facts: [(device.pci or "").split(":")[1].upper() for device in facts.devices],
    "physical_gpus_in_fixture": lambda facts: len(facts.devices),
    "python": lambda facts: facts.userspace.python,
    "rocm_install_hint": lambda facts: facts.driver.amd and facts.driver.amd.rocm_path,
    "rocm_version": lambda facts: facts.driver.amd and facts.driver.amd.rocm,
    "smi_version": lambda facts: facts.driver.nvidia and facts.driver.nvidia.smi_version,
    "source": deciding_source,
    "torch_distribution": lambda facts: facts.userspace.torch_distribution,
    "torch_version": lambda facts: facts.userspace.torch,
    "uuids_missing": lambda facts: sum(device.id is None for device in facts.devices),
    "virtualization": lambda facts: one([device.virtualization for device in facts.devices]),
    "virtualized": lambda facts: all(device.virtualization not in (None, "None") for device in facts.devices),
}
"""Member of `expected.json` to the same fact in our words."""

DEVICE_FACTS: dict[str, Callable[[Device], Any]] = {
    "driver_model": lambda device: device.driver_model,
    "gfx": lambda device: device.arch,
    "index": lambda device: device.index,
    "memory_mib": lambda device: device.memory_mib,
    "mig": lambda device: switch_word(device.mig),
    "mig_device_count": lambda device: len(device.partitions),
    "name": name_of,
    "pci_bus_id": lambda device: device.pci,
    "virtualization": lambda device: device.virtualization,
}


def require_device(device: Device, expected: dict[str, Any]) -> None:
    for key, value in expected.items():
        assert key in DEVICE_FACTS, f"gpus[].{key} is not mapped"
        wanted = pci_address(value) if key == "pci_bus_id" else value
        assert DEVICE_FACTS[key](device) == wanted, key


def require_fact(facts: HostFacts, key: str, value: Any) -> None:
    if key in ("warning", "note_kind"):
        assert OUR_KINDS.get(value, value) in kinds(facts), kinds(facts)
    elif key == "error":
        assert reason(facts) == OUR_KINDS.get(value, value)
    elif key == "must_not_contain":
        said = facts.model_copy(update={"evidence": ()}).model_dump_json(exclude_none=True)
        values = [text for text in walk(json.loads(said)) if isinstance(text, str)]
        assert not [text for text in values for part in value if part in text]
    elif key == "gpus":
        assert len(facts.devices) == len(value)
        for device, expected in zip(facts.devices, value, strict=True):
            require_device(device, expected)
    elif key == "name" and facts.devices and value is not None:
        # The concise table of rocm-smi cuts names at 20 characters; another source may have the rest.
        assert all((name_of(device) or "").startswith(value) for device in facts.devices), names(facts)
    else:
        assert key in FACTS, f"{key} is not mapped"
        assert FACTS[key](facts) == value, key


def walk(tree: Any) -> list[Any]:
    if isinstance(tree, dict):
        return [leaf for value in tree.values() for leaf in walk(value)]
    if isinstance(tree, list):
        return [leaf for value in tree for leaf in walk(value)]
    return [tree]


def test_the_cases_are_at_hand() -> None:
    if not FOLDERS:
        pytest.skip(f"no shared cases below {CASES}")
    assert len(FOLDERS) >= 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda folder: folder.name)
def test_a_case_gives_its_facts(folder: Path) -> None:
    expected = json.loads((folder / "expected.json").read_text(encoding="utf-8"))
    vendor = expected.get("vendor")
    if "errors" in expected:
        require_errors(folder, vendor, expected.pop("errors"))
        assert set(expected) <= ABOUT
        return
    facts = facts_of(folder, vendor)
    for key, value in expected.items():
        if key not in ABOUT:
            require_fact(facts, key, value)


def require_errors(folder: Path, vendor: str | None, expected: dict[str, str]) -> None:
    codes = json.loads((folder / "exit_codes.json").read_text(encoding="utf-8"))
    paths = {path.name.partition(".")[0]: path for path in files_of(folder)}
    for name, kind in expected.items():
        facts = assemble([reading_of(paths[name], vendor, codes.get(name))])
        assert reason(facts) == OUR_KINDS.get(kind, kind), name
        assert facts.is_cpu_only() is None, "one vendor's silence says nothing of the other's"
        # Exit codes alone decide nothing: the text says the same without them.
        assert reason(assemble([reading_of(paths[name], vendor)])) == OUR_KINDS.get(kind, kind), name
