"""Rows of a tool as physical devices: in DPX, QPX and CPX modes each partition has a row of its own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from repro.host import Device, Partition

__all__ = ["Row", "fold"]


@dataclass(frozen=True, slots=True)
class Row:
    """What a tool lists as a device: one, or a part of one."""

    device: Device
    partition: int | None = None
    """Number of the part within its device; null where the tool does not say."""
    slot: str | None = None
    """Address without its function, by which parts of one device are told apart."""

    @classmethod
    def at(cls, device: Device, partition: int | None) -> Row:
        """Make a row whose slot follows from the device's address."""
        return cls(device, partition, device.pci.rpartition(".")[0] if device.pci else None)


def fold(rows: Iterable[Row]) -> tuple[Device, ...]:
    """Put the parts of each device together; rows without a sign of being parts stay devices of their own."""
    groups: list[list[Row]] = []
    for row in rows:
        home = next((group for group in groups if _belongs(row, group)), None)
        if home is None:
            groups.append([row])
        else:
            home.append(row)
    return tuple(_whole(group) for group in groups)


def _belongs(row: Row, group: list[Row]) -> bool:
    first, last = group[0].device, group[-1]
    if first.id and row.device.id and first.id != row.device.id:
        return False
    if group[0].slot or row.slot:
        return group[0].slot == row.slot
    if last.partition is None or row.partition is None:
        return False
    return row.partition == last.partition + 1 and group[0].partition == 0


def _whole(group: list[Row]) -> Device:
    """Return the device of a group. How large the whole is stays open: parts may be hidden here."""
    first = group[0].device
    partitioned = first.compute_partition not in (None, "SPX")
    if len(group) == 1 and not partitioned:
        return first
    return first.model_copy(
        update={
            "compute_units": None,
            "memory_mib": None,
            "partitions": tuple(_part(row, first, place) for place, row in enumerate(group)),
        }
    )


def _part(row: Row, first: Device, place: int) -> Partition:
    return Partition(
        kind="xcp",
        index=place if row.partition is None else row.partition,
        profile=first.compute_partition,
        memory_mib=row.device.memory_mib,
        compute_units=row.device.compute_units,
    )
