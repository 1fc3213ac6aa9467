"""What is said where zones refuse: numbers per zone, and changes that are tried before they are told."""

from __future__ import annotations

import pytest
from tests.core.zones import kubelet, machine

from ullage.core.explain import explain
from ullage.core.fleet import Fleet
from ullage.core.policy import Policy
from ullage.core.selection import Refusal, Rules, find
from ullage.core.sentences import reject_text
from ullage.core.world import Demand, World
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure, ZoneRoom
from ullage.model.request import ResourceRequirement

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
