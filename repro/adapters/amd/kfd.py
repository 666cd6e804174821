"""The kernel's own view of AMD devices: the topology below `/sys/class/kfd`.

`HSA_OVERRIDE_GFX_VERSION` changes what the runtime reports and never what stands here.
"""

from __future__ import annotations

from collections.abc import Mapping

from repro.adapters import cells
from repro.adapters.amd import values
from repro.adapters.amd.fold import Row, fold
from repro.adapters.reading import Reading, silent
from repro.host import CpuFacts, Device, Link

__all__ = ["properties", "read_topology"]

KFD_RANK = 2
"""After the tools, before rocminfo, which an override can make lie."""

_XGMI = 11
_PCIE = 2
"""Link types of `HSA_IOLINKTYPE`."""

Node = Mapping[str, str]
"""File below a node's folder to its text: `properties`, `gpu_id`, `name`, `mem_banks/0/properties`, …"""


def properties(text: str | None) -> dict[str, int]:
    """Return the `name number` lines of a properties file."""
    found: dict[str, int] = {}
    for line in cells.complete_lines(text or ""):
        name, _, number = line.partition(" ")
        if name and number.isascii() and number.isdigit() and len(number) <= 20:
            found[name] = int(number)
    return found


def read_topology(nodes: Mapping[int, Node], source: str = "kfd") -> Reading:
    """Read nodes by their number, which may have holes: a container sees only its own."""
    trees = {number: properties(node.get("properties")) for number, node in sorted(nodes.items())}
    gpus = {number: tree for number, tree in trees.items() if _is_gpu(nodes[number], tree)}
    cpus = sum(1 for tree in trees.values() if tree.get("cpu_cores_count", 0) > 0)
    if not gpus:
        return silent("amd", source, "no-devices", "kfd lists no device with compute units")
    order = {number: index for index, number in enumerate(gpus)}
    rows = [_row(nodes[number], tree, order[number]) for number, tree in gpus.items()]
    return Reading(
        source=source,
        rank=KFD_RANK,
        devices=fold(rows),
        links=_links(nodes, order),
        cpu=CpuFacts(numa_nodes=cpus) if cpus else None,
    )


def _is_gpu(node: Node, tree: dict[str, int]) -> bool:
    """A node with `gpu_id` 0 is a processor; without that file, one without SIMD units is."""
    number = cells.integer(node.get("gpu_id"))
    return tree.get("simd_count", 0) > 0 if number is None else number != 0


def _row(node: Node, tree: dict[str, int], index: int) -> Row:
    simds, per_unit = tree.get("simd_count"), tree.get("simd_per_cu")
    place, domain = tree.get("location_id"), tree.get("domain")
    number = tree.get("device_id")
    unique = tree.get("unique_id")
    device = Device(
        vendor="amd",
        index=index,
        arch=values.gfx_of_number(tree.get("gfx_target_version", 0)),
        generation=values.name(node.get("name")),
        memory_mib=_memory(node),
        compute_units=simds // per_unit if simds and per_unit else None,
        pci=None if domain is None or place is None else values.address(domain, place),
        pci_device_id=f"0x{number:04x}" if number and number < 1 << 16 else None,
        id=f"{unique:016x}" if unique else None,
    )
    return Row.at(device, None if place is None else values.partition_of(place))


def _memory(node: Node) -> int | None:
    """Return the device memory of a node: banks of heap type 1 (public) and 2 (private)."""
    banks = [properties(text) for path, text in node.items() if path.startswith("mem_banks/")]
    sizes = [
        bank["size_in_bytes"] for bank in banks if bank.get("heap_type") in (1, 2) and "size_in_bytes" in bank
    ]
    total = sum(sizes) >> 20
    return total if sizes and total < 1 << 53 else None


def _links(nodes: Mapping[int, Node], order: Mapping[int, int]) -> tuple[Link, ...]:
    found = set()
    for number, node in nodes.items():
        for path, text in node.items():
            if not path.startswith("io_links/"):
                continue
            link = properties(text)
            first, second = order.get(number), order.get(link.get("node_to", -1))
            kind = {_XGMI: "XGMI", _PCIE: "PCIE"}.get(link.get("type", 0))
            if first is not None and second is not None and first < second and kind:
                found.add((first, second, kind))
    return tuple(
        Link(vendor="amd", first=first, second=second, kind=kind) for first, second, kind in sorted(found)
    )
