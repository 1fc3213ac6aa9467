"""The topology of this machine, read again after possible changes.

A record that contradicts itself is refused as a whole, and the machine has none. An unreadable part is left out. A
note reports both.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from ullage.inventory.driver import DriverCard, read_driver, with_driver_facts
from ullage.inventory.files import read_text
from ullage.inventory.nvlink import NvLinkEnd, count_links
from ullage.inventory.nvml import CardReader, CardsUnreadable
from ullage.inventory.pci import MAX_DEVICES, PciDevice, list_addresses, read_devices
from ullage.inventory.topology import compose_topology, place_cards
from ullage.inventory.zone_record import read_zones
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.topology import Topology

REREAD_S = 60.0
"""Seconds after which everything is read again without a visible change: links and switches fail silently."""

_NVSWITCH = (0x10DE, 0x068000)
"""Vendor and kind of a switch between cards."""

_SHOWN_NOTES = 3


@dataclass(frozen=True, slots=True)
class Reading:
    """The record, or None; the cards with their zones; and a sentence about refused or omitted parts."""

    topology: Topology | None
    cards: tuple[Gpu, ...]
    note: str = ""


@dataclass(frozen=True, slots=True)
class _Found:
    """The last reading: the record, the zones of cards by uuid, and the driver's facts about them."""

    topology: Topology | None = None
    zones: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    reported: Mapping[str, DriverCard] = field(default_factory=dict)
    note: str = ""


class TopologyReader:
    """Reads one machine below `root`, and caches what it read. One instance serves one caller at a time.

    `now` is in seconds since the epoch; `steady` is monotonic.
    """

    def __init__(
        self,
        root: Path = Path("/"),
        now: Callable[[], float] = time.time,
        steady: Callable[[], float] = time.monotonic,
    ) -> None:
        self._root = root
        self._now = now
        self._steady = steady
        self._signs: object = None
        self._read_at = 0.0
        self._found = _Found()
        self._ends: tuple[NvLinkEnd, ...] = ()

    def read(self, cards: Sequence[Gpu], nvml: CardReader, usable_cpus: Collection[int]) -> Reading:
        """Return the topology of a machine that offers `cards`, and whose work may use `usable_cpus`.

        Malformed files are no error: the record is then None.
        """
        addresses = list_addresses(self._root)
        signs = (
            [read_text(self._root / "sys/devices/system" / name) for name in ("node/online", "cpu/online")],
            addresses,
            [(gpu.uuid, gpu.bus_id, gpu.zones, gpu.healthy) for gpu in cards],
            sorted(usable_cpus),
        )
        if signs != self._signs or self._steady() - self._read_at >= REREAD_S:
            self._found = self._read(cards, addresses, nvml, usable_cpus)
            self._signs, self._read_at = signs, self._steady()
        found = self._found
        named = (with_driver_facts(gpu, found.reported.get(gpu.uuid)) for gpu in cards)
        placed = tuple(replace(gpu, zones=found.zones[gpu.uuid]) for gpu in named)
        return Reading(found.topology, placed, found.note)

    def _read(
        self, cards: Sequence[Gpu], addresses: Sequence[str] | None, nvml: CardReader, usable_cpus: Collection[int]
    ) -> _Found:
        reported = read_driver(self._root)
        cards = [with_driver_facts(gpu, reported.get(gpu.uuid)) for gpu in cards]
        devices = read_devices(self._root, addresses or ())
        nvlinks, notes = self._nvlinks(cards, devices, nvml)
        if addresses is None:
            notes = (*notes, f"the PCI devices cannot be listed, or there are more than {MAX_DEVICES}: none is used")
        if silent := [address for address in addresses or () if address not in devices]:
            names = silent[0] if len(silent) == 1 else f"{silent[0]} and {len(silent) - 1} more"
            notes = (*notes, f"PCI: {names} cannot be read and is left out")
        topology = None
        try:
            record = read_zones(self._root)
            cards = place_cards(cards, devices, record)
            if record is not None:
                notes = (*record.notes, *notes)
                topology = self._dated(compose_topology(record, devices, cards, nvlinks, usable_cpus=usable_cpus))
        except InvalidRequest as error:
            cards = [replace(gpu, zones=()) for gpu in cards]
            notes = (f"the topology is not used: {error.message}",)
        return _Found(topology, {gpu.uuid: gpu.zones for gpu in cards}, reported, _sentence(notes))

    def _nvlinks(
        self, cards: Sequence[Gpu], devices: Mapping[str, PciDevice], nvml: CardReader
    ) -> tuple[Mapping[tuple[str, str], int], tuple[str, ...]]:
        """Return the NVLinks between the cards; without an answer of NVML, those of its last answer."""
        at = {gpu.bus_id: gpu.uuid for gpu in cards if gpu.bus_id is not None}
        if len(at) < 2:  # noqa: PLR2004 - a link has two ends; without cards the driver is not called
            return {}, ()
        with suppress(CardsUnreadable):
            self._ends = nvml.nvlinks()
        switches = [address for address, device in devices.items() if (device.vendor, device.kind) == _NVSWITCH]
        return count_links(self._ends, at, switches)

    def _dated(self, topology: Topology) -> Topology:
        """Return the record with its time.

        An unchanged record stays the same object, so that no change is reported.
        """
        last = self._found.topology
        if last is not None and replace(last, observed_at=None) == topology:
            return last
        return replace(topology, observed_at=self._now())


def _sentence(notes: Sequence[str]) -> str:
    shown = "; ".join(notes[:_SHOWN_NOTES])
    left = len(notes) - _SHOWN_NOTES
    return f"{shown}; and {left} more" if left > 0 else shown
