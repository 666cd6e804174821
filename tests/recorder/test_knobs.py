"""The list of determinism knobs: complete enough to act on, and readable where torch is."""

from __future__ import annotations

import pytest

from repro import recorder
from repro.recorder import knobs, settings


def test_every_knob_is_listed_once_and_says_where_it_matters() -> None:
    names = [knob.name for knob in knobs.KNOBS]
    assert len(names) == len(set(names))
    for knob in knobs.KNOBS:
        assert set(knob.accelerators) <= {"cpu", "cuda", "rocm"}
        assert knob.accelerators
        assert knob.when in ("start", "import", "any")
        assert knob.source
        assert knob.is_variable or knob.when == "any"


@pytest.mark.parametrize("level", ["strict", "warn"])
def test_variables_are_those_of_the_accelerator(level: str) -> None:
    cuda, rocm, cpu = (
        knobs.environment(level, accelerator=name, seed=None) for name in ("cuda", "rocm", "cpu")
    )
    assert cuda["CUBLAS_WORKSPACE_CONFIG"] == ":4096:8"
    assert rocm["ROCBLAS_DEFAULT_ATOMICS_MODE"] == "0"
    assert "ROCBLAS_DEFAULT_ATOMICS_MODE" not in cuda
    assert "CUBLAS_WORKSPACE_CONFIG" not in rocm
    assert cpu == {}


def test_off_sets_only_the_seed() -> None:
    assert knobs.environment("off", accelerator="cuda", seed=None) == {}
    assert knobs.environment("off", accelerator="cuda", seed=2**32 + 5) == {"PYTHONHASHSEED": "5"}


def test_values_say_what_is_unset() -> None:
    found = knobs.values({"torch.get_num_threads": "3"}, {"NCCL_ALGO": "Ring"})
    assert set(found) == {knob.name for knob in knobs.KNOBS}
    assert found["NCCL_ALGO"] == "Ring"
    assert found["torch.get_num_threads"] == "3"
    assert found["NCCL_PROTO"] is None


@pytest.mark.torch
def test_every_torch_setting_can_be_read() -> None:
    from repro.recorder import determinism

    found = determinism.read()
    here = {
        knob.name: found[knob.name]
        for knob in knobs.KNOBS
        if not knob.is_variable and knob.layer != "compiler" and not knob.name.endswith("benchmark_limit")
    }
    assert None not in here.values()


def test_settings_are_read_from_the_environment() -> None:
    read = settings.read({"REPRO_TRACE": "/x", "REPRO_EVERY": "10", "REPRO_STEPS": "25", "REPRO_SEED": "no"})
    assert (read.trace, read.every, read.steps, read.stop_after, read.seed, read.level) == (
        "/x",
        10,
        25,
        None,
        None,
        "off",
    )
    assert [step for step in range(1, 26) if read.fingerprints(step)] == [1, 2, 3, 10, 20, 25]


def test_files_and_digest() -> None:
    paths = [path.relative_to(recorder.folder()).as_posix() for path in recorder.files()]
    assert paths == sorted(paths)
    assert {"__init__.py", "inject/sitecustomize.py", "session.py"} <= set(paths)
    assert recorder.digest().startswith("sha256:")
    assert recorder.digest() == recorder.digest()
