"""What is said where zones refuse: numbers per zone, and changes that are tried before they are told."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.zones import kubelet, machine

from ullage.core.explain import explain
from ullage.core.fleet import Fleet
from ullage.core.policy import Policy
from ullage.core.selection import Refusal, Rules, find
from ullage.core.sentences import reject_text
from ullage.core.topology.warning import width_trap
from ullage.core.world import Demand, World
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure, ZoneRoom
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import ZonePlacement

pytestmark = pytest.mark.timeout(900)


def fleet_with(node: Node, taken: list[int]) -> Fleet:
    held = [Allocation(f"h{card}", node.name, ResourceRequirement.of(gpu=1), (node.gpus[card].uuid,)) for card in taken]
    return Fleet([node], held)


def why(fleet: Fleet, text: str):
    demand = Demand("s", 1, ResourceRequirement.from_string(text), pending=1)
    return explain(World(fleet, (demand,)), Policy(), 0.0, "s")


def test_zones_that_are_taken_are_told_with_what_would_start_now():
    found = why(fleet_with(machine(), [0, 4]), "gpu=4,numa=single-numa-node")
    assert found.code is Code.NOT_ALIGNED
    assert found.cure is Cure.CAPACITY
    assert found.summary.endswith(
        "it needs 4 cards; n has 3 of 4 free on zone 0, 3 of 4 on zone 1 (width rule current-best)"
    )
    assert found.suggestions[0] == "cpu=0,mem=0,gpu=4,numa=restricted would fit now"


@pytest.mark.parametrize("cpus", [(16, 16), (16, 8), (8, 16)])
def test_the_width_trap_is_told_before_anything_is_in_use(cpus):
    found = why(Fleet([machine(cpus=cpus, kubelet=kubelet("restricted"))]), "cpu=10,gpu=6")
    assert found.code is Code.TOO_LARGE
    assert "it needs 6 cards; n has 4 of 4 free on zone 0, 4 of 4 on zone 1 (width rule kubelet)" in found.summary
    assert found.suggestions == ("cpu=17,mem=0,gpu=6 can run here",)


def test_what_no_zone_has_enough_of_is_told_also_if_that_is_not_cards():
    found = why(fleet_with(machine(cpus=(8, 8)), [0, 4]), "cpu=10,gpu=2,numa=single-numa-node")
    assert "it needs 10 CPUs; n has 8 of 8 free on zone 0, 8 of 8 on zone 1" in found.summary


@pytest.mark.parametrize(
    ("asked", "taken", "told", "changes"),
    [
        (
            "cpu=3,gpu=1",
            (),
            "it needs 3 CPUs, which is no whole number of cores on n",
            ("cpu=4,mem=0,gpu=1 can run here",),
        ),
        ("cpu=12", (), "it needs 12 CPUs; n has 10 free on cores that are not reserved", ()),
        ("cpu=8", (2, 3, 10, 11), "it needs 8 CPUs; n has 6 free on cores that are not reserved", ()),
    ],
)
def test_a_kubelet_that_hands_out_whole_cores_refuses_what_is_none(asked, taken, told, changes):
    options = kubelet("none", cpu_options={"full-pcpus-only": "true"})
    node = machine(cards=(0, 1), cpus=(6, 6), threads=2, reserved=(0,), kubelet=options)
    fleet = Fleet([node])
    if taken:
        fleet.charge(Allocation("other", "n", ResourceRequirement(1), placement=ZonePlacement((), taken)))
    found = why(fleet, asked)
    assert found.summary.endswith(told)
    assert "hands out whole cores only" in found.summary
    assert found.code is (Code.BROKEN_CORES if taken else Code.TOO_LARGE)
    assert (found.cure is Cure.CAPACITY) == bool(taken)
    assert found.suggestions[: len(changes)] == changes


RESTRICTED_NODE = machine(kubelet=kubelet("restricted"))


@pytest.mark.parametrize(
    ("nodes", "asked", "change"),
    [
        ([machine()], "cpu=10,gpu=6,numa=restricted", "cpu=17,mem=0,gpu=6,numa=restricted would pass"),
        ([RESTRICTED_NODE], "cpu=10,gpu=6", "cpu=17,mem=0,gpu=6 would pass"),
        ([machine(cpus=(4, 4))], "cpu=5,gpu=2,numa=restricted", "cpu=5.5,mem=0,gpu=2,numa=restricted would pass"),
        ([machine(cpus=())], "gpu=5,numa=single-numa-node", "gpu=5,numa=restricted would pass"),
        (
            [replace(machine(), topology=None, gpus=())],
            "cpu=1,numa=restricted",
            "cpu=1,mem=0,gpu=0,numa=best-effort would pass",
        ),
    ],
)
def test_what_no_node_can_align_even_empty_is_warned_of_with_what_could_be(nodes, asked, change):
    requirement = ResourceRequirement.from_string(asked)
    told = width_trap(Fleet(nodes), Policy(), requirement)
    assert told is not None
    assert told.startswith("no node here can align ")
    assert told.endswith(change)
    busy = [Allocation(f"h{n}", "n", ResourceRequirement(1), (card.uuid,)) for n, card in enumerate(nodes[0].gpus)]
    assert width_trap(Fleet(nodes, busy), Policy(), requirement) == told


def test_what_some_node_could_align_is_not_warned_of():
    wide = replace(machine("wide", cpus=(8, 8)), cordoned=True)
    asked = ResourceRequirement.from_string("cpu=10,gpu=6,numa=restricted")
    assert width_trap(Fleet([machine(), wide]), Policy(), asked) is None
    for other in ("cpu=10,gpu=6,numa=best-effort", "gpu=9,numa=restricted", "cpu=10,gpu=6"):
        assert width_trap(Fleet([machine()]), Policy(), ResourceRequirement.from_string(other)) is None
    assert width_trap(Fleet([]), Policy(), asked) is None


def test_a_stage_tells_each_node_and_freed_capacity_helps_where_it_could():
    fleet = fleet_with(machine(), [0, 4])
    request = Request("r", ResourceRequirement.from_string("gpu=4,numa=single-numa-node"))
    found = find(fleet, Rules(), request)
    stage = found.stages[-1]
    assert (stage.filter, found.by_node, found.curable) == ("zones", {}, True)
    rejection = stage.removed[0]
    rooms = (ZoneRoom(0, "gpu", 3, 4), ZoneRoom(1, "gpu", 3, 4))
    assert (rejection.code, rejection.cure, rejection.zones) == (Code.NOT_ALIGNED, Cure.CAPACITY, rooms)
    assert reject_text(rejection).startswith("its cards and CPUs do not lie in the same zones: it needs 4 cards")


@pytest.mark.parametrize(
    ("node", "code"),
    [
        (machine(kubelet=kubelet("best-effort")), Code.NODE_POLICY_WEAKER),
        (machine(cards=range(8), cpus=[1] * 20, zones=range(20)), Code.ZONES_TOO_MANY),
        (machine(cards=(0, 0, 1, 1), cpus=(2, 2)), Code.NOT_ALIGNED),
    ],
)
def test_what_no_freed_capacity_cures(node, code):
    request = Request("r", ResourceRequirement.from_string("gpu=3,numa=single-numa-node"))
    found = find(Fleet([node]), Rules(), request)
    assert isinstance(found.refusal, Refusal)
    assert found.refusal.code is code
    assert found.refusal.rejections[0].cure is Cure.NODE_CHANGE
    assert not found.curable
