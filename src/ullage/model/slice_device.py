"""Devices that drivers offer to claims (dynamic resource allocation), and their pools.

Amounts of capacities and counters are thousandths of a quantity. Names of attributes and capacities always have a
domain: a name without one is in the driver's own.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from ullage.model.affinity import ANY_NODE, NodeAffinity
from ullage.model.taint import Taint


class ValueKind(StrEnum):
    """The type of an attribute: values of different types are never equal."""

    INT = "int"
    BOOL = "bool"
    STRING = "string"
    VERSION = "version"


@dataclass(frozen=True, slots=True)
class Attribute:
    """One value, or a list of them; versions are unchanged texts."""

    kind: ValueKind
    values: tuple[int | bool | str, ...]
    listed: bool = False

    @property
    def match_values(self) -> frozenset[tuple[ValueKind, int | bool | str]]:
        """The compared values: two attributes match if they have one of them in common."""
        versions = self.kind is ValueKind.VERSION
        return frozenset((self.kind, str(v).partition("+")[0] if versions else v) for v in self.values)


@dataclass(frozen=True, slots=True)
class RequestPolicy:
    """How much of a capacity one share may take: one of `values`, or from `least` to `most` in steps of `step`.

    `default` is what a request takes that states no amount.
    """

    default: int | None = None
    values: tuple[int, ...] = ()
    least: int | None = None
    most: int | None = None
    step: int | None = None

    def round_up(self, asked: int) -> int | None:
        """Return the smallest permitted amount that suffices; None if there is none."""
        if self.values:
            return min((value for value in self.values if value >= asked), default=None)
        if self.least is None:
            return asked
        amount = max(asked, self.least)
        if self.step:
            amount = self.least + -(-(amount - self.least) // self.step) * self.step
        return None if self.most is not None and amount > self.most else amount


@dataclass(frozen=True, slots=True)
class Capacity:
    """The capacity of a device; without a policy any part of it may be taken, by default all of it."""

    amount: int
    policy: RequestPolicy | None = None

    def taken(self, asked: int | None) -> int | None:
        """Return what a share takes that requests this amount, or the default; None if that is impossible."""
        if asked is None:
            default = None if self.policy is None else self.policy.default
            return self.amount if default is None else default
        taken = asked if self.policy is None else self.policy.round_up(asked)
        return taken if taken is not None and taken <= self.amount else None


class DeviceId(NamedTuple):
    """Driver, pool and name: together they identify a device."""

    driver: str
    pool: str
    name: str


Counters = Mapping[str, Mapping[str, int]]
"""Amounts by counter set and counter."""


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device of a pool.

    `node` is "" if several nodes can reach it: those that `nodes` allows. `zones` are ascending; no zones means that
    they are not known. `pcie_root` and `bus_id` are as the driver reports them. `counters` is what it takes of the
    pool's counters while it is in use; a `shareable` one may be given to several requests at a time, each of which
    takes of its capacities. Conditions are those that its driver sets before, or instead of, the start of a pod.
    """

    driver: str
    pool: str
    name: str
    node: str = ""
    zones: tuple[int, ...] = ()
    uuid: str = ""
    pcie_root: str | None = None
    bus_id: str | None = None
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    capacity: Mapping[str, Capacity] = field(default_factory=dict)
    counters: Counters = field(default_factory=dict)
    taints: tuple[Taint, ...] = ()
    nodes: NodeAffinity = ANY_NODE
    shareable: bool = False
    binds_to_node: bool = False
    binding_conditions: tuple[str, ...] = ()
    failure_conditions: tuple[str, ...] = ()

    @property
    def id(self) -> DeviceId:
        return DeviceId(self.driver, self.pool, self.name)

    def reaches(self, node: str, labels: Mapping[str, str]) -> bool:
        return self.node == node if self.node else self.nodes.allows(node, labels)

    def qualified(self, name: str) -> str:
        """Return the name of an attribute or a capacity with its domain."""
        return name if "/" in name else f"{self.driver}/{name}"

    def text(self, name: str) -> str:
        """Return the text value of an attribute; "" if it has none."""
        found = self.attributes.get(self.qualified(name))
        return str(found.values[0]) if found and found.kind is ValueKind.STRING and not found.listed else ""


@dataclass(frozen=True, slots=True)
class Pool:
    """The devices of the newest generation of a pool, in the order of their names.

    One that is not `complete` has no usable devices: slices of it are missing, or contradict each other.
    """

    driver: str
    name: str
    devices: tuple[SliceDevice, ...] = ()
    counters: Counters = field(default_factory=dict)
    complete: bool = True


@dataclass(frozen=True, slots=True)
class TaintRule:
    """A taint for every device of this driver, pool and name; an empty one matches any."""

    taint: Taint
    driver: str = ""
    pool: str = ""
    device: str = ""

    def applies_to(self, device: SliceDevice) -> bool:
        named = (self.driver, device.driver), (self.pool, device.pool), (self.device, device.name)
        return all(name in ("", own) for name, own in named)
