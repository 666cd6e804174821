"""A small run made of the nouns alone, and what might be said about it."""

from __future__ import annotations

from typing import Any

from repro.attest.outcome import Check, Verification
from repro.digest import digest_bytes
from repro.host import CpuFacts, Device, HostDriver, HostFacts, NvidiaDriver, OsFacts
from repro.image import BuilderRecord, ImageIdentity, ImageRecord
from repro.lock import (
    AcceleratorLock,
    ArtifactLock,
    BaseLock,
    FileLock,
    Lock,
    PackageFile,
    PackageLock,
    Platform,
    SourceLock,
)
from repro.manifest import CheckpointRecord, InputRecord, Manifest, PhaseRecord, ToolRecord
from repro.tolerance import ToleranceSpec
from repro.userspace import Userspace
from repro.verdict import Compared, Deviation, Explanation, Growth, Outcome, Verdict

HOSTILE = (
    "</script><script>alert(1)</script>\"'`|[x](http://evil)<img src=x onerror=alert(2)>@all\u202e\n&amp;"
)
"""What a stranger might put where a name is expected."""


def sha(text: str) -> str:
    return digest_bytes(text.encode())


def file(path: str, size: int = 100) -> FileLock:
    return FileLock(path=path, size=size, digest=sha(path))


def phase(name: Any = "full", *, first_step: int = 0, steps: int = 20, world: int = 2) -> PhaseRecord:
    return PhaseRecord(
        name=name,
        command=("torchrun", "train.py"),
        started_at="2026-11-30T10:00:00Z",
        milliseconds=61_500,
        exit_code=0,
        first_step=first_step,
        steps=steps,
        world_size=world,
        trace=tuple(file(f"trace/{name}/rank-{rank}.jsonl") for rank in range(world)),
    )


def wheel(name: str, version: str, *, requested: bool = False, **changes: Any) -> PackageFile:
    members: dict[str, Any] = {
        "name": name,
        "version": version,
        "filename": f"{name}-{version}-py3-none-any.whl",
        "size": 1_000_000,
        "digest": sha(name),
        "index": "default",
        "hash_source": "published",
        "requested": requested,
    }
    return PackageFile(**{**members, **changes})


def artifact(name: str, kind: Any, **changes: Any) -> ArtifactLock:
    members: dict[str, Any] = {
        "name": name,
        "kind": kind,
        "requested": name,
        "target": name,
        "files": (file(f"{name}/a.bin", 60), file(f"{name}/b.bin", 40)),
        "total_bytes": 100,
    }
    return ArtifactLock(**{**members, **changes})


def lock(**changes: Any) -> Lock:
    packages = PackageLock(
        platform=Platform(python="3.11", os="linux", architecture="x86_64"),
        requirements=sha("requirements"),
        pylock=sha("pylock"),
        compiled=sha("compiled"),
        inputs=(file("requirements.in"),),
        resolver={"pip": "25.0"},
        pip=wheel("pip", "25.0"),
        files=(wheel("numpy", "2.1.0"), wheel("torch", "2.9.0", requested=True)),
    )
    accelerator = AcceleratorLock(
        spec_digest=sha("cuda"),
        asked={},
        dockerfile=file("Dockerfile.cuda"),
        base=BaseLock(
            requested="debian:12",
            source="registry",
            config_digest=sha("base"),
            diff_ids=(sha("layer 0"),),
            os="linux",
            architecture="amd64",
        ),
        packages=packages,
    )
    members: dict[str, Any] = {
        "name": "pilot",
        "spec_digest": sha("spec"),
        "asked": {},
        "ignored": (),
        "seed": 7,
        "determinism": "strict",
        "source": SourceLock(files=(file("train.py"),)),
        "models": (artifact("small", "hub", commit="c" * 40, licence="apache-2.0"),),
        "datasets": (artifact("corpus", "path"),),
        "accelerators": {"cuda": accelerator},
    }
    return Lock(**{**members, **changes})


def image() -> ImageRecord:
    diff_ids = tuple(sha(f"layer {index}") for index in range(4))
    return ImageRecord(
        identity=ImageIdentity(
            config_digest=sha("config"),
            manifest_digest=sha("image manifest"),
            diff_ids=diff_ids,
            os="linux",
            architecture="amd64",
            size=3_000_000_000,
            layer_sizes=(80_000_000, 2_900_000_000, 19_000_000, 1_000_000),
        ),
        plan_digest=sha("plan"),
        base_layers=1,
        builder=BuilderRecord(
            engine="Docker", version="28.2", store="graphdriver", raw_id="sha256:x", raw_diff_ids=diff_ids
        ),
        rules="repro-image/1",
    )


def host(**changes: Any) -> HostFacts:
    facts: dict[str, Any] = {
        "os": OsFacts(name="Debian GNU/Linux 12", kernel="6.1.0", libc="glibc 2.36"),
        "cpu": CpuFacts(architecture="x86_64", model="Xeon", memory_mib=64_000),
        "driver": HostDriver(nvidia=NvidiaDriver(version="550.54.15", cuda="12.4")),
        "devices": tuple(Device(vendor="nvidia", index=n, name="H100", arch="sm_90") for n in range(2)),
        "userspace": Userspace(
            backend="cuda", python="3.11.7", torch="2.9.0", packages={"torch": "2.9.0", "numpy": "2.1.0"}
        ),
    }
    return HostFacts(**{**facts, **changes})


def manifest(**changes: Any) -> Manifest:
    members: dict[str, Any] = {
        "project": "pilot",
        "run_id": "0123456789abcdef",
        "sequence": 3,
        "created_at": "2026-11-30T10:05:00Z",
        "tool": ToolRecord(version="0.1.0", recorder=sha("recorder")),
        "accelerator": "cuda",
        "runtime": "image",
        "image": image(),
        "spec": file("repro.yaml"),
        "lock": file("repro.lock"),
        "files": (file("locks/requirements.cuda.txt"),),
        "inputs": (
            InputRecord(kind="base", name="base", requested="debian:12", digest=sha("base")),
            InputRecord(
                kind="model", name="small", requested="org/small", digest=sha("model"), commit="c" * 40
            ),
            InputRecord(kind="dataset", name="corpus", requested="data/corpus.txt", digest=sha("corpus")),
        ),
        "seed": 7,
        "determinism": "strict",
        "environment": {"OMP_NUM_THREADS": "1"},
        "limits": {"cpus": 2, "memory_bytes": None},
        "host": host(),
        "phases": (phase(), phase("interrupted", steps=10), phase("resumed", first_step=10, steps=10)),
        "checkpoint": CheckpointRecord(at_step=10, files=(file("out/checkpoint.pt", 1_000_000),)),
        "reproduced_itself": verdict(Outcome.BITWISE),
        "resumed_exactly": verdict(Outcome.BITWISE),
        "tolerance": ToleranceSpec(),
    }
    return Manifest(**{**members, **changes})


def verdict(outcome: Outcome = Outcome.DIVERGED, **changes: Any) -> Verdict:
    if outcome is not Outcome.DIVERGED:
        plain: dict[str, Any] = {
            "outcome": outcome,
            "layer": "bitwise",
            "kind": "equal",
            "sentence": "Every bit is equal.",
        }
        return Verdict(**{**plain, **changes})
    first = Deviation(
        phase="full",
        step=7,
        rank=1,
        layer="bitwise",
        kind="gradients-differ",
        observable="grads",
        tensor="blocks.0.weight",
        target=(1.0).hex(),
        candidate=(1.5).hex(),
        abs_diff=(0.5).hex(),
        rel_diff=(1 / 3).hex(),
        ulp_diff=4,
        allowed=(0.0).hex(),
    )
    members: dict[str, Any] = {
        "outcome": outcome,
        "layer": "bitwise",
        "kind": "gradients-differ",
        "sentence": "Gradients differ at step 7 of 20.",
        "rule": "bitwise",
        "environment": "same",
        "compared": Compared(phases=("full",), ranks=2, steps=20, observables=("loss", "grads")),
        "first_divergence": first,
        "deviations": (first,),
        "growth": (Growth(phase="full", step=7, loss=(1e-6).hex(), params=(1e-7).hex()),),
        "notes": ("The replay ran on fewer threads.",),
        "explanations": (
            Explanation(
                category="packages",
                name="torch",
                target="2.9.0",
                candidate="2.9.1",
                sentence="packages torch: 2.9.0 in the target, 2.9.1 in the candidate",
            ),
        ),
    }
    return Verdict(**{**members, **changes})


def verification(verdict: Any = "VERIFIED", *, detail: str = "1 of 1") -> Verification:
    rejected = verdict == "REJECTED"
    checks = (
        Check(number=1, name="folder", state="passed", detail="12 files"),
        Check(
            number=2,
            name="signature",
            state="failed" if rejected else "passed",
            detail=detail,
            code="E_SIG" if rejected else None,
        ),
        Check(number=3, name="age", state="not-made", detail="nobody asked", wanted=False),
    )
    return Verification(
        verdict=verdict,
        code="E_SIG" if rejected else None,
        checks=checks,
        signatures=(),
        replays=(),
        principals=() if rejected else ("alice",),
        project="pilot",
        run_id="0123456789abcdef",
        sequence=3,
        payload_digest=digest_bytes(b"payload"),
        unsigned=(),
        warnings=(),
        manifest=None,
    )
