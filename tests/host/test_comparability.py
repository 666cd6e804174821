"""Which facts two machines must share, and what a machine can do."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest

from repro.comparability import RULES, FactResult, Side, compare_sides, conclude
from repro.comparability.sides import Accelerator
from repro.doctor import examine
from repro.host import (
    CpuFacts,
    Device,
    EngineFacts,
    HostDriver,
    HostFacts,
    NoAnswer,
    NoAnswerKind,
    NvidiaDriver,
    OsFacts,
    Partition,
)
from repro.userspace import Userspace

PAGE = Path(__file__).parents[2] / "docs" / "comparability.md"

CPU = CpuFacts(vendor="GenuineIntel", flags=("avx2", "avx512f"), model="Xeon", microcode="0x1")
STACK = Userspace(torch="2.9.1+cu128", capability="AVX512", threads=4, backend="cuda", nccl="2.27.5")
H100 = Device(vendor="nvidia", index=0, name="NVIDIA H100 80GB HBM3", arch="sm_90", memory_mib=81559)


def host(**members: Any) -> HostFacts:
    plain: dict[str, Any] = {
        "cpu": CPU,
        "userspace": STACK,
        "devices": (H100,),
        "driver": HostDriver(nvidia=NvidiaDriver(version="550.54.14", cuda="12.4")),
        "os": OsFacts(kernel="6.1"),
    }
    return HostFacts(**{**plain, **members})


def relation(
    a: HostFacts,
    b: HostFacts,
    *,
    on: tuple[Accelerator, Accelerator] = ("cuda", "cuda"),
    images: Any = ("i", "i"),
) -> tuple[str, set[str]]:
    """The relation, and the facts named in its reasons."""
    sides = [
        Side(host=one, accelerator=acc, image=image)
        for one, acc, image in zip((a, b), on, images, strict=True)
    ]
    found = conclude(compare_sides(*sides))
    return found.relation, {reason.partition(":")[0] for reason in found.reasons}


def driver(version: str | None, cuda: str | None = "12.4") -> HostDriver:
    return HostDriver(nvidia=NvidiaDriver(version=version, cuda=cuda))


def test_equal_machines_are_the_same() -> None:
    assert relation(host(), host()) == ("same", set())


MIG = H100.model_copy(update={"partitions": (Partition(kind="mig", profile="3g.40gb"),)})


@pytest.mark.parametrize(
    ("members", "fact"),
    [
        ({"driver": driver("535.1")}, "driver family"),
        ({"driver": driver("550.54.14", "12.8")}, "CUDA of the driver"),
        ({"driver": driver(None)}, "driver family"),
        ({"devices": (H100.model_copy(update={"arch": "sm_80"}),)}, "device model"),
        ({"devices": (MIG,)}, "device division"),
        ({"devices": ()}, "device model"),
        ({"cpu": CPU.model_copy(update={"flags": ("avx2",)})}, "CPU flags"),
        ({"cpu": CPU.model_copy(update={"vendor": "AuthenticAMD"})}, "CPU vendor"),
        ({"userspace": STACK.model_copy(update={"capability": "AVX2"})}, "ATen capability"),
        ({"userspace": STACK.model_copy(update={"threads": None})}, "torch threads"),
        ({"userspace": STACK.model_copy(update={"nccl": "2.26.2"})}, "NCCL or RCCL"),
    ],
)
def test_what_bits_need(members: dict[str, Any], fact: str) -> None:
    for pair in ((host(), host(**members)), (host(**members), host())):
        found, reasons = relation(*pair)
        assert found == "across"
        assert fact in reasons


def test_an_unknown_fact_that_is_not_required_tells_nothing_apart() -> None:
    known = host(userspace=STACK.model_copy(update={"knobs": {"NCCL_ALGO": "Ring"}}))
    assert relation(host(), known) == ("same", set())
    other = host(userspace=STACK.model_copy(update={"knobs": {"NCCL_ALGO": "Tree"}}))
    assert relation(known, other) == ("across", {"knobs"})


def test_what_only_informs_changes_nothing() -> None:
    other = host(
        driver=driver("550.144.03"),
        os=OsFacts(kernel="6.8"),
        cpu=CPU.model_copy(update={"microcode": "0x2", "model": "Xeon Gold"}),
        devices=(
            H100.model_copy(update={"vbios": "1", "power_limit_mw": 5}),
            H100.model_copy(update={"index": 1}),
        ),
    )
    assert relation(host(), other) == ("same", set())


def test_another_image_is_another_stack() -> None:
    assert relation(host(), host(), images=("i", "j")) == ("across", {"image"})
    assert relation(host(), host(), images=(None, None)) == ("same", set())


def test_an_equal_image_answers_for_what_lies_in_it() -> None:
    silent = host(userspace=Userspace(capability="AVX512", threads=4))
    assert relation(host(), silent) == ("same", set())
    assert relation(host(), silent, images=(None, None)) == ("across", {"torch"})


def test_another_release_of_torch_is_not_covered() -> None:
    other = host(userspace=STACK.model_copy(update={"torch": "2.10.0+cu128"}))
    assert relation(host(), other, images=("i", "j")) == ("not-covered", {"torch release"})
    rebuilt = host(userspace=STACK.model_copy(update={"torch": "2.9.1+rocm7.0"}))
    assert relation(host(), rebuilt, images=("i", "j"))[0] == "across"


def test_vendors_are_told_apart_without_facts_of_one_alone() -> None:
    amd = host(
        devices=(Device(vendor="amd", name="AMD Instinct MI300X", arch="gfx942"),), driver=HostDriver()
    )
    found, reasons = relation(host(), amd, on=("cuda", "rocm"), images=("i", "j"))
    assert found == "across"
    assert {"accelerator", "device model"} <= reasons
    assert not reasons & {"cuDNN", "MIOpen", "CUDA of the driver"}


def test_a_device_means_nothing_for_a_run_on_the_processor() -> None:
    plain = host(devices=(), driver=HostDriver())
    assert relation(host(), plain, on=("cpu", "cpu")) == ("same", set())


def test_spx_is_whole() -> None:
    whole = Device(vendor="amd", name="AMD Instinct MI300X", arch="gfx942")
    spx = whole.model_copy(update={"compute_partition": "SPX", "memory_partition": "NPS1"})
    cpx = whole.model_copy(update={"compute_partition": "CPX"})

    def outcome(device: Device) -> str:
        sides = [Side(host=host(devices=(one,)), accelerator="rocm") for one in (whole, device)]
        return next(one.outcome for one in compare_sides(*sides) if one.fact == "device division")

    assert (outcome(spx), outcome(cpx)) == ("equal", "differs")


def test_results_are_a_noun() -> None:
    sides = Side(host=host(), accelerator="cuda"), Side(host=host(), accelerator="cuda")
    for result in compare_sides(*sides):
        assert FactResult.parse(result.tree()) == result


def test_the_page_is_the_rule() -> None:
    rows = [
        f"| {rule.fact} | {rule.need} | {'all' if len(rule.on) == 3 else ', '.join(sorted(rule.on))} "
        f"| {'yes' if rule.required else ''} | {'yes' if rule.in_image else ''} | {rule.why} |"
        for rule in RULES
    ]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8"), "the page needs these rows:\n" + "\n".join(
        rows
    )
    assert len({rule.fact for rule in RULES}) == len(RULES)


ENGINE = EngineFacts(name="docker", version="28.5.2", store="containerd", runtimes=("nvidia", "runc"))


def finding(facts: HostFacts, can: str, accelerator: str | None = None, **options: Any) -> Any:
    return next(one for one in examine(facts, **options) if (one.can, one.accelerator) == (can, accelerator))


def test_a_full_machine_can_do_everything_for_its_devices() -> None:
    findings = examine(host(engine=ENGINE), tools=["git"])
    assert [(one.can, one.accelerator) for one in findings if not one.ok] == [
        ("run", "rocm"),
        ("replay", "rocm"),
    ]
    assert (
        finding(host(engine=ENGINE), "run", "cuda").reason == "in docker 28.5.2, on 1 × NVIDIA H100 80GB HBM3"
    )


def test_every_no_has_a_remedy() -> None:
    for kind in get_args(NoAnswerKind):
        answer = NoAnswer(vendor="nvidia", source="nvidia-smi", kind=kind, said="so it said")
        facts = HostFacts(no_answer=(answer,))
        for one in examine(facts):
            assert one.ok or one.remedy, one
        said = finding(facts, "run", "cuda")
        assert said.ok is False
        assert kind == "tool-missing" or kind in said.reason


def test_without_an_engine_pilots_still_run_on_the_host() -> None:
    facts = host(devices=(), driver=HostDriver())
    build = finding(facts, "build", engine_trouble="the socket refuses this user")
    assert (build.ok, build.reason) == (False, "the socket refuses this user")
    run = finding(facts, "run", "cpu", engine_trouble="the socket refuses this user")
    assert run.ok is True
    assert "on the host only" in run.reason


def test_an_engine_that_cannot_hand_on_devices_is_named() -> None:
    engine = ENGINE.model_copy(update={"runtimes": ("runc",)})
    assert "toolkit" in finding(host(engine=engine), "run", "cuda").reason
    with_toolkit = HostDriver(nvidia=NvidiaDriver(version="550.1", container_toolkit="1.17.8"))
    assert finding(host(engine=engine, driver=with_toolkit), "run", "cuda").ok is True


def test_devices_in_error_are_no_devices_to_run_on() -> None:
    sick = H100.model_copy(update={"state": "error"})
    assert finding(host(engine=ENGINE, devices=(sick,)), "run", "cuda").ok is False
    assert finding(host(engine=ENGINE, devices=(sick, H100)), "run", "cuda").ok is True


def test_verifying_needs_nothing_and_locking_says_what_git_adds() -> None:
    assert finding(HostFacts(), "verify").ok is True
    assert finding(HostFacts(), "lock").remedy
    assert finding(HostFacts(), "lock", tools=["git"]).remedy is None
