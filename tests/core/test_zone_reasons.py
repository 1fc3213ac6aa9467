"""Refusals by zones: numbers per zone, and changes that are tried before they are named."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.core.zones import GIB, kubelet, machine

from ullage.core.books.fleet import Fleet
from ullage.core.explaining.explain import explain
from ullage.core.explaining.zone_warning import width_trap
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Refusal
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.sharing.world import Demand, World
from ullage.core.topology.board import Board
from ullage.core.verdict.sentences import reject_text
from ullage.core.verdict.zones import refusal_on
from ullage.model.alignment import Alignment, AlignmentStage, ContainerNeeds, Level, Pair
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.node import Node
from ullage.model.rejection import Code, Cure, ZoneRoom
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Device, ZonePolicy
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
    ("asked", "taken", "reported", "changes"),
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
def test_a_kubelet_that_hands_out_whole_cores_refuses_what_is_none(asked, taken, reported, changes):
    options = kubelet("none", cpu_options={"full-pcpus-only": "true"})
    node = machine(cards=(0, 1), cpus=(6, 6), threads=2, reserved=(0,), kubelet=options)
    fleet = Fleet([node])
    if taken:
        fleet.charge(Allocation("other", "n", ResourceRequirement(1), placement=ZonePlacement((), taken)))
    found = why(fleet, asked)
    assert found.summary.endswith(reported)
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
    reported = width_trap(Fleet(nodes), Policy(), requirement)
    assert reported is not None
    assert reported.startswith("no node here can align ")
    assert reported.endswith(change)
    busy = [Allocation(f"h{n}", "n", ResourceRequirement(1), (card.uuid,)) for n, card in enumerate(nodes[0].gpus)]
    assert width_trap(Fleet(nodes, busy), Policy(), requirement) == reported


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
    assert reject_text(rejection).startswith("what it needs does not lie in the same zones: it needs 4 cards")


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


def refused(node: Node, *containers: ContainerNeeds, taken: tuple[int, ...] = ()) -> str:
    """Return the reason why a pod with these containers is not placed on a node of which some cards are taken."""
    cards = sum(dict(each.devices).get("gpu", 0) for each in containers if each.stage is not AlignmentStage.INIT)
    cards = max([cards, *(dict(each.devices).get("gpu", 0) for each in containers)])
    asked = ResourceRequirement(gpu_count=cards, alignment=Alignment(ZonePolicy.SINGLE_ZONE, containers=containers))
    rejection = find(fleet_with(node, list(taken)), Rules(), Request("r", asked)).stages[-1].removed[0]
    return reject_text(rejection).partition(": ")[2].removesuffix(" (width rule kubelet)")


BOUND = kubelet("single-numa-node", static_memory=True)
NICS = tuple(Device("nic", number, f"nic-{number}", zones=(1,)) for number in range(2))


def cards_and(name: str = "", **needs: object) -> ContainerNeeds:
    return ContainerNeeds(name, devices=(("gpu", 2),), **needs)  # type: ignore[arg-type]  # facts by name


def test_memory_that_no_zone_has_is_the_reason():
    node = machine(memory=(64, 32), kubelet=BOUND)
    said = refused(node, cards_and(memory_bytes=80 * GIB))
    assert said == "it needs 80Gi of memory; n has 64Gi of 64Gi free on zone 0, 32Gi of 32Gi on zone 1"


def test_a_device_that_no_zone_has_enough_of_is_the_reason():
    node = machine(kubelet=BOUND)
    assert node.topology is not None
    node = replace(node, topology=replace(node.topology, devices=NICS))
    said = refused(node, ContainerNeeds(devices=(("gpu", 1), ("nic", 3))))
    assert said == "it needs 3 nic; n has 0 of 0 free on zone 0, 2 of 2 on zone 1"


def test_what_fits_only_apart_is_told_together():
    node = machine(memory=(64, 32), kubelet=BOUND)
    said = refused(node, cards_and(memory_bytes=48 * GIB), taken=(0, 1, 2))
    assert said == (
        "it needs 2 cards and 48Gi of memory in the same zones; "
        "n has 1 of 4 cards and 64Gi of 64Gi of memory free on zone 0, "
        "4 of 4 cards and 32Gi of 32Gi of memory on zone 1"
    )


def test_a_later_container_is_named_with_what_the_earlier_ones_leave():
    node = machine(kubelet=BOUND)
    three = (("gpu", 3),)
    said = refused(node, ContainerNeeds("a", devices=three), ContainerNeeds("b", devices=three), cards_and("c"))
    assert said == "its container c needs 2 cards; n has 1 of 4 free on zone 0, 1 of 4 on zone 1"


def test_an_init_container_is_the_reason():
    node = machine(kubelet=BOUND)
    said = refused(node, ContainerNeeds("setup", AlignmentStage.INIT, devices=(("gpu", 5),)), cards_and("main"))
    assert said == "its container setup needs 5 cards; n has 4 of 4 free on zone 0, 4 of 4 on zone 1"


@pytest.mark.parametrize("asked", ["cpu=5,gpu=1,numa=single-numa-node", "cpu=5,numa=single-numa-node"])
def test_what_no_zone_can_ever_hold_is_told_as_never_also_while_others_use_the_cpus(asked):
    fleet = Fleet([machine(cpus=(4, 4))])
    fleet.charge(Allocation("other", "n", ResourceRequirement(6000)))
    found = why(fleet, asked)
    assert found.cure is not Cure.CAPACITY
    assert "it needs 5 CPUs; n, when empty, has 4 of 4 free on zone 0, 4 of 4 on zone 1" in found.summary


def test_a_request_is_told_too_what_no_zone_can_ever_hold():
    fleet = Fleet([machine(cpus=(4, 4))])
    fleet.charge(Allocation("other", "n", ResourceRequirement(6000)))
    found = find(fleet, Rules(), Request("r", ResourceRequirement.from_string("cpu=5,gpu=1,numa=single-numa-node")))
    assert isinstance(found.refusal, Refusal)
    assert (found.refusal.code, found.curable) == (Code.NOT_ALIGNED, False)


def test_a_refusal_reads_the_supplies_of_a_node_once_however_many_pairs_there_are(monkeypatch):
    read = []
    left_of = Board.left_of

    def counted(board: Board, machine: int, resources):
        read.append(machine)
        return left_of(board, machine, resources)

    monkeypatch.setattr(Board, "left_of", counted)
    pairs = tuple(Pair(f"nic{number:02}", Level.REQUIRED) for number in range(64))
    asked = replace(ResourceRequirement.of(gpu=2), alignment=Alignment(pairs=pairs))
    refused = refusal_on(Fleet([machine()]), asked, 0, range(8))
    assert refused is not None
    assert refused.code is Code.NOT_ALIGNED
    assert {room.resource for room in refused.zones} >= {pair.resource for pair in pairs}
    assert read == [0]
