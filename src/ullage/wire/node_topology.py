"""What is near what in a machine, as `GET /v1/nodes/{name}/topology` answers it."""

from __future__ import annotations

from ullage.wire.api import View


class ZoneRoomBody(View, frozen=True, kw_only=True):
    """An amount of a zone, in bytes or in pieces, and what of it work may have."""

    total: int
    allocatable: int


class ZoneBody(View, frozen=True, kw_only=True):
    """A NUMA node. `cpus` is a set such as `0-15,32-47`; `hugepages` are in bytes by the size of a page in bytes.

    Of its CPUs somebody has `held_cpus` alone; none where nobody keeps books.
    `amounts` are of a source that knows how many there are of a resource, and not which.
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
    """A card and the zones it is near to; none: not known.

    `free` is the largest fraction that fits, None where nobody keeps books; `holders` are sessions, or
    executors without one.
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
    """A device that is no card of the node, such as a network adapter."""

    resource: str
    index: int
    uuid: str
    model: str | None
    bus_id: str | None
    zones: list[int]
    healthy: bool


class LinkBody(View, frozen=True, kw_only=True):
    """What joins two devices, by uuid: bonded NVLinks, and the path without them (`X`: not known)."""

    a: str
    b: str
    path: str
    nvlinks: int


class KubeletBody(View, frozen=True, kw_only=True):
    """How the kubelet of the machine aligns."""

    policy: str
    scope: str
    options: dict[str, str]
    static_cpus: bool
    cpu_options: dict[str, str]
    static_memory: bool


class TopologyBody(View, frozen=True, kw_only=True):
    """A machine drawn. A `source` of None says that its topology is not known; then only the cards are told.

    `distances` has a row and a column per zone, in their order, or is empty. `unplaced_cpus` are in no
    known zone; `reserved_cpus` are kept from work, and where only a number is known `reserved_count`.
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
