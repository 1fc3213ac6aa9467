"""Device claims: requests, and their allocations (`resource.k8s.io/v1`)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ullage.model.affinity import ANY_NODE, NodeAffinity
from ullage.model.counted import counted
from ullage.model.slice_device import DeviceId
from ullage.model.taint import Toleration

MAX_RESULTS = 32
"""The most devices that one claim may be allocated."""

MAX_RESERVATIONS = 256
"""The most pods that one claim may be reserved for."""


@dataclass(frozen=True, slots=True)
class DeviceClass:
    """A class of devices, by expressions that all hold for its devices; a pod may request it by `resource`."""

    name: str
    selectors: tuple[str, ...] = ()
    resource: str = ""


@dataclass(frozen=True, slots=True)
class DeviceAlternative:
    """Devices of one class: `count` of them, or all (None), for which all of the expressions hold.

    `name` is that of the request, with that of the alternative behind a slash. `capacity` is the least that each
    device must have, in thousandths. A request with `admin` access takes nothing from others.
    """

    name: str
    device_class: str
    selectors: tuple[str, ...] = ()
    count: int | None = 1
    admin: bool = False
    tolerations: tuple[Toleration, ...] = ()
    capacity: Mapping[str, int] = field(default_factory=dict)

    def __str__(self) -> str:
        some = "all devices" if self.count is None else counted(self.count, "device")
        which = f" for which {' and '.join(self.selectors)}" if self.selectors else ""
        return f"{some} of class {self.device_class}{which}"


@dataclass(frozen=True, slots=True)
class DeviceRequest:
    """One request: the first of its alternatives that can be satisfied."""

    name: str
    alternatives: tuple[DeviceAlternative, ...]

    def __str__(self) -> str:
        return ", or ".join(map(str, self.alternatives))


@dataclass(frozen=True, slots=True)
class Constraint:
    """An attribute in which the devices of some requests (all, if none is named) must be equal, or `distinct`.

    Requests are named as they are, or by one alternative behind a slash.
    """

    attribute: str
    requests: tuple[str, ...] = ()
    distinct: bool = False

    def applies_to(self, name: str) -> bool:
        return not self.requests or name in self.requests or name.partition("/")[0] in self.requests


@dataclass(frozen=True, slots=True)
class DeviceResult:
    """A device that was allocated to a request; `consumed` is what a share of it takes, in thousandths."""

    request: str
    device: DeviceId
    admin: bool = False
    share: str = ""
    consumed: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ClaimAllocation:
    """The devices of an allocated claim, and the nodes on which it can be used."""

    results: tuple[DeviceResult, ...] = ()
    nodes: NodeAffinity = ANY_NODE


@dataclass(frozen=True, slots=True)
class UnreadDevices:
    """The possible devices of an unreadable claim: those of `pools` (driver and name) that reach `nodes`.

    Without pools they can be of any pool, without nodes on any node.
    """

    nodes: frozenset[str] = frozenset()
    pools: frozenset[tuple[str, str]] = frozenset()

    def applies_to(self, driver: str, pool: str) -> bool:
        """Return whether they can be of a pool; a pool without a readable name is any of its driver."""
        return not self.pools or not self.pools.isdisjoint({(driver, pool), (driver, "")})

    def __str__(self) -> str:
        pools = " or ".join(f"{name or 'any pool'} of {driver}" for driver, name in sorted(self.pools))
        nodes = ", ".join(sorted(self.nodes))
        return f"{pools or 'any driver'} on {nodes or 'any node'}"


@dataclass(frozen=True, slots=True)
class DeviceClaim:
    """One claim as the API has it. `reserved_for` are uids of its users, `owner` the pod it was made for.

    `extended`: a scheduler made it for the extended resources of the pod's containers. `labels` name the queue in
    which it counts, as those of a pod do.
    """

    uid: str
    namespace: str
    name: str
    requests: tuple[DeviceRequest, ...] = ()
    constraints: tuple[Constraint, ...] = ()
    allocation: ClaimAllocation | None = None
    reserved_for: tuple[str, ...] = ()
    owner: str = ""
    deleting: bool = False
    extended: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
