"""The topology of a machine, as `GET /v1/nodes/{name}/topology` returns it."""

from __future__ import annotations

from ullage.wire.api import View


class ZoneRoomBody(View, frozen=True, kw_only=True):
    """An amount in a zone, in bytes or in devices: the total, and how much of it work may have."""

    total: int
    allocatable: int


class ZoneBody(View, frozen=True, kw_only=True):
    """A NUMA node. `cpus` is a set such as `0-15,32-47`; `hugepages` are bytes by the size of a page in bytes.

    `held_cpus` are the CPUs held exclusively; there are none where no ledger is kept. `amounts` come from a source
    that knows how many of a resource there are, but not which.
    """

    id: int
    cpus: str
    held_cpus: str
    cores: int
    sockets: list[int]
    memory: ZoneRoomBody | None
    hugepages: dict[str, ZoneRoomBody]
    amounts: dict[str, ZoneRoomBody]


class PlacedCardBody(View, frozen=True, kw_only=True):
    """A card, and the zones that it is near; no zones means that they are not known.

    `free` is the largest fraction that fits, None where no ledger is kept. `holders` are sessions, or executors
    without one.
    """

    index: int
    uuid: str
    model: str | None
    bus_id: str | None
    zones: list[int]
    healthy: bool
    free: float | None
    holders: list[str]


class DeviceBody(View, frozen=True, kw_only=True):
    """A device that is not a card of the node, such as a network adapter."""

    resource: str
    index: int
    uuid: str
    model: str | None
    bus_id: str | None
    zones: list[int]
    healthy: bool


class LinkBody(View, frozen=True, kw_only=True):
    """The link of two devices, by uuid: the number of bonded NVLinks, and the PCIe path (`X`: not known)."""

    a: str
    b: str
    path: str
    nvlinks: int


class KubeletBody(View, frozen=True, kw_only=True):
    """How the kubelet of the machine aligns. `unmodelled` are enabled options that predictions do not follow."""

    policy: str
    scope: str
    options: dict[str, str]
    static_cpus: bool
    cpu_options: dict[str, str]
    static_memory: bool
    unmodelled: list[str]


class TopologyBody(View, frozen=True, kw_only=True):
    """The topology of a machine. A `source` of None means that it is not known; then there are only cards.

    `distances` has a row and a column per zone, in their order, or is empty. `unplaced_cpus` are of unknown zone.
    `reserved_cpus` are reserved from work; where only their number is known it is `reserved_count`.
    """

    node: str
    source: str | None
    observed_at: float | None
    note: str
    zones: list[ZoneBody]
    distances: list[list[int]]
    unplaced_cpus: str
    reserved_cpus: str
    reserved_count: int
    cards: list[PlacedCardBody]
    devices: list[DeviceBody]
    links: list[LinkBody]
    kubelet: KubeletBody | None
