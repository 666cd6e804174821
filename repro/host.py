"""What a machine is: the facts that decide whether two runs may be compared.

The host's driver and the userspace the run used are two fields, always. Null
means unknown; it never means absent or zero. `docs/host.md` is the page.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from repro.noun import Noun
from repro.userspace import Userspace

__all__ = [
    "AmdDriver",
    "Claim",
    "Conflict",
    "CpuFacts",
    "Device",
    "EngineFacts",
    "Evidence",
    "HostDriver",
    "HostFacts",
    "Link",
    "NoAnswer",
    "NoAnswerKind",
    "Note",
    "NoteKind",
    "NvidiaDriver",
    "OsFacts",
    "Partition",
    "Vendor",
]

Vendor = Literal["nvidia", "amd"]

NoAnswerKind = Literal[
    "tool-missing",
    "no-devices",
    "driver-not-loaded",
    "device-access-lost",
    "driver-library-mismatch",
    "gpu-error-state",
    "permission-denied",
    "library-missing",
    "timed-out",
    "tool-failed",
    "unreadable",
]
"""Why a source said nothing. Only `tool-missing`, from all of them, may mean a CPU machine."""

NoteKind = Literal[
    "cuda-forward-compat",
    "driver-version-absent",
    "gfx-override",
    "gpu-error-state",
    "packages-unknown",
    "tool-differs-from-driver",
    "version-differs-from-distribution",
]


class NoAnswer(Noun):
    """A source that could not say what it is asked, and how it put it."""

    vendor: Vendor
    source: str
    kind: NoAnswerKind
    said: str | None = None
    """The line that shows it, scrubbed; null where there was nothing to quote."""


class Note(Noun):
    """Something a person should know about the facts."""

    kind: NoteKind
    message: str


class Claim(Noun):
    """What one source says."""

    source: str
    value: str


class Conflict(Noun):
    """Sources that disagree. The first claim is the one that the facts carry."""

    fact: str
    claims: tuple[Claim, ...]


class Evidence(Noun):
    """What was run or read, and what came back, scrubbed."""

    command: str
    exit_code: int | None
    """Null for a file that was read, and for a command that was killed."""
    stdout: str
    stderr: str = ""
    cut: bool = False
    """True where text beyond the limit was left out."""


class Partition(Noun):
    """A part of a device that programs see as a device: an NVIDIA MIG device, or an AMD partition."""

    kind: Literal["mig", "xcp"]
    index: int | None = None
    profile: str | None = None
    """MIG profile such as `3g.40gb`, or compute partition mode such as `CPX`."""
    memory_mib: int | None = None
    compute_units: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None
    id: str | None = None
    """Stable salted id; see `Device.id`."""


class Device(Noun):
    """One physical accelerator."""

    vendor: Vendor
    index: int | None = None
    """Place in the vendor tool's own order."""
    name: str | None = None
    name_start: str | None = None
    """How the name begins, where the only source cuts it."""
    arch: str | None = None
    """`sm_90`, `gfx942`."""
    features: tuple[str, ...] | None = None
    """Target features, `sramecc+`, `xnack-`."""
    generation: str | None = None
    """The vendor's name of the generation, such as `Hopper`."""
    memory_mib: int | None = None
    compute_units: int | None = None
    """Streaming multiprocessors or compute units of the whole device."""
    pci: str | None = None
    """`domain:bus:device.function`, lower case, four digits of domain where they suffice."""
    pci_device_id: str | None = None
    """`0x74a1`."""
    pci_subsystem_id: str | None = None
    """The board's id, which is not the device's."""
    id: str | None = None
    """The vendor's unique id under a salt: one device, one id, and nothing else to learn from it."""
    state: Literal["ok", "error"] | None = None
    mig: bool | None = None
    ecc: bool | None = None
    compute_partition: str | None = None
    """`SPX`, `DPX`, `QPX`, `CPX`."""
    memory_partition: str | None = None
    """`NPS1`, `NPS4`."""
    virtualization: str | None = None
    """`None`, `Pass-Through`, `VGPU`, `Host VGPU`, as NVIDIA says it; `SR-IOV VF`."""
    driver_model: str | None = None
    """Windows only: `WDDM`, `TCC`, `MCDM`."""
    vbios: str | None = None
    persistence: bool | None = None
    compute_mode: str | None = None
    power_limit_mw: int | None = None
    application_graphics_mhz: int | None = None
    application_memory_mhz: int | None = None
    max_graphics_mhz: int | None = None
    max_memory_mhz: int | None = None
    auto_boost: bool | None = None
    pcie_generation: int | None = None
    """Highest that device and slot allow, as is `pcie_width`, in lanes."""
    pcie_width: int | None = None
    numa_node: int | None = None
    partitions: tuple[Partition, ...] = ()


class Link(Noun):
    """How two devices reach each other."""

    vendor: Vendor
    first: int
    second: int
    kind: str
    """NVIDIA's `NV18`, `PIX`, `NODE`, `SYS`; AMD's `XGMI`, `PCIE`."""


class NvidiaDriver(Noun):
    """NVIDIA's driver on the host."""

    version: str | None = None
    """The kernel mode driver, which containers share; under WSL the Windows driver."""
    cuda: str | None = None
    """CUDA version of the `libcuda` that was loaded where the tool ran."""
    cuda_native: str | None = None
    """CUDA version this driver branch came with. An older one than `cuda` means a compat layer."""
    smi_version: str | None = None
    nvml_version: str | None = None
    kernel_module: Literal["open", "proprietary"] | None = None
    container_toolkit: str | None = None


class AmdDriver(Noun):
    """AMD's driver on the host, and the release of the tools beside it."""

    version: str | None = None
    """Version of the module; of the kernel, where the driver is the kernel's own and the tool says so."""
    origin: Literal["module", "in-tree", "built-in"] | None = None
    """Installed apart from the kernel; the kernel's own module; compiled into the kernel."""
    rocm: str | None = None
    """ROCm release of the tools."""
    rocm_path: str | None = None
    """Release that a path in a tool's output names: a hint, weaker than `rocm`."""
    smi_tool: str | None = None
    smi_library: str | None = None
    hsa_runtime: str | None = None


class HostDriver(Noun):
    """Drivers in the kernel, the same for every container."""

    nvidia: NvidiaDriver | None = None
    amd: AmdDriver | None = None


class CpuFacts(Noun):
    """The processor, as the kernel shows it."""

    architecture: str | None = None
    vendor: str | None = None
    model: str | None = None
    flags: tuple[str, ...] | None = None
    """Only the flags that decide which kernels run, sorted."""
    sockets: int | None = None
    cores: int | None = None
    threads: int | None = None
    usable_threads: int | None = None
    """Threads this process may run on."""
    numa_nodes: int | None = None
    microcode: str | None = None
    memory_mib: int | None = None


class OsFacts(Noun):
    """The operating system around the tool that asked."""

    name: str | None = None
    """`PRETTY_NAME` of os-release."""
    kernel: str | None = None
    libc: str | None = None
    container: str | None = None
    """`docker`, `podman`, `kubernetes`, `lxc`; null where there is no sign of one."""
    wsl: bool | None = None
    hypervisor: bool | None = None


class EngineFacts(Noun):
    """The container engine."""

    name: str
    version: str
    store: str
    """`graphdriver`, `containerd` or `podman`: where its image ids come from."""
    driver: str | None = None
    """Storage driver or snapshotter."""
    runtime: str | None = None
    """Runtime of containers that ask for none."""
    runtimes: tuple[str, ...] = ()
    rootless: bool | None = None


class HostFacts(Noun):
    """Everything known of one machine."""

    format: Literal["repro-host/1"] = "repro-host/1"
    os: OsFacts = Field(default_factory=OsFacts)
    cpu: CpuFacts = Field(default_factory=CpuFacts)
    driver: HostDriver = Field(default_factory=HostDriver)
    userspace: Userspace = Field(default_factory=Userspace)
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    engine: EngineFacts | None = None
    overrides: dict[str, str] = Field(default_factory=dict)
    """Variables set here that change what a tool or runtime reports."""
    no_answer: tuple[NoAnswer, ...] = ()
    notes: tuple[Note, ...] = ()
    conflicts: tuple[Conflict, ...] = ()
    evidence: tuple[Evidence, ...] = ()

    def devices_of(self, vendor: Vendor) -> tuple[Device, ...]:
        """Return the physical devices of one vendor."""
        return tuple(device for device in self.devices if device.vendor == vendor)

    def count_of(self, vendor: Vendor) -> int:
        """Return how many devices of one vendor programs see: parts of a divided device count each."""
        return sum(len(device.partitions) or 1 for device in self.devices_of(vendor))

    def why_none(self, vendor: Vendor) -> NoAnswer | None:
        """Return the most telling reason for having no device of a vendor, or None."""
        if self.devices_of(vendor):
            return None
        silent = [answer for answer in self.no_answer if answer.vendor == vendor]
        telling = [answer for answer in silent if answer.kind != "tool-missing"]
        return next(iter(telling or silent), None)

    def is_cpu_only(self) -> bool | None:
        """Say whether the machine has no accelerator; None where a source failed, which is no absence."""
        if self.devices:
            return False
        asked = {answer.vendor for answer in self.no_answer}
        if asked == {"nvidia", "amd"} and all(answer.kind == "tool-missing" for answer in self.no_answer):
            return True
        return None
