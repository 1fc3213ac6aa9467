"""What of devices is in use: devices held alone, shares of capacities, and the counters that devices draw from."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import TypeVar

from ullage.model.device_claim import DeviceResult
from ullage.model.slice_device import DeviceId, Pool, SliceDevice

Consumed = Mapping[str, int]
K = TypeVar("K", bound=Hashable)


def consumption(device: SliceDevice, asked: Mapping[str, int]) -> Consumed | None:
    """Return what a request takes of a device, apart from its other users; None if it cannot have what it asks.

    Of a device that is held alone nothing is taken apart, but it has to have what is asked.
    """
    wanted: dict[str, int] = {}
    for name, amount in asked.items():
        key = device.qualified(name)
        if key in wanted or key not in device.capacity:
            return None
        wanted[key] = amount
    taken: dict[str, int] = {}
    if not device.shareable:
        enough = all(amount <= device.capacity[name].amount for name, amount in wanted.items())
        return {} if enough else None
    for name, capacity in device.capacity.items():
        part = capacity.taken(wanted.get(name))
        if part is None:
            return None
        taken[name] = part
    return taken


class DeviceUse:
    """Counts of what is in use; every `take` has one `give`. Admin access is not counted."""

    def __init__(self, pools: Mapping[tuple[str, str], Pool]) -> None:
        self._pools = pools
        self._held: dict[DeviceId, int] = {}
        self._shares: dict[tuple[DeviceId, str], int] = {}
        self._counters: dict[tuple[str, str, str, str], int] = {}

    def fits(self, device: SliceDevice, consumed: Consumed) -> bool:
        """Return whether one more may have it: nobody holds it, or its capacities and its counters suffice."""
        id_ = device.id
        if not device.shareable and id_ in self._held:
            return False
        for name, amount in consumed.items():
            if self._shares.get((id_, name), 0) + amount > device.capacity[name].amount:
                return False
        if device.shareable and id_ in self._held:
            return True  # its counters are taken once
        pool = self._pools.get((device.driver, device.pool))
        totals = {} if pool is None else pool.counters
        for group, counters in device.counters.items():
            for counter, amount in counters.items():
                used = self._counters.get((device.driver, device.pool, group, counter), 0)
                if used + amount > totals.get(group, {}).get(counter, 0):
                    return False
        return True

    def take(self, device: SliceDevice, consumed: Consumed) -> None:
        """Note that one more pod has the device."""
        self._count(device.id, device, consumed, 1)

    def give(self, device: SliceDevice, consumed: Consumed) -> None:
        """One has given it back."""
        self._count(device.id, device, consumed, -1)

    def enter(self, result: DeviceResult, device: SliceDevice | None) -> None:
        """Count what is allocated as used, also of a device that is no longer offered."""
        if not result.admin:
            self._count(result.device, device, result.consumed, 1)

    def _count(self, id_: DeviceId, device: SliceDevice | None, consumed: Consumed, sign: int) -> None:
        before = self._held.get(id_, 0)
        _add(self._held, id_, sign)
        for name, amount in consumed.items():
            _add(self._shares, (id_, name), sign * amount)
        if device is not None and 0 in (before, before + sign):
            for group, counters in device.counters.items():
                for counter, amount in counters.items():
                    _add(self._counters, (device.driver, device.pool, group, counter), sign * amount)


def _add(counts: dict[K, int], key: K, amount: int) -> None:
    left = counts.get(key, 0) + amount
    if left:
        counts[key] = left
    else:
        counts.pop(key, None)
