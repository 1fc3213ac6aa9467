"""The zones of all machines of a fleet as rows, and what allocations hold in them.

Law: what is free in the rows is what there is, less what is reserved, less what the placements in the ledger
hold. Rows are as `core/kernel/board.py` says; cards are columns of the fleet.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

import ullage.core.kernel.zones  # noqa: F401 - all steps of a decision are known with it
from ullage.core.kernel import board as at
from ullage.core.kernel import by_address
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.masks import MOST_ZONES
from ullage.core.kernel.pairs import BOUND, WISHED
from ullage.core.topology.cpus import groups_of, mark_broken_cores, reserve, threads_of
from ullage.core.topology.links import links_over
from ullage.core.topology.rules import AS_USUAL, WidthRule, ZoneRules
from ullage.model.alignment import ContainerNeeds, Level, Stage
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.provider import pages_of
from ullage.model.quantity import MAX_INT32
from ullage.model.request import ResourceRequirement
from ullage.model.resources import MILLI
from ullage.model.topology import CARD, CPU, MAX_ZONES, MEMORY, Topology, Zone, as_mask
from ullage.model.zone_placement import Rank, ZonePlacement

_MOST_NEEDS = 12
"""Counts by mask that have their room from the start."""

_NO_GROUPS = (0,) * (at.SUPPLY_COLUMNS - at.OUTER)
"""Of what is no CPU."""

_AMOUNT = (*_NO_GROUPS[: at.CORE - at.OUTER], -1, *_NO_GROUPS[at.CORE - at.OUTER + 1 :])
"""Of what is counted in a zone and has no ids."""

_Need = tuple[int, int, int, int, int, int]
"""Scope, container, stage, resource, amount, level, as `core/kernel/board.py` says."""

_LEVELS = {Level.PREFERRED: WISHED, Level.REQUIRED: BOUND}
_STAGES = {Stage.INIT: at.INIT, Stage.SIDECAR: at.SIDECAR, Stage.APP: at.APP}


class Board:
    """The machines of these nodes, in their order; `machine_of` has the row of each, -1 where zones are not known."""

    def __init__(self, nodes: Sequence[Node], rules: ZoneRules = AS_USUAL) -> None:
        self.rules = rules
        self.topologies: list[Topology] = []
        self.machine_of: list[int] = []
        self._left_out: dict[int, dict[str, str]] = {}  # the labels of nodes where something may not be aligned
        self._codes = {CARD: at.CARDS, CPU: at.CPUS}
        self._names = {code: resource for resource, code in self._codes.items()}
        self._rows_of: list[dict[int, dict[object, int]]] = []
        self._names_of: list[list[tuple[int, object]]] = []
        machines: list[list[int]] = []
        supplies: list[Rows] = [np.zeros((0, at.SUPPLY_COLUMNS), np.int64)]
        distances: list[Rows] = [np.zeros((0, MOST_ZONES), np.int64)]
        for row, node in enumerate(nodes):
            topology = _known(node)
            if topology is not None and rules.leaves_out(node.labels):
                self._left_out[row] = node.labels
                topology = rules.aligned_part(topology, node.labels)
            self.machine_of.append(-1 if topology is None else len(machines))
            if topology is None:
                continue
            first, far = sum(map(len, supplies)), sum(map(len, distances))
            rows, names = self._supplies(node, topology)
            counted = any(code == at.CARDS for code, _ in names)
            machines.append(_machine(topology, rules, first, first + len(rows), far, counted))
            supplies.append(rows)
            distances.append(_distances(topology))
            self.topologies.append(topology)
            found: dict[int, dict[object, int]] = {at.CPUS: {}}
            for supply, (code, name) in enumerate(names, first):
                found.setdefault(code, {})[name] = supply
            self._rows_of.append(found)
            self._names_of.append(names)
        most = max((len(rows) for rows in supplies), default=0)
        widest = min(max((len(topology.zones) for topology in self.topologies), default=0), MOST_ZONES)
        self.store, self.rows = at.packed(
            at.Board(
                np.array(machines, np.int64).reshape(-1, at.MACHINE_COLUMNS),
                np.concatenate(supplies),
                np.concatenate(distances),
                np.zeros((most, at.TAKEN_COLUMNS), np.int64),
                np.zeros(at.VERDICT_COLUMNS, np.int64),
                np.zeros(_MOST_NEEDS << widest, np.int64),
                np.zeros((2, max((len(node.gpus) for node in nodes), default=0)), np.int64),
                np.zeros(at.FIRST_TOLD + at.TOLD_COLUMNS * most, np.int64),
                links_over(nodes if self.topologies else ()),  # where no zones are known nothing asks for links
            )
        )
        """All of it in one array, and its parts: as compiled functions take it."""
        self.width_rules = [rules.width_on(topology).value for topology in self.topologies]
        """Per machine, the name of the rule that the least widths of masks go by."""
        self._name_parts()
        self._zone_ids = [topology.zone_ids for topology in self.topologies]
        self._masks: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self.aligns = any(topology.kubelet is not None for topology in self.topologies)
        """Whether some node aligns what asks for no alignment."""
        self.held = 0
        """Allocations that hold something of the supplies."""

    @property
    def supplies(self) -> Rows:
        """What lies in the zones, with what is free of it."""
        return self.rows.supplies

    def copy(self) -> Board:
        """The same machines with books of their own."""
        if not self.topologies:
            return self  # there is nothing to write in
        twin = object.__new__(Board)
        twin.__dict__.update(self.__dict__)
        twin.store, twin.rows = at.packed(self.rows)
        twin.store[: by_address.CELLS] = self.store[: by_address.CELLS]
        twin._name_parts()
        return twin

    def _name_parts(self) -> None:
        """What Python reads number by number: much faster than in arrays."""
        self._verdict, self._told = self.rows.verdict.data, self.rows.told.data

    def mask_of(self, row: int, gpu: Gpu) -> int:
        """Zones of a card of a node as its columns have them; none if cards like it are not aligned there.

        Those that the record of the node does not list are unknown.
        """
        machine, labels = self.machine_of[row], self._left_out.get(row)
        if machine < 0 or (labels is not None and not self.rules.aligns_card(labels, gpu)):
            return 0
        known = self._zone_ids[machine]
        return as_mask(known.index(zone) for zone in gpu.zones if zone in known)

    @property
    def code(self) -> int:
        """What the last decision came to (`core/kernel/board.py`)."""
        return int(self.rows.verdict[at.CODE])

    @property
    def container(self) -> int:
        """The container that the last decision was about at its end."""
        return int(self.rows.verdict[at.CONTAINER_OF])

    def free_on(self, row: int) -> npt.NDArray[np.int64]:
        """What is free of each supply of a node, as a view."""
        machine = self.machine_of[row]
        first, last = (
            (0, 0) if machine < 0 else self.rows.machines[machine, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES]].tolist()
        )
        found: npt.NDArray[np.int64] = self.supplies[first:last, at.FREE]
        return found

    def cpus_of(self, machine: int) -> Rows:
        """The rows of a machine's CPUs."""
        return self.supplies_of(machine, CPU)

    def supplies_of(self, machine: int, resource: str) -> Rows:
        """The rows of what a machine has of a resource."""
        first, last = self.rows.machines[machine, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES]].tolist()
        rows: Rows = self.supplies[first:last]
        found: Rows = rows[rows[:, at.RESOURCE] == self._code_of(resource)]
        return found

    def on_whole_cores(self, row: int) -> int:
        """How many CPUs of a node are free on cores of which none is reserved."""
        cpus = self.cpus_of(self.machine_of[row])
        return int(((cpus[:, at.FREE] > 0) & (cpus[:, at.WHOLE_CORE] > 0)).sum())

    def seats(self, asked: ResourceRequirement) -> bool:
        """Whether it is told where in its machine a request lies: it asked for alignment, or a kubelet may align it."""
        return self.aligns or asked.alignment.asked is not None

    # --- what requests need ---

    def decides(self, asked: ResourceRequirement) -> bool:
        """Whether zones may refuse a request, or hand out to it more than its cards."""
        return bool(asked.alignment.asked or (asked.alignment.containers and self.topologies) or self.aligns)

    def needs(self, asked: ResourceRequirement) -> list[_Need]:
        """What a request is aligned by, as rows; none if zones do not matter to it here.

        First container by container, then all as one, in the order of `core/kernel/board.py`.
        """
        if not self.topologies and not asked.alignment.required:
            return []
        containers = asked.alignment.containers or (_plain(asked),)
        if asked.alignment.asked is None and not self.aligns and not asked.gpu_count:
            return []
        each = [self._amounts(container) for container in containers]
        levels = {self._code_of(pair.resource): _LEVELS[pair.level] for pair in asked.alignment.pairs}
        rows: list[_Need] = []
        for number, (container, amounts) in enumerate(zip(containers, each, strict=True)):
            rows += _needs((0, number, _STAGES[container.stage]), amounts, levels)
        whole = _effective([container.stage for container in containers], each)
        rows += _needs((1, len(containers), at.APP), whole, levels)
        if rows and not self.store[0]:
            self.store[: by_address.CELLS] = by_address.addresses()
        return rows

    def _amounts(self, needs: ContainerNeeds) -> dict[int, int]:
        amounts = {at.CPUS: needs.cpus, at.MEMORY: needs.memory_bytes}
        amounts |= {self._code(name): count for name, count in needs.devices}
        amounts |= {self._code(pages_of(size)): size_of for size, size_of in needs.hugepages}
        return {code: amount for code, amount in amounts.items() if amount}

    def _code_of(self, resource: str) -> int:
        known = {CPU: at.CPUS, MEMORY: at.MEMORY}
        return known[resource] if resource in known else self._code(resource)

    def _code(self, resource: str) -> int:
        code = self._codes.setdefault(resource, at.OTHERS + len(self._codes) - 2)
        self._names[code] = resource
        return code

    # --- placements ---

    def placement(self, row: int, uuids: tuple[str, ...], mask: int) -> ZonePlacement | None:
        """What was decided last on a node, as a value, with its cards and the zones these are near to.

        None where its zones are not told apart, and for cards alone of which no zone is known.
        """
        machine = self.machine_of[row]
        if machine < 0 or not self._verdict[at.KNOWN]:
            return None
        told = self._told
        others = at.FIRST_TOLD + told[at.TOLD_CPUS]
        cpus = tuple(told[at.FIRST_TOLD : others].tolist())
        mask |= told[at.TOLD_ZONES]
        devices: dict[str, tuple[str, ...]] = {CARD: uuids} if uuids else {}
        memory: list[tuple[int, int]] = []
        amounts: list[tuple[int, str, int]] = []
        for begin in range(others, others + told[at.TOLD_OTHERS] * at.TOLD_COLUMNS, at.TOLD_COLUMNS):
            supply, code, name, amount = told[begin : begin + at.TOLD_COLUMNS].tolist()
            if code == at.MEMORY:
                memory.append((name, amount))
            elif amount:
                amounts.append((name, self._names[code], amount))
            else:
                uuid = str(self._names_of[machine][supply][1])
                devices[self._names[code]] = *devices.get(self._names[code], ()), uuid
        if not mask and not cpus and devices.keys() <= {CARD}:
            return None
        held = tuple(sorted(devices.items()))
        zones, rule = self._zones_in(machine, mask), self.width_rules[machine]
        return ZonePlacement(zones, cpus, held, tuple(memory), Rank.BOUND, rule, tuple(amounts))

    def zones_of(self, row: int, placement: ZonePlacement, masks: Iterable[int]) -> tuple[int, ...]:
        """The zones that a placement on a node touches; `masks` are those of its cards."""
        machine, mask = self.machine_of[row], 0
        if machine < 0:
            return ()
        for zones in (*masks, *(self.supplies.item(supply, at.ZONES) for supply, _ in self.charges(row, placement))):
            mask |= zones
        return self._zones_in(machine, mask)

    def _zones_in(self, machine: int, mask: int) -> tuple[int, ...]:
        ids = self._zone_ids[machine]
        known = self._masks.get((ids, mask))
        if known is None:
            known = self._masks[ids, mask] = tuple(zone for bit, zone in enumerate(ids) if mask >> bit & 1)
        return known

    def hold(self, row: int, placement: ZonePlacement, sign: int) -> None:
        """Take (1) what an allocation has in the zones of its node, or give it back (-1).

        What the record does not list is skipped.
        """
        machine = self.machine_of[row]
        if machine < 0:
            return
        one_by_one, in_bytes = self._rows_held(machine, placement)
        self.held += sign * bool(one_by_one or in_bytes)
        if one_by_one:
            self.rows.supplies[one_by_one, at.FREE] -= sign
        for supply, amount in in_bytes:
            self.rows.supplies[supply, at.FREE] -= sign * amount

    def charges(self, row: int, placement: ZonePlacement | None) -> list[tuple[int, int]]:
        """The supplies that a placement on a node has something of, and how much."""
        if placement is None or self.machine_of[row] < 0:
            return []
        one_by_one, in_bytes = self._rows_held(self.machine_of[row], placement)
        return [*((supply, 1) for supply in one_by_one), *in_bytes]

    def _rows_held(self, machine: int, placement: ZonePlacement) -> tuple[list[int], list[tuple[int, int]]]:
        """The supplies a placement has one of each, and those it has amounts of; without any that are not recorded."""
        known = self._rows_of[machine]
        cpus = known[at.CPUS]
        one_by_one = [cpus[cpu] for cpu in placement.cpus if cpu in cpus]
        for name, uuids in placement.devices:
            if name != CARD and name in self._codes:
                devices = known.get(self._codes[name], {})
                one_by_one += [devices[uuid] for uuid in uuids if uuid in devices]
        zones = known.get(at.MEMORY, {})
        in_bytes = [(zones[zone], amount) for zone, amount in placement.memory if zone in zones]
        for zone, name, amount in placement.amounts:
            row = known.get(self._codes.get(name, -1), {}).get(_Zone(zone))
            in_bytes += [] if row is None else [(row, amount)]
        return one_by_one, in_bytes

    @staticmethod
    def _has_ids(node: Node, topology: Topology, resource: str) -> bool:
        """Whether the zones of each CPU, card or device of a node are known; then amounts say nothing more."""
        if resource == CPU:
            return bool(topology.cpus)
        if resource == CARD:
            return any(gpu.zones for gpu in node.gpus)
        return any(device.resource == resource for device in topology.devices)

    def _supplies(self, node: Node, topology: Topology) -> tuple[Rows, list[tuple[int, object]]]:
        """What lies in the zones of a machine, CPUs first, each with the name it is found by."""
        zones = topology.zone_ids
        place = {zone: as_mask([number]) for number, zone in enumerate(zones)} | {None: 0}
        cpus = sorted(topology.cpus, key=lambda cpu: cpu.id)
        rows: list[tuple[int, ...]] = [
            (at.CPUS, place[cpu.zone], 1, int(cpu.id not in topology.reserved_cpus), cpu.id, *groups, 1)
            for cpu, groups in zip(cpus, groups_of(cpus), strict=True)
        ]
        names: list[tuple[int, object]] = [(at.CPUS, cpu.id) for cpu in cpus]
        for device in sorted(topology.devices, key=lambda device: (device.resource, device.index, device.uuid)):
            mask = sum(place[zone] for zone in device.zones)
            code = self._code(device.resource)
            rows.append((code, mask, 1, int(device.healthy), device.index, *_NO_GROUPS))
            names.append((code, device.uuid))
        for zone in topology.zones:
            if zone.memory is not None:
                left = zone.memory.allocatable
                rows.append((at.MEMORY, place[zone.id], left, left, zone.id, *_NO_GROUPS))
                names.append((at.MEMORY, zone.id))
            for size, room in sorted(zone.hugepages.items()):
                code = self._code(pages_of(size))
                rows.append((code, place[zone.id], room.allocatable, room.allocatable, zone.id, *_NO_GROUPS))
                names.append((code, _Zone(zone.id)))
        for zone in topology.zones:
            for resource, room in sorted(zone.amounts.items()):
                if self._has_ids(node, topology, resource):
                    continue
                code = self._code(resource)
                rows.append((code, place[zone.id], room.total, room.allocatable, zone.id, *_AMOUNT))
                names.append((code, _Zone(zone.id)))
        found = np.array(rows, np.int64).reshape(-1, at.SUPPLY_COLUMNS)
        count = topology.reserved_count or (0 if topology.kubelet else -(-node.reserved.cpu_milli // MILLI))
        if count and not topology.reserved_cpus:
            reserve(found, count)
        mark_broken_cores(found)
        return found, names


class _Zone(NamedTuple):
    """What an amount of a zone is found by: no id is equal to it."""

    id: int


def lies_beside_cards(placement: ZonePlacement) -> bool:
    """Whether a placement that was decided here has more than cards: something is held in zones for it."""
    beside = placement.cpus or placement.memory or placement.amounts
    return bool(beside or any(name != CARD for name, _ in placement.devices))


def _known(node: Node) -> Topology | None:
    """The record of a node, or what its cards say of zones where there is none.

    A record without zones counts for its links, unless a kubelet decides, which does not go by them.
    """
    told = node.topology
    if told is not None and told.zones:
        return told
    zones = sorted({zone for gpu in node.gpus for zone in gpu.zones if zone < MAX_ZONES})
    if zones:
        return Topology(tuple(map(Zone, zones)), source="cards")
    return told if told is not None and told.links and told.kubelet is None else None


def _machine(topology: Topology, rules: ZoneRules, first: int, last: int, far: int, counted: bool) -> list[int]:
    kubelet = topology.kubelet
    compared = kubelet is not None and kubelet.closest and topology.distances and len(topology.zones) <= MOST_ZONES
    return [
        len(topology.zones),
        first,
        last,
        -1 if kubelet is None else kubelet.policy.rank,
        kubelet is not None and kubelet.scope == "pod",
        kubelet is not None and kubelet.static_cpus,
        kubelet is not None and kubelet.static_memory,
        far if compared or (kubelet is None and topology.distances and len(topology.zones) <= MOST_ZONES) else -1,
        rules.width_on(topology) is WidthRule.KUBELET,
        threads_of(topology.cpus) if kubelet is not None and kubelet.whole_cores else 0,
        counted,
    ]


def _distances(topology: Topology) -> Rows:
    count = len(topology.distances)
    if not count or count > MOST_ZONES:
        return np.zeros((0, MOST_ZONES), np.int64)
    rows = np.zeros((count, MOST_ZONES), np.int64)
    rows[:, :count] = topology.distances
    return rows


def _needs(head: tuple[int, int, int], amounts: dict[int, int], levels: dict[int, int]) -> Iterator[_Need]:
    """The rows of a container, with what its cards are to be near to, if it has some."""
    bound = levels if at.CARDS in amounts else {}
    for code in sorted({*amounts, *bound}):
        level = max(bound.values(), default=0) if code == at.CARDS else bound.get(code, 0)
        yield *head, code, amounts.get(code, 0), level


def _plain(asked: ResourceRequirement) -> ContainerNeeds:
    """A request without containers is one that asks for all of it; CPUs are its own if they are whole ones.

    No machine has more CPUs than a container may ask for, so more are as many.
    """
    whole, part = divmod(asked.cpu_milli, MILLI)
    devices = ((CARD, asked.gpu_count),) if asked.gpu_count else ()
    return ContainerNeeds(cpus=0 if part else min(whole, MAX_INT32), devices=devices)


def _effective(stages: Sequence[Stage], each: Sequence[dict[int, int]]) -> dict[int, int]:
    """What all containers need at their peak: an init container beside the sidecars before it, then all others."""
    together: dict[int, int] = {}
    peak: dict[int, int] = {}
    for stage, amounts in zip(stages, each, strict=True):
        for code, amount in amounts.items():
            if stage is Stage.INIT:
                peak[code] = max(peak.get(code, 0), together.get(code, 0) + amount)
            else:
                together[code] = together.get(code, 0) + amount
    return {code: max(peak.get(code, 0), together.get(code, 0)) for code in {*peak, *together}}
