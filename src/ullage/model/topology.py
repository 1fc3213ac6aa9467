"""What is near what inside one machine: zones, CPUs, devices, and the paths between cards.

A record is what was discovered or told, checked once and then frozen. What is unknown stays unknown: an
empty set of zones is never zone 0. A *zone* is a NUMA node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32, check_amount

MAX_ZONES = 64
"""Zone ids are below this."""

MAX_ZONE_BYTES = 2**56
"""Memory of one zone: 64 zones of it stay below 2^63."""

MAX_DISTANCE = 255
"""Of the firmware's table (ACPI SLIT); 10 is a zone to itself."""

MAX_DIGITS = 9
"""Of a count of zones in an option."""

CARD = "gpu"
"""The resource that stands for the cards of a node, whatever a cluster calls them."""
CPU = "cpu"
MEMORY = "memory"


class ZonePolicy(StrEnum):
    """How hints become a decision, in rising strictness. The names are the kubelet's."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_ZONE = "single-numa-node"

    @property
    def rank(self) -> int:
        """Its place in the order of strictness, 0 for none."""
        return list(ZonePolicy).index(self)

    @property
    def required(self) -> bool:
        """Whether it refuses what it cannot align."""
        return self in (ZonePolicy.RESTRICTED, ZonePolicy.SINGLE_ZONE)


class Scope(StrEnum):
    """What is aligned as one: each container by itself, or all of a pod."""

    CONTAINER = "container"
    POD = "pod"


class Path(StrEnum):
    """The way between two cards of a machine beside NVLink, as `nvidia-smi topo -m` names it."""

    BOARD = "BOARD"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    UNKNOWN = "X"


@dataclass(frozen=True, slots=True)
class Room:
    """An amount of one zone, in bytes or in devices: what is there, and what of it pods may have."""

    total: int
    allocatable: int


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: its memory, and its huge pages by page size in bytes. None: not known.

    `amounts` are of CPUs and of devices by resource (`gpu` for cards), from a source that knows no ids.
    """

    id: int
    memory: Room | None = None
    hugepages: Mapping[int, Room] = field(default_factory=dict)
    amounts: Mapping[str, Room] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Cpu:
    """A logical CPU. Core ids repeat on every socket: (socket, core) names a core. A zone of None is unknown."""

    id: int
    zone: int | None
    socket: int
    core: int


@dataclass(frozen=True, slots=True)
class Device:
    """A device that is no card, such as a NIC: `resource` is what a cluster asks for it by.

    It may lie in several zones; none means that they are not known. Without a driver `model` is its PCI
    vendor and device, `15b3:1021`.
    """

    resource: str
    index: int
    uuid: str
    bus_id: str | None = None
    zones: tuple[int, ...] = ()
    healthy: bool = True
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Link:
    """What joins two devices of a machine, by uuid: so many bonded NVLinks, and the path without them."""

    a: str
    b: str
    path: Path = Path.UNKNOWN
    nvlinks: int = 0


@dataclass(frozen=True, slots=True)
class Kubelet:
    """How the kubelet of a node aligns; where there is one, it decides and Ullage predicts.

    `options` are those of the topology manager, `cpu_options` those of the CPU manager, as text.
    """

    policy: ZonePolicy = ZonePolicy.NONE
    scope: Scope = Scope.CONTAINER
    options: Mapping[str, str] = field(default_factory=dict)
    static_cpus: bool = False
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    static_memory: bool = False

    @property
    def closest(self) -> bool:
        """Whether of equally wide masks the one whose zones are closest is fitter."""
        return self.options.get("prefer-closest-numa-nodes") == "true"

    @property
    def most_zones(self) -> int:
        """Zones above which its topology manager does not start, unless its policy is none."""
        text = self.options.get("max-allowable-numa-nodes", "")
        return int(text) if text.isascii() and text.isdigit() and len(text) <= MAX_DIGITS else 8


@dataclass(frozen=True, slots=True)
class Topology:
    """The record of one machine. `observed_at` is in seconds since the epoch, `source` who said it.

    `distances` has a row and a column per zone in the order of `zones`, or is empty. Of the CPUs,
    `reserved_cpus` are kept from work; where only a number is known, `reserved_count` of them are, in
    packing order. Cards are in the node's inventory; `devices` are all others. `kubelet` is None where
    Ullage itself binds.

    Raises:
        InvalidRequest: `topology-invalid`, the record contradicts itself; `amount-out-of-range`, a number
            is negative or too large. Whoever reads a record then goes on without one.

    """

    zones: tuple[Zone, ...] = ()
    distances: tuple[tuple[int, ...], ...] = ()
    cpus: tuple[Cpu, ...] = ()
    devices: tuple[Device, ...] = ()
    links: tuple[Link, ...] = ()
    reserved_cpus: frozenset[int] = frozenset()
    reserved_count: int = 0
    kubelet: Kubelet | None = None
    source: str = ""
    observed_at: float | None = None

    def __post_init__(self) -> None:
        ids = [zone.id for zone in self.zones]
        if ids != sorted(set(ids)) or not all(0 <= id_ < MAX_ZONES for id_ in ids):
            raise _broken("zones", ids, f"ids are ascending, each once, from 0 to {MAX_ZONES - 1}")
        self._check_distances()
        self._check_places(set(ids))
        for zone in self.zones:
            for room in (zone.memory, *zone.hugepages.values()):
                if room is not None:
                    check_amount(room.total, "memory", MAX_ZONE_BYTES)
                    check_amount(room.allocatable, "memory", MAX_ZONE_BYTES)
            for resource, room in zone.amounts.items():
                check_amount(room.total, resource, MAX_INT32)
                check_amount(room.allocatable, resource, MAX_INT32)
        for name in (device.index for device in self.devices):
            check_amount(name, "index", MAX_INT32)
        for link in self.links:
            check_amount(link.nvlinks, "nvlinks", MAX_INT32)
        check_amount(self.reserved_count, "reserved_count", MAX_INT32)

    def _check_distances(self) -> None:
        if not self.distances:
            return
        if [len(row) for row in self.distances] != [len(self.zones)] * len(self.zones):
            raise _broken("distances", [len(row) for row in self.distances], "give a row and a column per zone")
        for row in self.distances:
            for distance in row:
                check_amount(distance, "distances", MAX_DISTANCE)

    def _check_places(self, known: set[int]) -> None:
        ids = [cpu.id for cpu in self.cpus]
        if len(set(ids)) != len(ids):
            raise _broken("cpus", _repeated(ids), "name each CPU once")
        for cpu in self.cpus:
            for number in (cpu.id, cpu.socket, cpu.core):
                check_amount(number, "cpus", MAX_INT32)
            if cpu.zone is not None and cpu.zone not in known:
                raise _broken("cpus", cpu.zone, f"CPU {cpu.id} lies in a zone that is not listed")
        for device in self.devices:
            if not set(device.zones) <= known or list(device.zones) != sorted(set(device.zones)):
                raise _broken("devices", device.zones, f"{device.uuid} lies in listed zones, ascending, each once")

    @property
    def zone_ids(self) -> tuple[int, ...]:
        """Ids of all zones, ascending."""
        return tuple(zone.id for zone in self.zones)


def zones_of(told: object) -> tuple[int, ...]:
    """The zones that somebody tells of a device: a number, or several; what is negative or no number is unknown."""
    found = told if isinstance(told, Iterable) and not isinstance(told, str) else (told,)
    numbers = {zone for zone in found if isinstance(zone, int) and not isinstance(zone, bool)}
    return tuple(sorted(zone for zone in numbers if 0 <= zone < MAX_ZONES))


def as_mask(zones: Iterable[int]) -> int:
    """Zones as bits of a signed 64-bit number."""
    mask = sum(1 << zone for zone in zones)
    return mask - (1 << MAX_ZONES) if mask >> (MAX_ZONES - 1) else mask


def _broken(name: str, value: object, fix: str) -> InvalidRequest:
    return InvalidRequest(invalid(f"topology {name}", value, fix).message, code="topology-invalid", field=name)


def _repeated(ids: list[int]) -> list[int]:
    return sorted({id_ for id_, next_ in pairwise(sorted(ids)) if id_ == next_})
