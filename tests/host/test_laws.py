"""Laws of every reader: whatever the text, no traceback, and no value that the text does not hold."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repro.adapters import amd, nvidia
from repro.adapters.amd.kfd import read_topology
from repro.adapters.assemble import assemble
from repro.adapters.cells import decode
from repro.adapters.reading import Reading
from repro.adapters.scrub import Scrubber
from repro.adapters.torchenv import read_collect_env, userspace_of_head
from repro.digest import pretty_json
from repro.host import HostFacts
from repro.strictjson import loads
from tests.host.host_world import TEXTS, read_any

VERBATIM = frozenset(
    (
        *("cuda", "cuda_build", "cuda_runtime", "cudnn", "hip_build", "hip_runtime", "hsa_runtime", "miopen"),
        *("driver_model", "generation", "name", "name_start", "profile", "vbios", "version", "nvml_version"),
        *("rocm", "rocm_path", "smi_library", "smi_tool", "smi_version"),
        *("libc", "os", "python", "torch", "torch_distribution"),
    )
)
"""Members whose value stands in the text as it is, but for its case."""

texts = st.sampled_from(TEXTS)


def leaves(tree: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """Every member with its value, however deep; a list counts by its items."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield from leaves(value, key)
    elif isinstance(tree, list | tuple):
        for value in tree:
            yield from leaves(value, name)
    elif tree is not None:
        yield name, tree


def facts_in(reading: Reading) -> set[tuple[str, Any]]:
    """What a reading states of the machine; reasons and notes speak of the text itself."""
    nouns = (reading.nvidia, reading.amd, reading.userspace, reading.cpu, reading.os, *reading.links)
    trees = [noun.model_dump() for noun in nouns if noun is not None]
    trees += [device.model_dump() for device in reading.devices or ()]
    return {leaf for tree in trees for leaf in leaves(tree)}


def require_sound(reading: Reading) -> None:
    """A reading makes facts that strict JSON carries."""
    facts = assemble([reading], evidence=[Scrubber().evidence("x", 0, "y")])
    assert HostFacts.parse(loads(pretty_json(facts.tree()), where="facts")) == facts


@settings(max_examples=200, deadline=None)
@given(path=texts, data=st.data())
def test_a_cut_text_states_nothing_that_the_whole_does_not(path: Any, data: st.DataObject) -> None:
    raw = path.read_bytes()
    place = data.draw(st.integers(0, len(raw)))
    whole = read_any(decode(raw), path.parent.name, path.name)
    part = read_any(decode(raw[:place]), path.parent.name, path.name)
    assert facts_in(part) <= facts_in(whole)
    require_sound(part)


@settings(max_examples=300, deadline=None)
@given(path=texts, data=st.data())
def test_a_spoiled_text_gives_no_traceback_and_no_value_of_its_own(path: Any, data: st.DataObject) -> None:
    raw = path.read_bytes()
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(raw)))
        end = data.draw(st.integers(start, min(len(raw), start + 40)))
        raw = raw[:start] + data.draw(st.binary(max_size=12)) + raw[end:]
    text = decode(raw)
    reading = read_any(text, path.parent.name, path.name)
    require_sound(reading)
    if path.name == "nvml.json":
        return
    held = text.casefold()
    for name, value in facts_in(reading):
        if name in VERBATIM and isinstance(value, str):
            assert value.casefold() in held, (name, value)


@settings(max_examples=200, deadline=None)
@given(raw=st.binary(max_size=400), code=st.none() | st.integers(0, 255))
def test_any_bytes_are_read(raw: bytes, code: int | None) -> None:
    text = decode(raw)
    for reading in (
        nvidia.read(text, exit_code=code),
        nvidia.read_nvml(text, "nvml"),
        nvidia.read_toolkit(text, "nvidia-ctk"),
        amd.read(text, "rocm-smi", exit_code=code),
        amd.read_release(text, "release"),
        read_collect_env(text),
        read_topology(
            {3: {"properties": text, "gpu_id": text, "name": text, "mem_banks/0/properties": text}}
        ),
    ):
        require_sound(reading)


_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=12), inner, max_size=4),
    max_leaves=20,
)
_keys = st.sampled_from(
    [
        "gpu",
        "gpu_data",
        "asic",
        "bus",
        "bdf",
        "driver",
        "version",
        "vram",
        "size",
        "value",
        "card0",
        "system",
        "devices",
    ]
)


@settings(max_examples=200, deadline=None)
@given(tree=st.recursive(_json, lambda inner: st.dictionaries(_keys, inner, max_size=5), max_leaves=12))
def test_any_json_is_read(tree: Any) -> None:
    text = json.dumps(tree)
    for listed in (
        text,
        f"[{text}]",
        f'{{"card0": {text}, "system": {text}}}',
        f'{{"devices": [{text}], "cuda": {text}}}',
    ):
        require_sound(amd.read(listed, "amd-smi"))
        require_sound(nvidia.read_nvml(listed, "nvml"))
    if isinstance(tree, dict):
        head = {
            "torch": tree,
            "devices": [tree],
            "knobs": tree,
            "rng_probe": tree,
            "python": tree.get("value"),
        }
        require_sound(Reading(source="head", userspace=userspace_of_head(head)))


def test_nothing_is_a_value_in_any_tools_words() -> None:
    """Cells that mean "unknown" are null wherever they stand."""
    words = [
        "N/A",
        "[N/A]",
        "ERR!",
        "[Unknown Error]",
        "Unknown Error",
        "[Not Supported]",
        "[Function Not Found]",
    ]
    words += [
        "Requested functionality has been deprecated",
        "[GPU requires reset]",
        "[Insufficient Permissions]",
        "",
    ]
    columns = "name, driver_version, memory.total [MiB], compute_cap, mig.mode.current, pci.bus_id, uuid\n"
    for word in words:
        reading = nvidia.read(columns + ", ".join([word] * 7) + "\n")
        stated = facts_in(replace(reading, no_answer=()))
        assert {leaf for leaf in stated if leaf[0] != "state"} == {("vendor", "nvidia")}, word


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_line_ends_and_marks_change_nothing(path: Any) -> None:
    """A Windows shell writes CRLF, a byte order mark, or UTF-16."""
    text = path.read_bytes().decode("utf-8")
    plain = read_any(decode(text.encode()), path.parent.name, path.name)
    for raw in (text.replace("\n", "\r\n").encode("utf-8-sig"), text.encode("utf-16")):
        assert read_any(decode(raw), path.parent.name, path.name) == plain
