"""The topology of one machine: zones, CPUs, devices, and the paths between cards.

A record is discovered or reported, checked once and then frozen. Unknown facts stay unknown: an empty set of zones is
never zone 0. A *zone* is a NUMA node.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise

from ullage.model.error import InvalidRequest, invalid
from ullage.model.quantity import MAX_INT32, check_amount, is_whole

MAX_ZONES = 64
"""Zone ids are below this."""

MAX_ZONE_BYTES = 2**56
"""Memory of one zone: 64 zones of it stay below 2^63."""

MAX_DISTANCE = 255
"""The largest distance in the firmware's table (ACPI SLIT); 10 is a zone to itself."""

_TRUE = ("1", "t", "T", "true", "TRUE", "True")
"""The true values of an option (Go's strconv.ParseBool)."""

_FALSE = ("0", "f", "F", "false", "FALSE", "False", "")

_MODELLED = ("full-pcpus-only", "strict-cpu-reservation", "prefer-closest-numa-nodes")
"""Options that predictions follow."""

_NUMBERS = ("max-allowable-numa-nodes",)
"""Options that do not affect the decision on a container."""

CARD = "gpu"
"""The resource of a node's cards, for any name in the cluster."""
CPU = "cpu"
MEMORY = "memory"
HUGEPAGES = "hugepages-"
"""The prefix of the resource of huge pages of a size: `hugepages-2Mi`."""


class ZonePolicy(StrEnum):
    """How hints become a decision, in rising strictness. The names are the kubelet's."""

    NONE = "none"
    BEST_EFFORT = "best-effort"
    RESTRICTED = "restricted"
    SINGLE_ZONE = "single-numa-node"

    @property
    def rank(self) -> int:
        """The strictness, from 0 for none."""
        return list(ZonePolicy).index(self)

    @property
    def required(self) -> bool:
        """Whether it refuses requests that it cannot align."""
        return self in (ZonePolicy.RESTRICTED, ZonePolicy.SINGLE_ZONE)


class Scope(StrEnum):
    """The unit of alignment: each container by itself, or all of a pod."""

    CONTAINER = "container"
    POD = "pod"


class Path(StrEnum):
    """The path between two cards of a machine apart from NVLink, as `nvidia-smi topo -m` names it."""

    BOARD = "BOARD"
    PIX = "PIX"
    PXB = "PXB"
    PHB = "PHB"
    NODE = "NODE"
    SYS = "SYS"
    UNKNOWN = "X"


@dataclass(frozen=True, slots=True)
class Room:
    """An amount in one zone, in bytes or in devices: the total, and the part that work may have."""

    total: int
    allocatable: int


@dataclass(frozen=True, slots=True)
class Zone:
    """One NUMA node: its memory (None: not known), and its huge pages by page size, all in bytes.

    A source that knows no ids gives `amounts` instead: how many CPUs and devices by resource (`gpu` for cards).
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
    """A device that is not a card, such as a NIC; `resource` is the name with which a cluster requests it.

    It may lie in several zones; no zones means that they are not known. Without a driver, `model` is its PCI vendor
    and device: `15b3:1021`.
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
    """The link of two devices of a machine, by uuid: the number of bonded NVLinks, and the PCIe path."""

    a: str
    b: str
    path: Path = Path.UNKNOWN
    nvlinks: int = 0


class CardPicker(StrEnum):
    """Who picks the cards of a request on a node with a kubelet, and how.

    `lowest`: its device plugin takes any; the lowest indices predict it. `partition`: NVIDIA's plugin, by links.
    `named`: the plugin hands out the cards that the scheduler names.
    """

    LOWEST = "lowest"
    PARTITION = "partition"
    NAMED = "named"


@dataclass(frozen=True, slots=True)
class Kubelet:
    """How the kubelet of a node aligns; where there is one, it decides and Ullage predicts.

    `options` are those of the topology manager, `cpu_options` those of the CPU manager, as text. `picks` says how its
    device plugin chooses cards, as far as the zones leave a choice.
    """

    policy: ZonePolicy = ZonePolicy.NONE
    scope: Scope = Scope.CONTAINER
    options: Mapping[str, str] = field(default_factory=dict)
    static_cpus: bool = False
    cpu_options: Mapping[str, str] = field(default_factory=dict)
    static_memory: bool = False
    picks: CardPicker = CardPicker.LOWEST

    @property
    def closest(self) -> bool:
        """Whether, of equally wide masks, the one with the closest zones is preferred."""
        return self.options.get("prefer-closest-numa-nodes") in _TRUE

    @property
    def whole_cores(self) -> bool:
        """Whether a container gets exclusive CPUs as whole cores or not at all."""
        return self.static_cpus and self.cpu_options.get("full-pcpus-only") in _TRUE

    @property
    def unmodelled(self) -> tuple[str, ...]:
        """The enabled options that predictions do not follow, ascending: predictions for its node are weaker.

        Options of a CPU manager that hands out no exclusive CPUs, and of a topology manager that does not align, have
        no effect.
        """
        options = {**(self.cpu_options if self.static_cpus else {})}
        options |= self.options if self.policy is not ZonePolicy.NONE else {}
        return tuple(
            sorted(name for name in options if name not in _MODELLED + _NUMBERS and options[name] not in _FALSE)
        )


@dataclass(frozen=True, slots=True)
class Topology:
    """The record of one machine. `observed_at` is in seconds since the epoch, `source` is its origin.

    `distances` has a row and a column per zone in the order of `zones`, or is empty. `reserved_cpus` are reserved from
    work; where only their number is known, `reserved_count` CPUs are, in packing order. Cards are in the node's
    inventory, `devices` are all others. `kubelet` is None where Ullage itself binds.

    Raises:
        InvalidRequest: `topology-invalid`, the record contradicts itself; `amount-out-of-range`, a number
            is negative or too large. The reader then goes on without a record.

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
        self._check_zones()
        self._check_distances()
        self._check_cpus()
        self._check_devices()
        for link in self.links:
            check_amount(link.nvlinks, "topology links.nvlinks", MAX_INT32)
        check_amount(self.reserved_count, "topology reserved_count", MAX_INT32)

    def _check_zones(self) -> None:
        ids = [zone.id for zone in self.zones]
        if ids != sorted(set(ids)) or not all(0 <= id_ < MAX_ZONES for id_ in ids):
            raise _broken("zones", ids, f"name each zone once, in ascending order, by an id from 0 to {MAX_ZONES - 1}")
        for zone in self.zones:
            rooms = {f"hugepages.{size}": room for size, room in zone.hugepages.items()}
            if zone.memory is not None:
                rooms["memory"] = zone.memory
            for name, room in rooms.items():
                _check_room(room, f"topology zones.{zone.id}.{name}", MAX_ZONE_BYTES)
            for resource, room in zone.amounts.items():
                _check_room(room, f"topology zones.{zone.id}.{resource}", MAX_INT32)

    def _check_distances(self) -> None:
        if not self.distances:
            return
        if [len(row) for row in self.distances] != [len(self.zones)] * len(self.zones):
            raise _broken("distances", [len(row) for row in self.distances], "give a row and a column per zone")
        for row in self.distances:
            for distance in row:
                check_amount(distance, "topology distances", MAX_DISTANCE)

    def _check_cpus(self) -> None:
        known, ids = set(self.zone_ids), [cpu.id for cpu in self.cpus]
        if len(set(ids)) != len(ids):
            raise _broken("cpus", _repeated(ids), "name each CPU once")
        for cpu in self.cpus:
            for name, number in (("id", cpu.id), ("socket", cpu.socket), ("core", cpu.core)):
                check_amount(number, f"topology cpus.{name}", MAX_INT32)
            if cpu.zone is not None and cpu.zone not in known:
                raise _broken(f"cpus.{cpu.id}.zone", cpu.zone, "name a zone that is listed, or none if it is not known")

    def _check_devices(self) -> None:
        known = set(self.zone_ids)
        for device in self.devices:
            check_amount(device.index, "topology devices.index", MAX_INT32)
            if not set(device.zones) <= known or list(device.zones) != sorted(set(device.zones)):
                name = f"devices.{device.uuid}.zones"
                raise _broken(name, device.zones, "name zones that are listed, each once, in ascending order")

    @property
    def zone_ids(self) -> tuple[int, ...]:
        """Ids of all zones, ascending."""
        return tuple(zone.id for zone in self.zones)


def zones_of(value: object) -> tuple[int, ...]:
    """Return the zones, ascending, of a device for which a source reports one zone or several.

    Values that are negative, too large or not numbers are unknown zones, and left out.
    """
    given = value if isinstance(value, Iterable) and not isinstance(value, str) else (value,)
    numbers = {zone for zone in given if is_whole(zone)}
    return tuple(sorted(zone for zone in numbers if 0 <= zone < MAX_ZONES))


def as_mask(zones: Iterable[int]) -> int:
    """Return zones as bits of a signed 64-bit number."""
    mask = sum(1 << zone for zone in zones)
    return mask - (1 << MAX_ZONES) if mask >> (MAX_ZONES - 1) else mask


def _check_room(room: Room, field: str, most: int) -> None:
    check_amount(room.total, f"{field}.total", most)
    check_amount(room.allocatable, f"{field}.allocatable", most)


def _broken(name: str, value: object, fix: str) -> InvalidRequest:
    return InvalidRequest(invalid(f"topology {name}", value, fix).message, code="topology-invalid", field=name)


def _repeated(ids: list[int]) -> list[int]:
    return sorted({id_ for id_, next_ in pairwise(sorted(ids)) if id_ == next_})
