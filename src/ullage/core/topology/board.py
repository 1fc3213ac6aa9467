"""The zones of all machines of a fleet as rows, and what allocations hold in them.

Law: what is free in the rows is the total, less what is reserved, less what the placements in the ledger hold. Rows
have the columns of `core/kernel/board.py`; cards are columns of the fleet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from functools import cached_property

import numpy as np
import numpy.typing as npt

import ullage.core.kernel.zones  # noqa: F401 - it registers all steps
from ullage.core.kernel import board as at
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiling.steps import prepare_steps
from ullage.core.kernel.masks import MOST_ZONES
from ullage.core.kernel.nearest import BEHIND_SWITCH, ISLAND, MOST_RESOURCES
from ullage.core.topology.links import links_over
from ullage.core.topology.machine import InZone, distances_of, machine_row, supplies_of, topology_of
from ullage.core.topology.needs import Need, needs_of
from ullage.core.topology.resources import ZoneResources
from ullage.core.topology.rules import AS_USUAL, ZoneRules
from ullage.model.alignment import Level
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, CPU, Topology, as_mask
from ullage.model.zone_placement import Rank, ZonePlacement

_MOST_NEEDS = 12
"""Counts by mask that have scratch from the start."""


class Board:
    """The machines of these nodes, in their order; `machine_of` has the row of each, -1 where zones are unknown."""

    def __init__(self, nodes: Sequence[Node], rules: ZoneRules = AS_USUAL) -> None:
        self.rules = rules
        self.topologies: list[Topology] = []
        self.machine_of: list[int] = []
        self._first_card = np.cumsum([0, *(len(node.gpus) for node in nodes)]).tolist()
        self._left_out: dict[int, dict[str, str]] = {}  # labels of nodes where something may be left out
        self._resources = ZoneResources()
        self._rows_of: list[dict[int, dict[object, int]]] = []
        self._names_of: list[list[tuple[int, object]]] = []
        machines: list[list[int]] = []
        supplies: list[Rows] = [np.zeros((0, at.SUPPLY_COLUMNS), np.int64)]
        distances: list[Rows] = [np.zeros((0, MOST_ZONES), np.int64)]
        for row, node in enumerate(nodes):
            topology = topology_of(node)
            if topology is not None and rules.leaves_out(node.labels):
                self._left_out[row] = node.labels
                topology = rules.aligned_part(topology, node.labels)
            self.machine_of.append(-1 if topology is None else len(machines))
            if topology is None:
                continue
            first, far = sum(map(len, supplies)), sum(map(len, distances))
            rows, names = supplies_of(node, topology, self._resources)
            last = first + len(rows)
            counted = any(code == at.CARDS for code, _ in names)
            machines.append(machine_row(topology, rules, first=first, last=last, far=far, counted=counted))
            supplies.append(rows)
            distances.append(distances_of(topology))
            self.topologies.append(topology)
            found: dict[int, dict[object, int]] = {at.CPUS: {}}
            for supply, (code, name) in enumerate(names, first):
                found.setdefault(code, {})[name] = supply
            self._rows_of.append(found)
            self._names_of.append(names)
        most = max((len(rows) for rows in supplies), default=0)
        widest = min(max((len(topology.zones) for topology in self.topologies), default=0), MOST_ZONES)
        self.store, self.rows = at.packed(
            at.BoardRows(
                machines=np.array(machines, np.int64).reshape(-1, at.MACHINE_COLUMNS),
                supplies=np.concatenate(supplies),
                distances=np.concatenate(distances),
                taken=np.zeros((most, at.TAKEN_COLUMNS), np.int64),
                verdict=np.zeros(at.VERDICT_COLUMNS, np.int64),
                counts=np.zeros(_MOST_NEEDS << widest, np.int64),
                scratch=np.zeros((2, max((len(node.gpus) for node in nodes), default=0)), np.int64),
                listed=np.zeros(at.FIRST_LISTED + at.LISTED_COLUMNS * most, np.int64),
                links=links_over(nodes if self.topologies else (), self._resources.code_of),  # else nothing uses links
            )
        )
        """The arena, which compiled functions take, and its parts."""
        self.width_rules = [rules.width_on(topology).value for topology in self.topologies]
        """Per machine, the name of the rule for the least width of masks."""
        self._name_parts()
        self._zone_ids = [topology.zone_ids for topology in self.topologies]
        self._masks: dict[tuple[tuple[int, ...], int], tuple[int, ...]] = {}
        self.aligns = any(topology.kubelet is not None for topology in self.topologies)
        """Whether some node aligns requests that ask for no alignment."""
        self.held = 0
        """Allocations that hold supplies."""

    @cached_property
    def layout_of(self) -> npt.NDArray[np.int64]:
        """Per node, the number of its class: equal machines have the same number; -1 where zones are unknown."""
        numbers: dict[bytes, int] = {}
        own = np.arange(at.SUPPLY_COLUMNS) != at.FREE
        found = []
        for row in self.rows.machines:
            first, last, far = row[[at.FIRST_SUPPLY, at.AFTER_SUPPLIES, at.FIRST_DISTANCE]].tolist()
            facts = np.delete(row, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES, at.FIRST_DISTANCE])
            distances = self.rows.distances[far : far + row[at.ZONE_COUNT]] if far >= 0 else self.rows.distances[:0]
            key = b"/".join(part.tobytes() for part in (facts, self.supplies[first:last, own], distances))
            found.append(numbers.setdefault(key, len(numbers)))
        return np.array([*found, -1], np.int64)[self.machine_of]

    @property
    def supplies(self) -> Rows:
        return self.rows.supplies

    def copy(self) -> Board:
        """Return the same machines with their own rows."""
        if not self.topologies:
            return self  # there are no rows to write
        twin = object.__new__(Board)
        twin.__dict__.update(self.__dict__)
        twin.store, twin.rows = at.packed(self.rows)
        twin._name_parts()
        return twin

    def _name_parts(self) -> None:
        """Keep what Python reads number by number as memory views: much faster than arrays."""
        self._verdict, self._listed = self.rows.verdict.data, self.rows.listed.data

    def mask_of(self, row: int, gpu: Gpu) -> int:
        """Return the zones of a card as its column has them; 0 if such cards are left out on its node.

        Zones that the record of the node does not list are unknown.
        """
        machine, labels = self.machine_of[row], self._left_out.get(row)
        if machine < 0 or (labels is not None and not self.rules.aligns_card(labels, gpu)):
            return 0
        known = self._zone_ids[machine]
        return as_mask(known.index(zone) for zone in gpu.zones if zone in known)

    @property
    def code(self) -> int:
        """The code of the last verdict (`core/kernel/board.py`)."""
        return int(self.rows.verdict[at.CODE])

    @property
    def container(self) -> int:
        """The container that was aligned last."""
        return int(self.rows.verdict[at.CONTAINER_OF])

    def free_on(self, row: int) -> npt.NDArray[np.int64]:
        """Return a view of what is free of each supply of a node."""
        machine = self.machine_of[row]
        first, last = (
            (0, 0) if machine < 0 else self.rows.machines[machine, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES]].tolist()
        )
        found: npt.NDArray[np.int64] = self.supplies[first:last, at.FREE]
        return found

    def cpus_of(self, machine: int) -> Rows:
        return self.supplies_of(machine, CPU)

    def supplies_of(self, machine: int, resource: str) -> Rows:
        first, last = self.rows.machines[machine, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES]].tolist()
        rows: Rows = self.supplies[first:last]
        found: Rows = rows[rows[:, at.RESOURCE] == self._resources.code_of(resource)]
        return found

    def left_of(self, machine: int, resources: Iterable[str]) -> dict[str, tuple[Rows, Rows]]:
        """Return per resource the rows of a machine's supplies, and how much of each the last decision left.

        A decision that ended before it looked at supplies left all that is free.
        """
        first, last = self.rows.machines[machine, [at.FIRST_SUPPLY, at.AFTER_SUPPLIES]].tolist()
        rows, taken = self.supplies[first:last], self.rows.taken[: last - first]
        left = rows[:, at.FREE]
        if self.code in (at.NOT_ALIGNED, at.SHORT):
            amounts = (rows[:, at.TOTAL] > 1) | (rows[:, at.CORE] < 0)
            marked = (taken[:, at.STATUS] == at.OPEN) | (taken[:, at.STATUS] == at.REUSABLE)
            left = np.where(amounts, rows[:, at.FREE] - taken[:, at.BYTES], marked.astype(np.int64))
        there = set(rows[:, at.RESOURCE].tolist())
        found = {}
        for name in resources:
            code = self._resources.code_of(name)
            own = rows[:, at.RESOURCE] == code if code in there else slice(0)
            found[name] = rows[own], left[own]
        return found

    def resource_of(self, code: int) -> str:
        """Return the name of a resource by its number."""
        return self._resources.name_of(code)

    def on_whole_cores(self, row: int) -> int:
        """Return how many CPUs of a node are free on cores of which none is reserved."""
        cpus = self.cpus_of(self.machine_of[row])
        return int(((cpus[:, at.FREE] > 0) & (cpus[:, at.WHOLE_CORE] > 0)).sum())

    def switch_codes(self, asked: ResourceRequirement) -> frozenset[int]:
        """Return the numbers of the resources that must be behind the switches of the cards of a request."""
        near = (pair.resource for pair in asked.alignment.pairs if pair.level is Level.SWITCH)
        return frozenset(map(self._resources.code_of, near))

    def on_switch(self, row: int, cards: Collection[int], resources: Iterable[str]) -> int:
        """Return how many of these cards of a node are behind a switch with each of these resources."""
        codes = list(map(self._resources.code_of, resources))
        if max(codes) >= MOST_RESOURCES:
            return 0
        wanted = sum(1 << code for code in codes)
        return sum(mask & wanted == wanted for mask in self._places_of(row, BEHIND_SWITCH, cards))

    def largest_island(self, row: int, cards: Collection[int]) -> int:
        """Return how many of these cards of a node are of one island at most; they are numbered from its first card.

        0 if nothing is known of its links.
        """
        return max(Counter(self._places_of(row, ISLAND, cards)).values(), default=0)

    def _places_of(self, row: int, level: int, cards: Collection[int]) -> list[int]:
        """Return one place of each of these cards of a node; none if nothing is known of its links."""
        if self.machine_of[row] < 0:
            return []
        links, first = self.rows.links, self._first_card[row]
        own = links.by_index[first : self._first_card[row + 1]].tolist()
        places = links.places[links.layout_of[row], level]
        return [places.item(place) for place, card in enumerate(own) if card in cards]

    def seats(self, asked: ResourceRequirement) -> bool:
        """Return whether supplies are held for a request: it asks for alignment, or a kubelet may align it."""
        return self.aligns or asked.alignment.effective_policy is not None

    # --- what requests need ---

    def decides(self, asked: ResourceRequirement) -> bool:
        """Return whether zones may refuse a request, or give it more than its cards."""
        demands = asked.alignment.effective_policy or asked.alignment.required
        return bool(demands or (asked.alignment.containers and self.topologies) or self.aligns)

    def needs(self, asked: ResourceRequirement) -> list[Need]:
        """Return the needs of a request as rows; none if zones do not matter to it here."""
        if not self.topologies and not asked.alignment.required:
            return []
        if not asked.alignment.containers and not self.seats(asked) and not asked.gpu_count:
            return []
        rows = needs_of(asked, self._resources)
        if rows:
            prepare_steps()
        return rows

    # --- placements ---

    def placement(self, row: int, uuids: tuple[str, ...], mask: int) -> ZonePlacement | None:
        """Return the last decision on a node as a value, with its cards and the zones they are near.

        None if its zones are unknown, or it takes only cards of which no zone is known.
        """
        machine = self.machine_of[row]
        if machine < 0 or not self._verdict[at.KNOWN]:
            return None
        listed = self._listed
        others = at.FIRST_LISTED + listed[at.LISTED_CPUS]
        cpus = tuple(listed[at.FIRST_LISTED : others].tolist())
        mask |= listed[at.LISTED_ZONES]
        devices: dict[str, tuple[str, ...]] = {CARD: uuids} if uuids else {}
        memory: list[tuple[int, int]] = []
        amounts: list[tuple[int, str, int]] = []
        for begin in range(others, others + listed[at.LISTED_OTHERS] * at.LISTED_COLUMNS, at.LISTED_COLUMNS):
            supply, code, name, amount = listed[begin : begin + at.LISTED_COLUMNS].tolist()
            if code == at.MEMORY:
                memory.append((name, amount))
            elif amount:
                amounts.append((name, self._resources.name_of(code), amount))
            else:
                uuid = str(self._names_of[machine][supply][1])
                devices[self._resources.name_of(code)] = *devices.get(self._resources.name_of(code), ()), uuid
        if not mask and not cpus and devices.keys() <= {CARD}:
            return None
        held = tuple(sorted(devices.items()))
        zones, rule = self._zones_in(machine, mask), self.width_rules[machine]
        return ZonePlacement(
            zones=zones,
            cpus=cpus,
            devices=held,
            memory=tuple(memory),
            rank=Rank.BOUND,
            rule=rule,
            amounts=tuple(amounts),
        )

    def zones_of(self, row: int, placement: ZonePlacement, masks: Iterable[int]) -> tuple[int, ...]:
        """Return the zones that a placement on a node touches; `masks` are those of its cards."""
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
        """Charge (1) what an allocation holds in the zones of its node, or release it (-1).

        Supplies that the record does not list are skipped.
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
        """Return the supplies that a placement on a node holds, and how much of each."""
        if placement is None or self.machine_of[row] < 0:
            return []
        one_by_one, in_bytes = self._rows_held(self.machine_of[row], placement)
        return [*((supply, 1) for supply in one_by_one), *in_bytes]

    def _rows_held(self, machine: int, placement: ZonePlacement) -> tuple[list[int], list[tuple[int, int]]]:
        """Return the single supplies of a placement, and those of which it holds an amount; only recorded ones."""
        known = self._rows_of[machine]
        cpus = known[at.CPUS]
        one_by_one = [cpus[cpu] for cpu in placement.cpus if cpu in cpus]
        for name, uuids in placement.devices:
            code = self._resources.known(name)
            if name != CARD and code is not None:
                devices = known.get(code, {})
                one_by_one += [devices[uuid] for uuid in uuids if uuid in devices]
        zones = known.get(at.MEMORY, {})
        in_bytes = [(zones[zone], amount) for zone, amount in placement.memory if zone in zones]
        for zone, name, amount in placement.amounts:
            code = self._resources.known(name)
            row = None if code is None else known.get(code, {}).get(InZone(zone))
            in_bytes += [] if row is None else [(row, amount)]
        return one_by_one, in_bytes


def lies_beside_cards(placement: ZonePlacement) -> bool:
    """Return whether a placement that was decided here holds supplies, not only cards."""
    amounts = placement.cpus or placement.memory or placement.amounts
    return bool(amounts or any(name != CARD for name, _ in placement.devices))
