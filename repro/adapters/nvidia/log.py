"""The full log of `nvidia-smi`: `-q -x` (XML) and `-q` (text), read as one tree.

Both name the same things; the text's headings become the XML's element names
(`FB Memory Usage` is `fb_memory_usage`). Names changed over the years, so each
fact lists every place it has stood in.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from xml.etree import ElementTree

from repro.adapters import cells
from repro.adapters.nvidia import values
from repro.adapters.reading import Reading, silent
from repro.host import Device, NvidiaDriver, Partition

__all__ = ["read_text", "read_xml"]

_TEXT_GPU = re.compile(r"GPU ([0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f])")
_WIDTH = re.compile(r"([0-9]{1,3})x")


@dataclass(slots=True)
class _Node:
    """An element: its text, and its children in order."""

    name: str
    text: str | None = None
    children: list[_Node] = field(default_factory=list)

    def all(self, name: str) -> list[_Node]:
        return [child for child in self.children if child.name == name]

    def raw(self, path: str) -> str | None:
        """Return the text at a path as it stands."""
        node: _Node | None = self
        for name in path.split("/"):
            node = next((child for child in node.children if child.name == name), None) if node else None
        return node.text if node else None

    def value(self, *paths: str) -> str | None:
        """Return the first known text at any of the paths."""
        return next((value for path in paths if (value := cells.known(self.raw(path))) is not None), None)


def _from_element(element: ElementTree.Element) -> _Node:
    """Turn an element into a node, level by level, so that no depth overruns the stack."""
    root = _Node(element.tag, element.text)
    queue = [(element, root)]
    while queue:
        source, target = queue.pop()
        for child in source:
            node = _Node(child.tag, child.text)
            target.children.append(node)
            queue.append((child, node))
    if "id" in element.attrib:
        root.children.append(_Node("@id", element.attrib["id"]))
    return root


def read_xml(text: str, source: str) -> Reading:
    """Read `nvidia-smi -q -x`. Text before and after the document is left aside."""
    start = text.find("<nvidia_smi_log")
    end = text.find("</nvidia_smi_log>", start)
    if start < 0 or end < start:
        return silent("nvidia", source, "unreadable", "the XML is cut short")
    document = re.sub(r"[^\x09\x0a\x20-\ud7ff\ue000-\ufffd]", "\ufffd", text[start : end + 17])
    try:
        # What could declare an entity stands before the root element, and is left out.
        log = ElementTree.fromstring(document)  # noqa: S314
    except ElementTree.ParseError as error:
        return silent("nvidia", source, "unreadable", f"the XML cannot be parsed: {error}")
    return _reading(_from_element(log), [_from_element(gpu) for gpu in log.iter("gpu")], source)


def read_text(text: str, source: str) -> Reading:
    """Read `nvidia-smi -q`, where indent is structure."""
    log, gpus = _Node("log"), list[_Node]()
    stack = [(-1, log)]
    for line in cells.complete_lines(text):
        if match := _TEXT_GPU.fullmatch(line.rstrip()):
            gpu = _Node("gpu", children=[_Node("@id", match[1])])
            gpus.append(gpu)
            stack = [(0, gpu)]
            continue
        entry = _text_entry(line)
        if entry is None:
            continue
        indent, node = entry
        while len(stack) > 1 and stack[-1][0] >= indent:
            stack.pop()
        stack[-1][1].children.append(node)
        stack.append((indent, node))
    return _reading(log, gpus, source)


def _text_entry(line: str) -> tuple[int, _Node] | None:
    """Return the indent of a line and its node; the first colon parts heading and value."""
    heading, colon, value = line.partition(":")
    name = re.sub(r"[^a-z0-9]+", "_", heading.casefold()).strip("_")
    if not name or "====" in line:
        return None
    return len(line) - len(line.lstrip(" ")), _Node(name, value if colon else None)


def _reading(log: _Node, gpus: list[_Node], source: str) -> Reading:
    if not gpus and cells.integer(log.value("attached_gpus")) == 0:
        return silent("nvidia", source, "no-devices", "attached GPUs: 0")
    return Reading(
        source=source,
        nvidia=NvidiaDriver(
            version=cells.version(log.value("kmd_version", "driver_version")),
            cuda=cells.version(log.value("cuda_umd_version", "cuda_version")),
        ),
        devices=tuple(_device(gpu, index) for index, gpu in enumerate(gpus)),
    )


def _first(read: Callable[[str | None], int | None], gpu: _Node, *paths: str) -> int | None:
    return next((number for path in paths if (number := read(gpu.value(path))) is not None), None)


def _device(gpu: _Node, index: int) -> Device:
    width = _WIDTH.fullmatch(gpu.value(*_LINK_WIDTH) or "")
    return Device(
        vendor="nvidia",
        index=index,
        name=gpu.value("product_name"),
        generation=gpu.value("product_architecture"),
        memory_mib=cells.megabytes(gpu.value("fb_memory_usage/total")),
        pci=cells.pci_address(gpu.value("pci/pci_bus_id", "pci/bus_id", "@id")),
        pci_device_id=values.device_id(gpu.value("pci/pci_device_id", "pci/device_id")),
        id=_uuid(gpu),
        state=values.state_of(gpu.raw("product_name")),
        mig=cells.switch(gpu.value("mig_mode/current_mig", "mig_mode/current")),
        ecc=cells.switch(gpu.value("ecc_mode/current_ecc", "ecc_mode/current")),
        virtualization=_virtualization(gpu.raw("gpu_virtualization_mode/virtualization_mode")),
        driver_model=gpu.value("driver_model/current_dm", "driver_model/current"),
        vbios=values.vbios(gpu.value("vbios_version")),
        persistence=cells.switch(gpu.value("persistence_mode")),
        compute_mode=gpu.value("compute_mode"),
        power_limit_mw=_first(cells.milliwatts, gpu, *_POWER_LIMIT),
        application_graphics_mhz=_first(cells.integer, gpu, *_clock("applications_clocks", "graphics")),
        application_memory_mhz=_first(cells.integer, gpu, *_clock("applications_clocks", "mem")),
        max_graphics_mhz=_first(cells.integer, gpu, *_clock("max_clocks", "graphics")),
        max_memory_mhz=_first(cells.integer, gpu, *_clock("max_clocks", "mem")),
        auto_boost=cells.switch(gpu.value("clock_policy/auto_boost")),
        pcie_generation=cells.integer(gpu.value(*_LINK_GENERATION)),
        pcie_width=int(width[1]) if width else None,
        partitions=tuple(_mig(node) for node in _mig_nodes(gpu)),
    )


_POWER_LIMIT = (
    "gpu_power_readings/gpu_ceiling_power_limit/current_power_limit",
    "gpu_power_readings/current_power_limit",
    "gpu_power_readings/power_limit",
    "power_readings/power_limit",
)
_LINK_GENERATION = (
    "pci/pci_gpu_link_info/pcie_gen/max_link_gen",
    "pci/gpu_link_info/pcie_generation/max",
)
_LINK_WIDTH = (
    "pci/pci_gpu_link_info/link_widths/max_link_width",
    "pci/gpu_link_info/link_width/max",
)


def _clock(section: str, what: str) -> tuple[str, ...]:
    long = {"mem": "memory"}.get(what, what)
    return f"{section}/{what}_clock", f"{section}/{long}"


def _uuid(node: _Node) -> str | None:
    return node.value("uuid", "gpu_uuid")


def _virtualization(text: str | None) -> str | None:
    return "None" if (text or "").strip() == "None" else cells.known(text)


def _mig_nodes(gpu: _Node) -> list[_Node]:
    boxes = gpu.all("mig_devices")
    nodes = [node for box in boxes for node in box.all("mig_device")] or gpu.all("mig_device")
    return [node for node in nodes if node.children]


def _mig(node: _Node) -> Partition:
    return Partition(
        kind="mig",
        index=cells.integer(node.value("index")),
        memory_mib=cells.megabytes(node.value("fb_memory_usage/total")),
        compute_units=cells.integer(node.value("device_attributes/shared/multiprocessor_count")),
        gpu_instance=cells.integer(node.value("gpu_instance_id")),
        compute_instance=cells.integer(node.value("compute_instance_id")),
        id=_uuid(node),
    )
