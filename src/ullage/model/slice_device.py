"""A device that a driver offers to claims (dynamic resource allocation)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device of a pool; driver, pool and name together identify it.

    `node` is "" if several nodes can reach it. `zones` are ascending; no zones means that they are not known.
    `pcie_root` and `bus_id` are as the driver tells them.
    """

    driver: str
    pool: str
    name: str
    node: str = ""
    zones: tuple[int, ...] = ()
    uuid: str = ""
    pcie_root: str | None = None
    bus_id: str | None = None


def common_zones(devices: Iterable[SliceDevice]) -> tuple[int, ...]:
    """The zones that all of these devices lie in, ascending.

    The constraint of a claim that zones match holds if there is one. A device of unknown zone matches nothing.
    """
    places = [set(device.zones) for device in devices]
    return tuple(sorted(set.intersection(*places))) if places else ()
