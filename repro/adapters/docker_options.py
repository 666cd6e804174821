"""A job as arguments of the SDK's `containers.create`."""

from __future__ import annotations

import os
import resource
import uuid
from pathlib import Path
from typing import Any

from docker.types import DeviceRequest, Mount, Ulimit

from repro.errors import EngineError, HostError
from repro.image import EngineInfo
from repro.job import Job, Limits

__all__ = ["OWNER", "USER", "container_options", "owner"]

OWNER = "repro-manifest.owner"
"""Label that says which process a container belongs to, so that what a killed one left can be found."""

USER = 1000
"""User and group a job runs as where we are root."""


_DEV = Path("/dev")
_ALL_NVIDIA = "nvidia.com/gpu=all"
_PODMAN_WITH_CDI = 5
"""Earlier ones start the container without the device, and say nothing."""


def owner() -> str | None:
    """Name this process for good: boot, process namespace and id; None where the system does not say."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        space = Path("/proc/self/ns/pid").readlink()
    except OSError:
        return None
    return f"{boot}/{space}/{os.getpid()}"


def _nvidia(engine: EngineInfo) -> DeviceRequest:
    """Every NVIDIA GPU: by its CDI name where only that is set up, else as `--gpus all` asks.

    Raises:
        EngineError: `gpu-unsupported`.
    """
    by_name = DeviceRequest(driver="cdi", device_ids=[_ALL_NVIDIA])
    if engine.store == "podman":
        if int(engine.version.partition(".")[0]) < _PODMAN_WITH_CDI:
            raise EngineError(
                "gpu-unsupported",
                f"Podman {engine.version} ignores requests for NVIDIA GPUs without a word",
                remedy=f"use Docker, or Podman from {_PODMAN_WITH_CDI} on, with NVIDIA's container toolkit",
            )
        return by_name
    named = any(list(Path(folder).glob("*nvidia*")) for folder in engine.cdi_folders)
    if named and "nvidia" not in engine.runtimes:
        return by_name
    return DeviceRequest(count=-1, capabilities=[["gpu"]])


def _devices(accelerator: str, engine: EngineInfo) -> dict[str, Any]:
    """Flags that hand the accelerator in.

    Raises:
        EngineError: `gpu-unsupported`; HostError: `device-absent`.
    """
    if accelerator == "cuda":
        return {"device_requests": [_nvidia(engine)]}
    if accelerator == "rocm":
        nodes = [_DEV / "kfd", *sorted((_DEV / "dri").glob("renderD*"))]
        if not (nodes[0].exists() and len(nodes) > 1):
            raise HostError(
                "device-absent",
                "this machine has no AMD GPU that programs can use: /dev/kfd or /dev/dri/renderD* is missing",
                remedy="load the amdgpu driver, or run where the GPU is",
            )
        groups = sorted({node.stat().st_gid for node in nodes if node.exists()})
        return {
            "devices": [f"{node}:{node}:rwm" for node in nodes],
            "group_add": [str(group) for group in groups],
            "security_opt": ["no-new-privileges", "seccomp=unconfined"],
        }
    return {}


def _user(rootless: bool) -> str:
    """Who the job runs as: us; where we are root, nobody special; in a rootless engine root is us."""
    if rootless:
        return "0:0"
    if os.getuid() == 0:
        return f"{USER}:{USER}"
    return f"{os.getuid()}:{os.getgid()}"


def _ulimits(limits: Limits, store: str) -> list[Ulimit]:
    """Limits of each process, soft and hard alike."""
    wanted = {"nofile": limits.open_files, "core": 0}
    wanted |= {"memlock": limits.locked_bytes} if limits.locked_bytes is not None else {}
    wanted |= {"stack": limits.stack_bytes} if limits.stack_bytes is not None else {}
    if store == "podman":
        # By itself it asks for more processes than some machines allow, and then fails.
        _, most = resource.getrlimit(resource.RLIMIT_NPROC)
        wanted |= {} if most == resource.RLIM_INFINITY else {"nproc": most}
    return [Ulimit(name=name, soft=most, hard=most) for name, most in wanted.items()]


def container_options(job: Job, engine: EngineInfo) -> dict[str, Any]:
    """Write a job as arguments of the SDK's `containers.create`.

    Args:
        job: what to run; its image is not looked at.
        engine: where it is to run.
    """
    limits = job.limits
    options: dict[str, Any] = {
        "entrypoint": [job.argv[0]],
        "command": list(job.argv[1:]),
        "environment": dict(job.environment),
        "working_dir": job.workdir,
        "mounts": [
            Mount(mount.target, mount.source, type="bind", read_only=not mount.writable)
            for mount in job.mounts
        ],
        "user": _user(engine.rootless),
        "init": True,
        "use_config_proxy": False,
        "network_mode": "none",
        "hostname": "repro",
        "extra_hosts": {"repro": "127.0.0.1"},
        "read_only": True,
        "tmpfs": {"/tmp": f"rw,exec,nosuid,nodev,size={limits.tmp_bytes},mode=1777"},  # noqa: S108 - in the container
        "shm_size": limits.shm_bytes,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges"],
        "pids_limit": limits.pids,
        "ulimits": _ulimits(limits, engine.store),
        "labels": {OWNER: owner() or "unknown"},
        "name": f"repro-{uuid.uuid4().hex[:12]}",
    }
    if limits.memory_bytes is not None:
        options |= {"mem_limit": limits.memory_bytes, "memswap_limit": limits.memory_bytes}
    if limits.cpus is not None:
        options["nano_cpus"] = round(limits.cpus * 1e9)
    return options | _devices(job.accelerator, engine)
