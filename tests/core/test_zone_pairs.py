"""Cards that have to be near to something, or would like to be: what is asked with them, or only has to be there."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.core.test_zone_oracle import NIC, managed, occupy, some_machine
from tests.core.zone_oracle import Held, hints_of, masks_of
from tests.core.zones import kubelet, machine

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import explain, reject
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.world import Demand, World
from ullage.core.topology.rules import WidthRule, ZoneRules
from ullage.model.alignment import Alignment, ContainerNeeds, Level, Pair
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import CARD, Device, Kubelet, ZonePolicy
from ullage.model.zone_placement import ZonePlacement

pytestmark = pytest.mark.timeout(900)

REQUIRED, PREFERRED = Level.REQUIRED, Level.PREFERRED


def with_nics(zones: Sequence[int], owner: Kubelet | None = None, **more: object) -> Node:
    """Layout B with adapters in these zones."""
    node = machine(kubelet=owner, **more)  # type: ignore[arg-type]  # facts by name
    nics = tuple(Device(NIC, number, f"e{number}", zones=(zone,)) for number, zone in enumerate(zones))
    return replace(node, topology=replace(node.topology, devices=nics))


def fleet_with(node: Node, free: Sequence[int]) -> Fleet:
    """The node with just these cards free."""
    held = [
        Allocation(gpu.uuid, node.name, ResourceRequirement.of(gpu=1), (gpu.uuid,))
        for gpu in node.gpus
        if gpu.index not in free
    ]
    return Fleet([node], held)


def place(fleet: Fleet, asked: str | ResourceRequirement) -> list[int] | Code:
    """The cards that are placed, by index, or why not."""
    requirement = ResourceRequirement.from_string(asked) if isinstance(asked, str) else asked
    found = Placer(fleet, Policy()).place("r", requirement)
    if found is None:
        return reject(fleet, requirement)[0].code
    return sorted(fleet.cards[fleet.card_of[uuid]].index for uuid in found.gpus)


ALL = range(8)


@pytest.mark.parametrize(
    ("nics", "free", "asked", "required", "preferred"),
    [
        ([1], ALL, "gpu=2", [4, 5], [4, 5]),
        ([0, 1], ALL, "gpu=2", [0, 1], [0, 1]),
        ([0, 1], ALL, "gpu=6", [0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]),
        ([1], ALL, "gpu=6", Code.NOT_ALIGNED, [0, 1, 2, 3, 4, 5]),
        ([1], [0, 1, 2, 3], "gpu=2", Code.NOT_ALIGNED, [0, 1]),
        ([1], [0, 1, 2, 3, 4, 5, 6], "gpu=4", Code.NOT_ALIGNED, [0, 1, 2, 3]),
        ([], ALL, "gpu=2", Code.NOT_ALIGNED, [0, 1]),
        ([1], ALL, "gpu=2,numa=single-numa-node", [4, 5], [4, 5]),
        ([1], ALL, "gpu=6,numa=restricted", Code.NOT_ALIGNED, [0, 1, 2, 3, 4, 5]),
        ([1], [0, 1, 2, 3], "gpu=2,numa=single-numa-node", Code.NOT_ALIGNED, [0, 1]),
    ],
)
def test_cards_near_to_an_adapter_that_nobody_asks_for(nics, free, asked, required, preferred):
    for level, expected in ((REQUIRED, required), (PREFERRED, preferred)):
        assert place(fleet_with(with_nics(nics), free), f"{asked},gpu~nic={level}") == expected


def test_an_adapter_that_somebody_has_is_near_all_the_same():
    fleet = Fleet([with_nics([1])])
    holder = ZonePlacement(devices=((NIC, ("e0",)),))
    fleet.charge(Allocation("other", "n", ResourceRequirement.of(cpu=1), placement=holder))
    assert place(fleet, "gpu=2,gpu~nic=required") == [4, 5]


def test_cards_and_cpus_that_may_not_be_split():
    """Cards are free in one zone, CPUs in the other."""
    for text, expected in (
        ("numa=best-effort", [0, 1]),
        ("gpu~cpu=preferred", [0, 1]),
        ("gpu~cpu=required", Code.NOT_ALIGNED),
    ):
        node = machine(reserved=range(16))
        assert place(fleet_with(node, [0, 1, 2, 3]), f"cpu=8,gpu=2,{text}") == expected


def test_cpus_lie_with_the_cards_in_as_many_zones_as_the_larger_of_the_two_needs():
    """The width trap of `restricted`: six cards need both zones, ten CPUs one."""
    assert place(Fleet([machine()]), "cpu=10,gpu=6,numa=restricted") is Code.NOT_ALIGNED
    fleet = Fleet([machine()])
    found = Placer(fleet, Policy()).place("r", ResourceRequirement.from_string("cpu=10,gpu=6,gpu~cpu=required"))
    assert len(found.placement.cpus) == 10


def test_no_pair_leaves_an_alignment_to_chance():
    fleet = Fleet([with_nics([1])])
    found = Placer(fleet, Policy()).place("r", ResourceRequirement.from_string("cpu=4,gpu=2,gpu~nic=required"))
    assert (found.placement.zones, found.placement.cpus) == ((1,), (16, 17, 18, 19))


@pytest.mark.parametrize(
    ("policy", "nics", "expected"),
    [
        ("none", [0, 1], Code.NODE_POLICY_WEAKER),
        ("best-effort", [0, 1], Code.NODE_POLICY_WEAKER),
        ("restricted", [0, 1], [0, 1]),
        ("single-numa-node", [0], [0, 1]),
        ("single-numa-node", [1], Code.NOT_ALIGNED),
        ("restricted", [1], Code.NOT_ALIGNED),
    ],
)
def test_a_kubelet_knows_of_no_pairs_so_they_hold_only_where_it_would_keep_them(policy, nics, expected):
    node = with_nics(nics, kubelet(policy))
    assert place(Fleet([node]), "gpu=2,gpu~nic=required") == expected
    assert place(Fleet([node]), "gpu=2,gpu~nic=preferred") == [0, 1]


def test_where_zones_are_not_known_or_too_many_a_required_pair_refuses():
    unknown = replace(machine(cards=(None, None)), topology=None)
    many = machine(cards=[0, 1], cpus=[1] * 17, zones=range(17))
    for node, code in ((unknown, Code.TOPOLOGY_UNKNOWN), (many, Code.ZONES_TOO_MANY)):
        assert place(Fleet([node]), "gpu=1,gpu~nic=required") is code
        assert place(Fleet([node]), "gpu=1,gpu~nic=preferred") == [0]


def test_a_container_without_cards_is_bound_by_no_pair():
    pair = (Pair(NIC, REQUIRED),)
    containers = ContainerNeeds("a", devices=((CARD, 2), (NIC, 1))), ContainerNeeds("b", devices=((NIC, 1),))
    asked = ResourceRequirement(1000, 0, 2, alignment=Alignment(None, containers, pair))
    fleet = Fleet([with_nics([0, 1])])
    placed = Placer(fleet, Policy()).place("r", asked)
    assert dict(placed.placement.devices)[NIC] == ("e0", "e1")
    assert placed.placement.zones == (0, 1)


def test_the_rule_of_the_least_width_counts_for_pairs():
    for rule, expected in ((WidthRule.CURRENT_BEST, [0, 4]), (WidthRule.KUBELET, Code.NOT_ALIGNED)):
        fleet = Fleet([with_nics([0, 1])], zone_rules=ZoneRules(rule))
        for gpu in fleet.cards:
            if gpu.index not in (0, 4):
                fleet.charge(Allocation(gpu.uuid, "n", ResourceRequirement.of(gpu=1), (gpu.uuid,)))
        assert place(fleet, "gpu=2,gpu~nic=required") == expected


def test_a_refusal_tells_what_is_where_and_that_a_preferred_pair_would_do():
    fleet = fleet_with(with_nics([1]), [0, 1, 2, 4])
    demand = Demand("s", 1, ResourceRequirement.from_string("gpu=2,gpu~nic=required"), pending=1)
    found = explain(World(fleet, (demand,)), Policy(), 0.0, "s")
    assert found.code is Code.NOT_ALIGNED
    numbers = "n has 3 of 4 free on zone 0, 1 of 4 on zone 1 (width rule current-best); nic: 0 on zone 0, 1 on zone 1"
    assert found.summary.endswith(f"it needs 2 cards; {numbers}")
    assert found.suggestions == ("cpu=0,mem=0,gpu=2,gpu~nic=preferred would fit now",)


# --- beside every mask, one by one ---


def held_masks(node: Node, lists: dict[str, list], near: bool) -> list[tuple[int, ...]]:
    """The masks in which a pair of cards and adapters holds."""
    adapters = {zone for device in node.topology.devices for zone in device.zones}
    found = []
    for mask in masks_of(node.topology.zone_ids):
        there = [next((hint for hint in hints if hint.zones == mask), None) for hints in lists.values()]
        by = all(there) and any(hint.preferred for hint in there)
        if by and (not near or set(mask) <= adapters):
            found.append(mask)
    return found


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("policy", [None, ZonePolicy.BEST_EFFORT])
def test_a_required_pair_is_held_or_refused(seed, policy):
    chance = random.Random(seed)
    placed = refused = 0
    for _ in range(60):
        node = some_machine(chance, None)
        fleet, books = occupy(chance, node)
        nics, cpus = chance.choice((0, 0, 1, 2)), chance.choice((0, 0, 2))
        devices = ((CARD, chance.choice((1, 2, 3))),) + (((NIC, nics),) if nics else ())
        needs = ContainerNeeds("c", cpus=cpus, devices=devices)
        asked = ResourceRequirement(
            1000 * max(1, cpus), 0, needs.devices[0][1], alignment=Alignment(policy, (needs,), (Pair(NIC, REQUIRED),))
        )
        lists = {name: hints_of(books, name, count, Held(), by_free=True) or [] for name, count in devices}
        masks = held_masks(node, lists, near=not nics)
        amounts = managed(books, ZonePolicy.BEST_EFFORT, asked)
        enough = all(len(books.free.get(name, ())) >= amount for name, amount in amounts.items())
        found = Placer(fleet, Policy()).place("p", asked)
        assert (found is not None) == bool(masks and enough), (node, asked)
        if found is None:
            refused += 1
            continue
        placed += 1
        units = {unit.name: unit.zones for name in (CARD, NIC) for unit in books.every.get(name, ())}
        mine = [*found.gpus, *dict(found.placement.devices).get(NIC, ())]
        near = [mask for mask in masks if all(set(units[name]) & set(mask) for name in mine)]
        assert near, (node, asked, found)
    assert placed > 5
    assert refused > 5
