"""What a pod gets in the zones of one machine, in plain Python and slowly: every hint and every choice is written out.

It follows the rules as the kubelet states them, and looks at nothing but the records of `ullage.model`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from tests.core.zone_hints import Hint, Merged

from ullage.model.alignment import AlignmentStage, ContainerNeeds
from ullage.model.node import Node
from ullage.model.topology import CARD, CPU, MEMORY, Kubelet, Scope, Topology, ZonePolicy

BEST, RESTRICTED, SINGLE = ZonePolicy.BEST_EFFORT, ZonePolicy.RESTRICTED, ZonePolicy.SINGLE_ZONE


def masks_of(zones: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Every set of zones that is not empty, by size and then in lexicographic order."""
    for size in range(1, len(zones) + 1):
        yield from itertools.combinations(zones, size)


def product_merge(
    zones: Sequence[int], lists: Sequence[list[Hint] | None], policy: ZonePolicy, far: Sequence[Sequence[int]]
) -> Merged:
    """The merge of hints by all choices of one hint per resource; `far` has a row and a column per zone, or none."""
    every = frozenset(zones)
    padded = [[Hint(None, True)] if one is None else one or [Hint(None, False)] for one in lists]
    if policy is SINGLE:
        far = []
        padded = [
            [one for one in some if one.preferred and (one.zones is None or len(one.zones) == 1)] for some in padded
        ]
    candidates = set()
    for choice in itertools.product(*padded):
        named = [frozenset(one.zones) for one in choice if one.zones is not None]
        mask = every.intersection(*named) if named else every
        if mask:
            candidates.add((mask, all(one.preferred for one in choice) and len(set(named)) < 2))

    def rank(mask: frozenset[int]) -> tuple[int, int, int]:
        places = [place for place, zone in enumerate(zones) if zone in mask]
        spread = sum(far[a][b] for a in places for b in places) if far else 0
        return len(mask), spread, sum(1 << place for place in places)

    preferred = [mask for mask, liked in candidates if liked]
    masks = [mask for mask, _ in candidates]
    widths = [[len(one.zones) for one in some if one.zones is not None] for some in padded]
    most = max((min(some) for some in widths if some), default=0)
    exact = [mask for mask in masks if len(mask) == most]
    below = [mask for mask in masks if len(mask) < most]
    widest = [mask for mask in below if len(mask) == max(map(len, below))]
    found = min(preferred or exact or widest or masks or [every], key=rank)
    zones_of = None if policy is SINGLE and found == every else tuple(sorted(found))
    return Merged(Hint(zones_of, bool(preferred)), bool(preferred) or policy is BEST)


@dataclass(frozen=True)
class Unit:
    """A card, a CPU or a device: what it is found by, where it lies, and in which order it is given out."""

    name: object
    zones: tuple[int, ...]
    place: int = 0
    socket: int = 0
    core: tuple[int, int] = (0, 0)


@dataclass
class Books:
    """What of a machine is there, and what is free: units by resource, and bytes by zone."""

    node: Node
    every: dict[str, list[Unit]] = field(default_factory=dict)
    free: dict[str, set[object]] = field(default_factory=dict)
    bytes_free: dict[int, int] = field(default_factory=dict)

    @property
    def topology(self) -> Topology:
        """The record of its zones."""
        assert self.node.topology is not None
        return self.node.topology

    @classmethod
    def of(cls, node: Node) -> Books:
        """A machine on which nothing runs."""
        books = cls(node)
        topology = books.topology
        books.every[CARD] = [Unit(card.uuid, card.zones, card.index) for card in node.gpus]
        books.free[CARD] = {card.uuid for card in node.gpus if card.usable}
        for device in topology.devices:
            books.every.setdefault(device.resource, []).append(Unit(device.uuid, device.zones, device.index))
            books.free.setdefault(device.resource, set()).update([device.uuid] if device.healthy else [])
        books.every[CPU] = [
            Unit(cpu.id, () if cpu.zone is None else (cpu.zone,), cpu.id, cpu.socket, (cpu.socket, cpu.core))
            for cpu in topology.cpus
        ]
        books.free[CPU] = {cpu.id for cpu in topology.cpus} - topology.reserved_cpus
        if topology.reserved_count and not topology.reserved_cpus:
            books.free[CPU] -= {
                unit.name for unit in packed(books.every[CPU], books.every[CPU], topology.reserved_count)
            }
        books.bytes_free = {zone.id: zone.memory.allocatable for zone in topology.zones if zone.memory is not None}
        return books


@dataclass
class Held:
    """What a pod has: units by resource and bytes by zone; `spare` is what finished init containers left to it."""

    units: dict[str, set[object]] = field(default_factory=dict)
    spare: dict[str, set[object]] = field(default_factory=dict)
    memory: dict[int, int] = field(default_factory=dict)
    peak: dict[int, int] = field(default_factory=dict)

    def names(self, resource: str) -> set[object]:
        """All that it has of a resource, used or left over."""
        return self.units.get(resource, set()) | self.spare.get(resource, set())

    def end(self, stage: AlignmentStage, taken: dict[str, set[object]], memory: dict[int, int]) -> None:
        """A container has taken so much: an init container gives it back to its pod, another one keeps it."""
        to = self.spare if stage is AlignmentStage.INIT else self.units
        for resource, names in taken.items():
            self.spare[resource] = self.spare.get(resource, set()) - names
            to.setdefault(resource, set()).update(names)
        beside = {zone: self.memory.get(zone, 0) + amount for zone, amount in memory.items()}
        self.peak |= {zone: max(self.peak.get(zone, 0), amount) for zone, amount in beside.items()}
        if stage is not AlignmentStage.INIT:
            self.memory |= beside


def amounts_of(needs: ContainerNeeds) -> dict[str, int]:
    """What a container asks for, by resource."""
    found = {CPU: needs.cpus, MEMORY: needs.memory_bytes, **dict(needs.devices)}
    return {resource: amount for resource, amount in found.items() if amount}


def effective(containers: Sequence[ContainerNeeds]) -> dict[str, int]:
    """What a pod needs at its peak."""
    together: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in containers:
        for resource, amount in amounts_of(container).items():
            beside = together.get(resource, 0) + amount
            peak[resource] = max(peak.get(resource, 0), beside)
            if container.stage is not AlignmentStage.INIT:
                together[resource] = beside
    return peak


def predict(books: Books, kubelet: Kubelet, containers: Sequence[ContainerNeeds]) -> Held | None:
    """What a pod holds on a machine whose kubelet decides; None if it is refused."""
    held = Held()
    whole = merged(books, kubelet, effective(containers), held) if kubelet.scope is Scope.POD else None
    for container in containers:
        amounts = amounts_of(container)
        found = whole or merged(books, kubelet, amounts, held)
        if not found.admitted:
            return None
        taken: dict[str, set[object]] = {}
        memory: dict[int, int] = {}
        for resource, amount in amounts.items():
            if not is_managed(books, resource, cpus=kubelet.static_cpus, memory=kubelet.static_memory):
                continue
            if resource == MEMORY:
                memory = _bytes(books, held, amount, found.hint.zones)
                if sum(memory.values()) < amount:
                    return None
                continue
            units = _units(books, held, resource, amount, found.hint.zones)
            if len(units) < amount:
                return None
            taken[resource] = {unit.name for unit in units}
        held.end(container.stage, taken, memory)
    return held


def is_managed(books: Books, resource: str, *, cpus: bool, memory: bool) -> bool:
    """Whether a machine hands a resource out by zones: it lists some of it, and somebody manages it."""
    if resource == CARD:
        return True
    if resource == MEMORY:
        return memory and bool(books.bytes_free)
    return bool(books.every.get(resource)) and (cpus or resource != CPU)


def merged(books: Books, kubelet: Kubelet, amounts: dict[str, int], held: Held) -> Merged:
    """The merge of the hints for these amounts."""
    if kubelet.policy is ZonePolicy.NONE:
        return Merged(Hint(None, True), True)
    lists = [
        hints_of(books, resource, amount, held)
        for resource, amount in amounts.items()
        if is_managed(books, resource, cpus=kubelet.static_cpus, memory=kubelet.static_memory)
    ]
    far = books.topology.distances if kubelet.closest else ()
    return product_merge(books.topology.zone_ids, lists, kubelet.policy, far)


def hints_of(books: Books, resource: str, amount: int, held: Held, *, by_free: bool = False) -> list[Hint] | None:
    """Every mask that has enough left; preferred ones are as narrow as all that there is allows, or what is free."""
    units, spare = books.every.get(resource, []), held.spare.get(resource, set())
    zones = [zone for zone in books.topology.zone_ids if resource != CPU or any(zone in unit.zones for unit in units)]
    free = books.free.get(resource, set()) - held.units.get(resource, set()) | spare
    total_in, free_in = {}, {}
    for mask in masks_of(zones):
        if resource == MEMORY:
            total_in[mask] = sum(Books.of(books.node).bytes_free.get(zone, 0) for zone in mask)
            free_in[mask] = sum(max(0, _left(books, held, zone)) for zone in mask)
        else:
            near = [unit for unit in units if set(unit.zones) & set(mask)]
            total_in[mask], free_in[mask] = len(near), sum(unit.name in free for unit in near)
    if not any(total_in.values()):
        return None
    by = free_in if by_free else total_in
    narrowest = min((len(mask) for mask in by if by[mask] >= amount), default=len(zones))
    again = [unit.zones for unit in units if unit.name in spare and unit.zones]
    return [
        Hint(mask, len(mask) == narrowest)
        for mask in free_in
        if free_in[mask] >= amount and all(set(mask) & set(there) for there in again)
    ]


def _left(books: Books, held: Held, zone: int) -> int:
    return books.bytes_free.get(zone, 0) - held.memory.get(zone, 0)


def _bytes(books: Books, held: Held, amount: int, mask: tuple[int, ...] | None) -> dict[int, int]:
    """Bytes of the zones of the mask first, the lowest zone first."""
    found: dict[int, int] = {}
    zones = sorted(books.bytes_free)
    for zone in sorted(zones, key=lambda zone: (mask is not None and zone not in mask, zone)):
        some = min(amount - sum(found.values()), max(0, _left(books, held, zone)))
        if some > 0:
            found[zone] = some
    return found


def _units(books: Books, held: Held, resource: str, amount: int, mask: tuple[int, ...] | None) -> list[Unit]:
    """So many units, or as many as there are."""
    every, spare = books.every[resource], held.spare.get(resource, set())
    free = [u for u in every if u.name in books.free[resource] and u.name not in held.names(resource)]

    def near(unit: Unit) -> bool:
        return mask is None or bool(set(unit.zones) & set(mask))

    if resource == CPU:
        usable = [unit for unit in every if unit in free or unit.name in spare]
        first = packed(every, [unit for unit in usable if near(unit)], amount)
        return first + packed(every, [unit for unit in usable if unit not in first], amount - len(first))
    again = [unit for unit in every if unit.name in spare]
    steps = again, [u for u in free if near(u)], [u for u in free if u.zones], free
    found: dict[object, Unit] = {}
    for step in steps:
        for unit in sorted(step, key=lambda unit: unit.place):
            if len(found) < amount:
                found.setdefault(unit.name, unit)
    return list(found.values())


def packed(every: Sequence[Unit], usable: Sequence[Unit], amount: int) -> list[Unit]:
    """Whole zones and sockets, the larger ones first, whole cores, single CPUs; those first that fewest are left of."""
    found: list[Unit] = []

    def zone(unit: Unit) -> int:
        return unit.zones[0] if unit.zones else 64

    def socket(unit: Unit) -> int:
        return unit.socket

    def core(unit: Unit) -> int:
        return min(other.place for other in every if other.core == unit.core)

    levels = (
        [zone, socket, core] if len(set(map(socket, every))) >= len(set(map(zone, every))) else [socket, zone, core]
    )

    def group(unit: Unit, level: Callable[[Unit], int]) -> list[Unit]:
        return [other for other in every if level(other) == level(unit)]

    def left(unit: Unit, level: Callable[[Unit], int]) -> list[Unit]:
        return [other for other in group(unit, level) if other in usable and other not in found]

    def order(unit: Unit) -> list[tuple[int, int]]:
        return [(len(left(unit, level)), level(unit)) for level in levels]

    for depth, level in enumerate(levels):
        for unit in sorted(usable, key=lambda unit: order(unit)[: depth + 1]):
            whole = group(unit, level)
            if len(left(unit, level)) == len(whole) <= amount - len(found):
                found += whole
    ends = sorted(usable, key=lambda unit: (order(unit), unit.place))
    return found + [unit for unit in ends if unit not in found][: amount - len(found)]
