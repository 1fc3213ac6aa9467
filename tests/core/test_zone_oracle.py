"""Whole pods on random machines, beside the same rules in plain Python."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from tests.core.zone_oracle import (
    RESTRICTED,
    SINGLE,
    Books,
    Held,
    amounts_of,
    effective,
    hints_of,
    is_managed,
    predict,
    product_merge,
)

from ullage.core.books.fleet import Fleet
from ullage.core.kernel import columns
from ullage.core.kernel.alignment import choose_aligned, closeness_of, may_align
from ullage.core.kernel.board import MERGED
from ullage.core.kernel.masks import width_of
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.verdict.shape import shape_of
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, CPU, MEMORY, Cpu, Device, Kubelet, Room, Scope, Topology, Zone, ZonePolicy
from ullage.model.zone_placement import ZonePlacement

pytestmark = pytest.mark.timeout(900)

NIC = "nic"


def some_zones(chance: random.Random, zones: Sequence[int]) -> tuple[int, ...]:
    """One zone mostly; sometimes two, sometimes nobody knows."""
    return tuple(sorted(chance.sample(zones, min(len(zones), chance.choices((0, 1, 2), (1, 8, 1))[0]))))


def some_machine(chance: random.Random, kubelet: Kubelet | None) -> Node:
    """A machine of up to five zones, sixteen CPUs, eight cards and three NICs, in any order."""
    count = chance.choices((1, 2, 3, 4, 5), (1, 6, 3, 3, 1))[0]
    zones = sorted(chance.sample(range(8), count))
    threads, sockets = chance.choice((1, 2)), chance.choice((1, count))
    cpus = [
        Cpu(number, zones[place], place if sockets > 1 else 0, core)
        for number, (place, core) in enumerate(
            (place, core)
            for core in range(chance.choice((0, 2, 4, 5)))
            for place in range(count)
            for _ in range(threads)
        )
    ][:16]
    if sockets == 1:  # the numbers of cores are those of their socket
        cpus = [replace(cpu, core=cpu.core * count + zones.index(cpu.zone)) for cpu in cpus]
    if chance.random() < 0.1:
        cpus = [replace(cpu, zone=None) if chance.random() < 0.3 else cpu for cpu in cpus]
    cards = [
        Gpu(f"g{index}", index, zones=some_zones(chance, zones), healthy=chance.random() < 0.95)
        for index in range(chance.randint(2, 8))
    ]
    nics = [Device(NIC, index, f"e{index}", zones=some_zones(chance, zones)) for index in range(chance.randint(0, 3))]
    rooms = [Room(size, size) if (size := chance.choice((0, 4, 8, 8))) else None for _ in zones]
    distances = [[chance.choice((10, 10, 9) if a == b else (11, 12, 21)) for b in zones] for a in zones]
    for order in (cards, cpus, nics):
        chance.shuffle(order)
    topology = Topology(
        tuple(map(Zone, zones, rooms)),
        tuple(map(tuple, distances)) if chance.random() < 0.5 else (),
        tuple(cpus),
        tuple(nics),
        reserved_cpus=frozenset(cpu.id for cpu in cpus if chance.random() < 0.1),
        reserved_count=chance.choice((0, 0, 1, 2)),
        kubelet=kubelet,
    )
    return Node("n", 64_000, 1 << 40, tuple(cards), topology=topology)


def some_kubelet(chance: random.Random) -> Kubelet:
    return Kubelet(
        chance.choice(list(ZonePolicy)),
        chance.choice(list(Scope)),
        {"prefer-closest-numa-nodes": "true"} if chance.random() < 0.5 else {},
        static_cpus=chance.random() < 0.8,
        static_memory=chance.random() < 0.5,
    )


def some_container(chance: random.Random, stage: AlignmentStage) -> ContainerNeeds:
    devices = [(CARD, chance.choice((0, 0, 1, 1, 2, 4)))] + [(NIC, 1)] * (chance.random() < 0.2)
    return ContainerNeeds(
        f"c{chance.random()}",
        stage,
        chance.choice((0, 0, 0, 1, 2, 3, 5)),
        chance.choice((0, 0, 0, 0, 0, 2, 5)),
        tuple((name, count) for name, count in devices if count),
    )


def some_pod(chance: random.Random, policy: ZonePolicy | None, most: int) -> ResourceRequirement:
    """Containers in the order in which they start; the request is what they need at their peak."""
    first = [chance.choice((AlignmentStage.INIT, AlignmentStage.SIDECAR)) for _ in range(chance.randint(0, most - 1))]
    stages = [*first, *([AlignmentStage.APP] * chance.randint(1, 2 if most > 1 else 1))]
    containers = tuple(some_container(chance, stage) for stage in stages)
    peak = effective(containers)
    return ResourceRequirement(
        max(1, peak.get(CPU, 0)) * 1000, 0, peak.get(CARD, 0), alignment=Alignment(policy, containers)
    )


def occupy(chance: random.Random, node: Node) -> tuple[Fleet, Books]:
    """Somebody else has some of everything there."""
    fleet, books = Fleet([node]), Books.of(node)
    for uid in range(chance.randint(0, 2)):
        cards = sorted(uuid for uuid in books.free[CARD] if chance.random() < 0.2)
        cpus = tuple(sorted(cpu for cpu in books.free[CPU] if chance.random() < 0.15))
        nics = tuple(sorted(name for name in books.free.get(NIC, ()) if chance.random() < 0.2))
        memory = tuple((zone, 1) for zone, left in sorted(books.bytes_free.items()) if left and chance.random() < 0.3)
        placement = ZonePlacement((), cpus, ((NIC, nics),), memory)
        asked = ResourceRequirement(1, 0, len(cards))
        fleet.charge(Allocation(f"other-{uid}", "n", asked, tuple(cards), placement=placement))
        books.free[CARD] -= {*cards}
        books.free[CPU] -= {*cpus}
        books.free[NIC] = books.free.get(NIC, set()) - {*nics}
        for zone, amount in memory:
            books.bytes_free[zone] -= amount
    return fleet, books


def reported(held: Held | None) -> object:
    """What a pod holds, as far as it is known where: cards, CPUs, devices, bytes by zone."""
    if held is None:
        return None
    return held.names(CARD), held.names(CPU), held.names(NIC), held.peak


def got(allocation: Allocation | None) -> object:
    if allocation is None:
        return None
    placement = allocation.placement or ZonePlacement()
    devices = dict(placement.devices)
    return {*allocation.gpus}, {*placement.cpus}, {*devices.get(NIC, ())}, dict(placement.memory)


def zones_held(node: Node, allocation: Allocation) -> tuple[int, ...]:
    """The union of the zones of all that an allocation has, from the records."""
    placement = allocation.placement or ZonePlacement()
    units = Books.of(node).every
    names = {CARD: {*allocation.gpus}, CPU: {*placement.cpus}, **{name: {*ids} for name, ids in placement.devices}}
    found = {
        zone for name, ids in names.items() for unit in units.get(name, ()) if unit.name in ids for zone in unit.zones
    }
    return tuple(sorted(found | {zone for zone, _ in placement.memory}))


@pytest.mark.parametrize("seed", range(12))
def test_what_a_kubelet_gives_to_a_pod(seed):
    chance = random.Random(seed)
    placed = 0
    for _ in range(60):
        node = some_machine(chance, some_kubelet(chance))
        fleet, books = occupy(chance, node)
        asked = some_pod(chance, None, 4)
        expected = predict(books, node.topology.kubelet, asked.alignment.containers)
        found = Placer(fleet, Policy()).place("p", asked)
        assert got(found) == reported(expected), (node, asked)
        if found is not None:
            placed += 1
            assert (found.placement or ZonePlacement()).zones == zones_held(node, found)
    assert 10 < placed < 50


def narrowest(books: Books, amounts: dict[str, int]) -> int | None:
    """The fewest zones that hold all of these amounts, of what is free; None if no zone of any is known."""
    reported = [hints_of(books, *each, Held(), by_free=True) for each in amounts.items()]
    wide = [{one.zones for one in hints} for hints in reported if hints is not None]
    return min(map(len, set.intersection(*wide))) if wide else None


def managed(books: Books, policy: ZonePolicy, asked: ResourceRequirement) -> dict[str, int]:
    """What of a request for one container is handed out by zones where no kubelet decides."""
    (needs,), by_zones = asked.alignment.containers, policy is not ZonePolicy.NONE
    amounts = amounts_of(needs).items()
    return {name: n for name, n in amounts if is_managed(books, name, cpus=by_zones, memory=by_zones)}


def choice_by_free(books: Books, policy: ZonePolicy, asked: ResourceRequirement) -> tuple[tuple[int, ...] | None, bool]:
    """The mask where widths go by what is free (None: any zone), and whether there is enough within the policy."""
    amounts = managed(books, policy, asked)
    left = {name: len(free) for name, free in books.free.items()} | {MEMORY: sum(books.bytes_free.values())}
    enough = all(left[name] >= amount for name, amount in amounts.items())
    if policy is ZonePolicy.NONE:
        return None, enough
    lists = [hints_of(books, name, amount, Held(), by_free=True) for name, amount in amounts.items()]
    found = product_merge(books.topology.zone_ids, lists, policy, books.topology.distances)
    return found.hint.zones, enough and found.admitted


@pytest.mark.parametrize("seed", range(6))
def test_a_node_scores_alike_whether_all_it_gives_is_picked_or_not(seed):
    chance = random.Random(2000 + seed)
    closeness = set()
    for _ in range(60):
        kubelet = some_kubelet(chance) if chance.random() < 0.5 else None
        fleet, books = occupy(chance, some_machine(chance, kubelet))
        shape = shape_of(fleet, some_pod(chance, chance.choice([None, ZonePolicy.BEST_EFFORT, RESTRICTED]), 1)).rows
        if not shape[0, columns.NEEDS]:
            continue
        found = []
        for decide in (choose_aligned, may_align):
            units = np.array([gpu.uuid in books.free[CARD] for gpu in fleet.cards], np.int64)
            fits = decide(fleet.node_rows, fleet.card_rows, 0, shape, units, fleet.board.store)
            found.append((fits, *units.tolist(), closeness_of(shape, fleet.board.rows.verdict) if fits else 0.0))
        assert found[0] == found[1]
        closeness.add(found[0][-1])
    assert len(closeness) > 2


@pytest.mark.parametrize("seed", range(12))
def test_what_ullage_gives_by_itself(seed):
    chance = random.Random(1000 + seed)
    placed = 0
    for _ in range(60):
        node, policy = some_machine(chance, None), chance.choice(list(ZonePolicy))
        fleet, books = occupy(chance, node)
        asked = some_pod(chance, policy, 1)
        expected, admitted = choice_by_free(books, policy, asked)
        found = Placer(fleet, Policy()).place("p", asked)
        assert (found is not None) == admitted, (node, asked)
        if found is None:
            continue
        placed += 1
        amounts = managed(books, policy, asked)
        cards, cpus, nics, memory = got(found)
        for name, taken in ((CARD, cards), (CPU, cpus), (NIC, nics)):
            assert taken <= books.free.get(name, set())
            assert len(taken) == amounts.get(name, 0)
        assert sum(memory.values()) == amounts.get(MEMORY, 0)
        assert all(books.bytes_free[zone] >= amount for zone, amount in memory.items())
        assert (found.placement or ZonePlacement()).zones == zones_held(node, found)
        mask = int(fleet.board.rows.verdict[MERGED])
        if expected is not None and amounts:
            assert width_of(mask) == len(expected), (node, asked)
        if policy not in (RESTRICTED, SINGLE) or not mask:
            continue
        assert narrowest(books, amounts) in (None, width_of(mask))
        near = {zone for bit, zone in enumerate(node.topology.zone_ids) if mask >> bit & 1}
        for name, taken in ((CARD, cards), (CPU, cpus), (NIC, nics)):
            known = [unit for unit in books.every.get(name, ()) if unit.zones]
            assert not known or all({*unit.zones} & near for unit in books.every[name] if unit.name in taken)
        assert {*memory} <= near
    assert 10 < placed < 59
