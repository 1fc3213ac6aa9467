"""Claims beside the books of cards: who holds what, and that cards are chosen as for any other request."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ullage.core.books.usage import OtherUsage
from ullage.core.placing.rules import Rules
from ullage.core.verdict.device_search import DevicePick
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import Expression, NodeAffinity, Operator
from ullage.model.alignment import LinkDemand
from ullage.model.card_driver import NVIDIA, CardDriver
from ullage.model.claim import Claim, Request
from ullage.model.device_claim import (
    ClaimAllocation,
    Constraint,
    DeviceAlternative,
    DeviceClaim,
    DeviceClass,
    DeviceRequest,
    DeviceResult,
)
from ullage.model.error import Conflict, InvalidRequest, UllageError
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector
from ullage.model.quota import Quota
from ullage.model.request import ResourceRequirement
from ullage.model.slice_device import Attribute, Capacity, Pool, SliceDevice, TaintRule, ValueKind
from ullage.model.taint import Taint, Toleration
from ullage.model.topology import Cpu, Link, Path, Topology, Zone, ZonePolicy
from ullage.service.claims import ClaimingPod, ClaimPlacement, Claims, Unplaced
from ullage.service.cluster import Cluster
from ullage.service.devices import Devices

DRIVER = "gpu.nvidia.com"
ZONE = "resource.kubernetes.io/numaNode"


def text(value):
    return Attribute(ValueKind.STRING, (value,))


def card(node, number, zone=0, model="A100", **more):
    attributes = {
        f"{DRIVER}/type": text("gpu"),
        f"{DRIVER}/uuid": text(f"{node}-{number}"),
        f"{DRIVER}/productName": text(model),
        f"{DRIVER}/index": Attribute(ValueKind.INT, (number,)),
        ZONE: Attribute(ValueKind.INT, (zone,)),
    }
    memory = {f"{DRIVER}/memory": Capacity(80 * 2**30 * 1000)}
    return SliceDevice(DRIVER, node, f"gpu-{number}", node, (zone,), attributes=attributes, capacity=memory, **more)


def part(node, number, of, memory=40):
    attributes = {f"{DRIVER}/type": text("mig"), f"{DRIVER}/parentUUID": text(f"{node}-{of}")}
    counters = {f"card-{of}": {"memory": memory}}
    return SliceDevice(DRIVER, node, f"gpu-{of}-mig-{number}", node, attributes=attributes, counters=counters)


def claim(name, *requests, constraints=(), allocation=None, **more):
    asked = requests or (DeviceRequest("r", (DeviceAlternative("r", "any"),)),)
    return DeviceClaim(name, "ns", name, tuple(asked), tuple(constraints), allocation, **more)


def of(count, name="r", device_class="any", **more):
    return DeviceRequest(name, (DeviceAlternative(name, device_class, count=count, **more),))


def results(*devices, **more):
    return ClaimAllocation(tuple(DeviceResult("r", device.id, **more) for device in devices))


def pod(*claims, uid="pod", **more):
    return ClaimingPod(uid, tuple(claims), **more)


class World:
    """Nodes with cards that a driver offers; `takes` says what a class takes."""

    def __init__(self, *pools, rules=None, nodes=None, takes=lambda expression, device: True, drivers=None, extra=()):
        self.now = 0.0
        self.cluster = Cluster(rules or Rules(), lambda: self.now, now=lambda: self.now)
        self.errors = []
        known = {"drivers": drivers} if drivers else {}
        self.devices = Devices(
            self.cluster, **known, clock=lambda: self.now, on_error=lambda *said: self.errors.append(said)
        )
        self.claims = Claims(self.cluster, self.devices, takes)
        for found in pools:
            self.devices.set_pool((found.driver, found.name), found)
        for name in ("any", *extra):
            self.claims.set_class(name, DeviceClass(name, (name,)))
        names = sorted({device.node for found in pools for device in found.devices if device.node})
        self.cluster.set_nodes(nodes or [self.node(name) for name in names])
        self.cluster.recover(())

    def node(self, name, **more):
        return Node(name, 64_000, 2**40, self.devices.cards_on(name) or (), max_executors=100, **more)

    def place(self, *claims, **more):
        return self.claims.place(pod(*claims, **more))

    @property
    def holders(self):
        self.devices.settle()
        return {uid: held.gpus for uid, held in self.cluster.allocator.fleet.ledger.items() if held.gpus}


def pool(node, *devices, **more):
    return Pool(DRIVER, node, tuple(devices), **more)


def cards(node, count, zones=1):
    return pool(node, *(card(node, number, number * zones // count) for number in range(count)))


def names(placement):
    assert isinstance(placement, ClaimPlacement), str(placement)
    return [pick.device.name for pick in placement.picks]


# --- cards of slices ---


def test_devices_of_a_driver_are_cards_in_the_order_of_their_numbers():
    devices = card("a", 1, 1), part("a", 0, 0), card("a", 0)
    world = World(pool("a", *devices))
    zone = {"zones": (0,)}
    assert world.devices.cards_on("a") == (
        Gpu("a-0", 0, "A100", "NVIDIA", 80 << 30, **zone),
        Gpu("a-1", 1, "A100", "NVIDIA", 80 << 30, zones=(1,)),
    )
    assert world.devices.cards_on("b") is None


def test_another_driver_is_described_by_its_attribute_names():
    socket = Attribute(ValueKind.INT, (1,))
    reported = {"x.example.com/id": text("X-1"), "x.example.com/name": text("Two"), "x.example.com/socket": socket}
    device = SliceDevice("x.example.com", "a", "d", "a", attributes=reported)
    driver = CardDriver("x.example.com", "X", kind="", uuid="id", model="name", zone="socket")
    world = World(Pool("x.example.com", "a", (device,)), drivers=(driver,))
    assert world.devices.cards_on("a") == (Gpu("X-1", 0, "Two", "X", zones=(1,)),)


def test_links_follow_from_the_attributes_of_cards():
    def joined(number, root, island=""):
        found = card("a", number)
        more = {f"{DRIVER}/fabric": text(island)} if island else {}
        return replace(found, pcie_root=root, attributes={**found.attributes, **more})

    devices = joined(0, "r0", "f0"), joined(1, "r1", "f0"), joined(2, "r0"), joined(3, None, "f1"), joined(4, "r2")
    world = World(pool("a", *devices, part("a", 0, 0)), drivers=(replace(NVIDIA, island="fabric"),))
    assert world.devices.links_on("a") == (Link("a-0", "a-1", Path.UNKNOWN, 1), Link("a-0", "a-2", Path.PHB))
    assert World(pool("a", *devices)).devices.links_on("a") == (Link("a-0", "a-2", Path.PHB),)
    assert world.devices.links_on("b") == ()
    both = World(pool("a", joined(0, "r0", "f0"), joined(1, "r0", "f0")), drivers=(replace(NVIDIA, island="fabric"),))
    assert both.devices.links_on("a") == (Link("a-0", "a-1", Path.PHB, 1),)


# --- what claims hold ---


def test_a_card_that_a_claim_has_is_held_and_free_when_it_is_not():
    world = World(cards("a", 2))
    first, second = world.devices._pools[DRIVER, "a"].devices
    world.devices.set_claim(claim("u", allocation=results(first)))
    assert world.holders == {"u": ("a-0",)}
    world.devices.set_claim(claim("u", allocation=results(first, second)))
    assert world.holders == {"u": ("a-0", "a-1")}
    world.devices.set_claim(claim("u"))
    assert world.holders == {}
    world.devices.set_claim(claim("u", allocation=results(first)))
    world.devices.remove_claim("u")
    assert world.holders == {}


def test_admin_access_to_a_card_holds_nothing():
    world = World(cards("a", 1))
    (device,) = world.devices._pools[DRIVER, "a"].devices
    world.devices.set_claim(claim("u", allocation=results(device, admin=True)))
    assert world.holders == {}


def test_parts_of_a_card_hold_it_together_and_claims_share_it():
    devices = card("a", 0, counters={"card-0": {"memory": 80}}), part("a", 1, 0), part("a", 2, 0)
    counters = {"card-0": {"memory": 80}}

    def takes(expression: str, device: SliceDevice) -> bool:
        return expression in ("any", device.text("type"))

    world = World(pool("a", *devices, counters=counters), takes=takes, extra=("gpu", "mig"))
    world.devices.set_claim(claim("u", allocation=results(devices[1])))
    assert world.holders == {"parts of a-0": ("a-0",)}
    assert world.cluster.held("parts of a-0").claim.namespace == ""
    assert names(world.place(claim("v", of(1, device_class="mig")))) == ["gpu-0-mig-2"]
    assert isinstance(world.place(claim("v", of(1, device_class="gpu"))), Unplaced)
    assert isinstance(world.place(claim("v", of(2, device_class="mig"))), Unplaced)
    world.devices.set_claim(claim("v", allocation=results(devices[2])))
    world.devices.remove_claim("u")
    assert world.holders == {"parts of a-0": ("a-0",)}
    world.devices.remove_claim("v")
    assert world.holders == {}
    assert names(world.place(claim("w", of(1, device_class="gpu")))) == ["gpu-0"]


def test_parts_of_a_card_that_somebody_else_holds_are_not_claimed():
    devices = card("a", 0), part("a", 1, 0)
    world = World(pool("a", *devices, counters={"card-0": {"memory": 80}}))
    world.cluster.assume(Request("q", ResourceRequirement(gpu_count=1)), ["a-0"])
    assert isinstance(world.place(claim("v")), Unplaced)


def test_all_cards_means_a_node_without_holders():
    world = World(cards("a", 2), cards("b", 2))
    world.cluster.assume(Request("q", ResourceRequirement(gpu_count=1)), ["a-1"])
    assert world.place(claim("u", of(None))).node == "b"


def test_a_device_that_is_no_card_is_held_as_soon_as_it_is_chosen():
    ports = Pool("net.example.com", "a", (SliceDevice("net.example.com", "a", "port", "a"),))
    world = World(cards("a", 1), ports, takes=by_driver, extra=("net.example.com",))
    asked = of(1, device_class="net.example.com")
    assert world.claims.hold(world.place(claim("u", asked))) is None
    world.devices.set_claim(claim("u", asked))  # a watch that is behind
    assert isinstance(world.place(claim("v", asked), uid="other"), Unplaced)
    world.devices.drop("u")
    assert world.place(claim("v", asked), uid="other").node == "a"


def test_a_card_with_two_owners_is_reported_and_both_stay():
    world = World(cards("a", 1))
    world.cluster.assume(Request("q", ResourceRequirement(gpu_count=1)), ["a-0"])
    (device,) = world.devices._pools[DRIVER, "a"].devices
    world.devices.set_claim(claim("u", allocation=results(device)))
    assert world.holders == {"q": ("a-0",), "u": ("a-0",)}
    assert [(kind, name, error.code) for kind, name, error in world.errors] == [
        ("ResourceClaim", "ns/u", "card-held-twice")
    ]


def test_cards_that_come_later_are_held_then():
    world = World(cards("a", 1), nodes=[Node("a", 1000, 1000)])
    (device,) = world.devices._pools[DRIVER, "a"].devices
    world.devices.set_claim(claim("u", allocation=results(device)))
    assert world.holders == {}
    world.cluster.set_nodes([world.node("a")])
    assert world.holders == {"u": ("a-0",)}


def test_a_device_that_is_not_offered_any_more_is_still_held():
    world = World(cards("a", 2))
    device = world.devices._pools[DRIVER, "a"].devices[0]
    world.devices.set_claim(claim("u", allocation=results(device)))
    world.devices.set_pool((DRIVER, "a"), None)
    assert world.holders == {"u": ("a-0",)}


def test_chosen_devices_are_held_until_they_are_reported_or_dropped():
    world = World(cards("a", 2))
    first = world.place(claim("u"))
    assert world.claims.hold(first) is None
    assert world.holders == {"u": ("a-0",)}
    assert names(world.place(claim("v"), uid="other")) == ["gpu-1"]
    world.devices.written("u")
    assert world.devices.overdue() == []
    world.devices.set_claim(claim("u"))  # a watch that is behind
    assert world.holders == {"u": ("a-0",)}
    world.now = 61.0
    assert [each.uid for each in world.devices.overdue()] == ["u"]
    world.devices.set_claim(claim("u", allocation=results(first.picks[0].device)))
    assert not world.devices.is_being_written("u")
    assert world.holders == {"u": ("a-0",)}
    world.claims.hold(world.place(claim("v"), uid="other"))
    world.devices.drop("v")
    assert world.holders == {"u": ("a-0",)}


def test_a_quota_counts_what_claims_have():
    world = World(cards("a", 3), rules=Rules(quotas=Quotas({"ns": Quota(max_workers=1, max_gpu_count=1)})))
    owner = Claim("ns")
    assert "single.max.gpuCount.limit" in str(world.place(claim("u", of(2)), claim=owner))
    assert world.claims.hold(world.place(claim("u"), claim=owner)) is None
    assert "total.max.workers.limit" in str(world.place(claim("v"), claim=owner, uid="other"))
    assert isinstance(world.place(claim("v"), claim=Claim("elsewhere"), uid="other"), ClaimPlacement)


# --- which cards ---


def zoned_node(world, name, zones):
    cpus = tuple(Cpu(number, number, number, number) for number in range(zones))
    topology = Topology(tuple(Zone(number) for number in range(zones)), (), cpus)
    return world.node(name, topology=topology)


def test_cards_are_chosen_as_the_books_choose_them():
    """Cards 0 and 1 are near, so are 2 and 3; card 0 is taken: a pair is 2 and 3, and a single one is 1."""
    world = World(cards("a", 4, zones=2))
    world.cluster.set_nodes([zoned_node(world, "a", 2)])
    first = world.devices._pools[DRIVER, "a"].devices[0]
    world.devices.set_claim(claim("u", allocation=results(first)))
    assert sorted(names(world.place(claim("v", of(2))))) == ["gpu-2", "gpu-3"]
    assert names(world.place(claim("v", of(1)))) == ["gpu-1"]


def test_cards_of_several_requests_and_claims_are_chosen_together():
    world = World(cards("a", 4, zones=2))
    world.cluster.set_nodes([zoned_node(world, "a", 2)])
    first = world.devices._pools[DRIVER, "a"].devices[0]
    world.devices.set_claim(claim("u", allocation=results(first)))
    assert sorted(names(world.place(claim("v", of(1)), claim("w", of(1))))) == ["gpu-2", "gpu-3"]


def linked(world, links):
    """The node `a`, whose cards are joined by (card, card, path, NVLinks)."""
    reported = tuple(Link(f"a-{one}", f"a-{other}", path, nvlinks) for one, other, path, nvlinks in links)
    return world.node("a", topology=Topology(links=reported))


def pairs(said):
    return [tuple(map(int, pair.split("-"))) for pair in said.split()]


def v100():
    """Eight cards: NVLinks in a cube mesh, four switches, two sockets."""
    nvlinks = dict.fromkeys(pairs("0-3 0-4 1-2 1-5 2-3 4-7 5-6 6-7"), 2)
    nvlinks |= dict.fromkeys(pairs("0-1 0-2 1-3 2-6 3-7 4-5 4-6 5-7"), 1)
    for one, other in itertools.combinations(range(8), 2):
        near = Path.PHB if one // 4 == other // 4 else Path.SYS
        path = Path.PIX if (one, other) in pairs("0-1 2-3 4-5 6-7") else near
        yield one, other, path, nvlinks.get((one, other), 0)


def bridged():
    yield from ((0, 3, Path.UNKNOWN, 2), (1, 2, Path.UNKNOWN, 2))
    yield from ((0, 1, Path.NODE, 0), (2, 3, Path.NODE, 0), (0, 2, Path.SYS, 0), (1, 3, Path.SYS, 0))


def held_by_another(world, cards):
    devices = {device.name: device for device in world.devices._pools[DRIVER, "a"].devices}
    world.devices.set_claim(claim("other", allocation=results(*(devices[f"gpu-{number}"] for number in cards))))


def test_a_full_zone_leaves_the_other_one():
    world = World(cards("a", 8, zones=2))
    world.cluster.set_nodes([zoned_node(world, "a", 2)])
    held_by_another(world, range(4))
    placed = world.place(claim("u", of(4)), policy=ZonePolicy("single-numa-node"))
    assert sorted(names(placed)) == [f"gpu-{number}" for number in range(4, 8)]
    assert isinstance(world.place(claim("u", of(5)), policy=ZonePolicy("single-numa-node")), Unplaced)


@pytest.mark.parametrize(
    ("free", "chosen"), [pytest.param((0, 2, 4, 5), (4, 5), id="64"), pytest.param((0, 1, 3), (0, 3), id="65")]
)
def test_cards_go_by_their_links(free, chosen):
    world = World(cards("a", 8))
    world.cluster.set_nodes([linked(world, v100())])
    held_by_another(world, set(range(8)) - set(free))
    assert sorted(names(world.place(claim("u", of(2))))) == [f"gpu-{number}" for number in chosen]


def test_two_claims_one_after_the_other_take_one_bridge_each():
    world = World(cards("a", 4))
    world.cluster.set_nodes([linked(world, bridged())])
    first = world.place(claim("u", of(2)))
    assert world.claims.hold(first) is None
    second = world.place(claim("v", of(2)), uid="other")
    assert [set(names(each)) for each in (first, second)] == [{"gpu-0", "gpu-3"}, {"gpu-1", "gpu-2"}]


def test_cards_of_one_island_can_be_demanded():
    world = World(cards("a", 4))
    world.cluster.set_nodes([linked(world, bridged())])  # 0 and 3 are joined, and 1 and 2
    held_by_another(world, {0, 1})
    assert sorted(names(world.place(claim("u", of(2))))) == ["gpu-2", "gpu-3"]
    refused = world.place(claim("u", of(2)), links=LinkDemand.ISLAND)
    assert isinstance(refused, Unplaced)
    held_by_another(world, {0})
    found = world.place(claim("u", of(2)), links=LinkDemand.ISLAND)
    assert sorted(names(found)) == ["gpu-1", "gpu-2"]


def test_a_constraint_narrows_what_the_books_choose_from():
    """The books would take cards 1 and 2 of one zone; alike are 0 and 3."""
    models = "X", "Y", "Z", "X"
    devices = [card("a", n, zone, model) for n, (zone, model) in enumerate(zip((0, 1, 1, 0), models, strict=True))]
    world = World(pool("a", *devices))
    world.cluster.set_nodes([zoned_node(world, "a", 2)])
    alike = claim("v", of(2), constraints=[Constraint(f"{DRIVER}/productName")])
    assert sorted(names(world.place(alike))) == ["gpu-0", "gpu-3"]


def test_the_best_of_the_groups_is_taken():
    """Two groups are alike, 0 and 1 of two zones, and 2 and 3 of one: these are taken."""
    models, zones = "XXYY", (0, 1, 1, 1)
    devices = [card("a", n, zone, model) for n, (zone, model) in enumerate(zip(zones, models, strict=True))]
    world = World(pool("a", *devices))
    world.cluster.set_nodes([zoned_node(world, "a", 2)])
    alike = claim("v", of(2), constraints=[Constraint(f"{DRIVER}/productName")])
    assert sorted(names(world.place(alike))) == ["gpu-2", "gpu-3"]


def test_a_request_for_all_cards_gets_all_or_none():
    world = World(cards("a", 2), cards("b", 1))
    first = world.devices._pools[DRIVER, "a"].devices[0]
    world.devices.set_claim(claim("u", allocation=results(first)))
    assert names(world.place(claim("v", of(None)))) == ["gpu-0"]
    assert world.place(claim("v", of(None))).node == "b"


def test_the_node_with_the_first_alternative_goes_before_a_better_one():
    big = card("b", 0, model="big")

    def takes(expression: str, device: SliceDevice) -> bool:
        return expression in ("any", device.text("productName"))

    world = World(cards("a", 2), pool("b", big), takes=takes, extra=("big",))
    either = DeviceRequest("r", (DeviceAlternative("r/big", "big"), DeviceAlternative("r/any", "any")))
    placed = world.place(claim("v", either))
    assert (placed.node, placed.picks[0].request) == ("b", "r/big")
    world.devices.set_claim(claim("u", allocation=results(big)))
    placed = world.place(claim("v", either))
    assert (placed.node, placed.picks[0].request) == ("a", "r/any")


# --- which node ---


def test_an_allocated_claim_determines_the_node_of_the_others():
    world = World(cards("a", 2), cards("b", 2))
    there = NodeAffinity(((Expression("metadata.name", Operator.IN, ("b",)),),))
    done = claim("u", allocation=ClaimAllocation((), there))
    placed = world.place(done, claim("v"))
    assert placed.node == "b"
    assert [each.uid for each in placed.claims] == ["v"]
    assert world.place(done) == ClaimPlacement("", (), ())
    assert str(world.place(done, claim("v", of(3)))) == "1 of 2 nodes: claim-elsewhere; 1 of 2 nodes: no-devices"


def test_where_the_pod_may_not_go_its_claims_are_not_allocated():
    world = World(cards("a", 1), cards("b", 1))
    taint = Taint("k", "v", "NoSchedule")
    world.cluster.set_nodes([world.node("a", taints=(taint,)), world.node("b", cordoned=True)])
    assert str(world.place(claim("u"))) == "1 of 2 nodes: node-cordoned; 1 of 2 nodes: node-tainted"
    placed = world.place(claim("u"), nodes=NodeAffinity(tolerations=(Toleration("k", "Exists"),)))
    assert placed.node == "a"
    assert world.claims.hold(placed) is None
    nowhere = NodeAffinity(((Expression("x", Operator.EXISTS),),), tolerations=(Toleration("", "Exists"),))
    assert "node-affinity" in str(world.place(claim("u"), nodes=nowhere))


def test_a_node_without_room_for_its_cpus_is_refused_by_the_books():
    world = World(cards("a", 1))
    assert "insufficient-cpu" in str(world.place(claim("u"), cpu_milli=65_000))
    assert world.place(claim("u"), cpu_milli=64_000).node == "a"


def test_a_class_that_is_missing_is_named():
    world = World(cards("a", 1))
    assert "device-class-missing: other" in str(world.place(claim("u", of(1, device_class="other"))))


def test_an_expression_without_an_answer_takes_no_device_and_is_reported_once():
    def fails(expression, device):
        raise InvalidRequest("no such key", code="selector-failed")

    world = World(cards("a", 2), takes=fails)
    assert "no-devices" in str(world.place(claim("u")))
    assert "no-devices" in str(world.place(claim("u", of(None))))
    assert [error.message for _, _, error in world.errors] == ["no such key"]


def by_driver(expression, device):
    return expression in ("any", device.driver)


def test_devices_that_are_no_cards_are_claimed_too():
    def nic(name, zone):
        return SliceDevice("nic.example.com", "a", name, "a", attributes={ZONE: Attribute(ValueKind.INT, (zone,))})

    nics = Pool("nic.example.com", "a", (nic("n0", 5), nic("n1", 1)))
    world = World(cards("a", 2, zones=2), nics, takes=by_driver, extra=("nic.example.com", DRIVER))
    both = claim("u", of(1, "g", DRIVER), of(1, "n", "nic.example.com"), constraints=[Constraint(ZONE)])
    assert names(world.place(both)) == ["gpu-1", "n1"]


def test_a_device_that_several_nodes_reach_can_be_used_on_each():
    rack = NodeAffinity(((Expression("rack", Operator.IN, ("1",)),),))
    fabric = Pool("net.example.com", "fabric", (SliceDevice("net.example.com", "fabric", "port", nodes=rack),))
    world = World(cards("a", 1), cards("b", 1), fabric, takes=by_driver, extra=("net.example.com",))
    world.cluster.set_nodes([world.node("a"), world.node("b", labels={"rack": "1"})])
    assert world.place(claim("u", of(1, device_class="net.example.com"))).node == "b"


# --- any history ---


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 2), st.sampled_from(["claim", "free", "other", "back"]))))
def test_no_card_is_ever_given_to_two(steps):
    world = World(cards("a", 2), cards("b", 2))
    uids = itertools.count()
    held: dict[str, ClaimPlacement] = {}
    others: list[str] = []
    for which, count, kind in steps:
        uid = str(next(uids))
        if kind == "claim":
            placed = world.place(claim(f"c{uid}", of(count)), uid=uid)
            if isinstance(placed, ClaimPlacement):
                assert world.claims.hold(placed) is None
                held[uid] = placed
                done = results(*(pick.device for pick in placed.picks))
                world.devices.set_claim(claim(f"c{uid}", of(count), allocation=done))
        elif kind == "other":
            world.devices.settle()
            request = Request(uid, ResourceRequirement(gpu_count=count, cards=CardSelector()))
            found = world.cluster.offers(request, ["a", "b"], expected=False)
            if found.best:
                world.cluster.adopt_bound(request, found.best)
                others.append(uid)
        elif kind == "free" and held:
            gone = sorted(held)[which % len(held)]
            del held[gone]
            world.devices.remove_claim(f"c{gone}")
        elif kind == "back" and others:
            world.cluster.free(others.pop(which % len(others)))
        given_out = [uuid for gpus in world.holders.values() for uuid in gpus]
        assert len(given_out) == len(set(given_out))
        wanted = {f"c{uid}" for uid in held} | set(others)
        assert set(world.holders) == wanted


@pytest.mark.parametrize("count", [1, 4])
def test_room_reserved_for_others_is_not_claimed(count):
    world = World(cards("a", 4))
    request = Request("q", ResourceRequirement(gpu_count=4))
    assert world.cluster.offers(request, ["a"]).best == "a"  # kept for it a short while
    assert isinstance(world.place(claim("u", of(count))), Unplaced)
    world.now = 11.0
    world.cluster.offers(request, [], expected=False)
    assert isinstance(world.place(claim("u", of(count))), ClaimPlacement)


def test_a_change_during_a_search_is_seen():
    """A node that goes is passed over; a card that is taken meanwhile is refused when it is to be held."""
    world = World(cards("a", 2), cards("b", 2), cards("c", 2), takes=lambda _, device: device.node == "c")
    looking = world.claims.placing(pod(claim("u", of(2))))
    next(looking)
    world.cluster.set_nodes([world.node("a"), world.node("c")])
    placed = rest_of(looking)
    assert placed.node == "c"
    world.cluster.assume(Request("q", ResourceRequirement(gpu_count=1)), ["c-1"])
    refused = world.claims.hold(placed)
    assert refused is not None
    assert world.holders == {"q": ("c-1",)}
    of_two_nodes = DevicePick(1, "r", card("a", 0)), DevicePick(1, "r", card("c", 0))  # nobody chooses that
    first = DevicePick(0, "r", card("a", 1))
    with pytest.raises(UllageError):
        world.claims.hold(ClaimPlacement("a", (claim("v"), claim("w", of(2))), (first, *of_two_nodes)))
    assert world.holders == {"q": ("c-1",)}


def rest_of(looking):
    while True:
        try:
            next(looking)
        except StopIteration as found:
            return found.value


# --- what is known of nodes ---


class Changes:
    """Whatever may change what nodes have for claims, by chance."""

    def __init__(self, seed):
        self.draw, self.numbers, self.there, self.taints = random.Random(seed), itertools.count(), [], {}
        self.nodes = ["a", "b", "c"]
        self.adapters = {node: SliceDevice("nic", node, "nic-0", node) for node in self.nodes}
        self.far = SliceDevice("far", "all", "far-0")
        pools = [*(cards(node, 3) for node in self.nodes), Pool("far", "all", (self.far,))]
        pools += [Pool("nic", node, (device,)) for node, device in self.adapters.items()]
        self.world = World(*pools, takes=self.takes, extra=(DRIVER, "nic", "far"))
        self.steps = [*[self.allocate] * 2, self.free, self.taint, self.crowd, self.rule, self.no_rule, self.offer]

    @staticmethod
    def takes(said, device):
        return said in (device.driver, "any")

    def fresh(self):
        found = Claims(self.world.cluster, self.world.devices, self.takes)
        for each in ("any", DRIVER, "nic", "far"):
            found.set_class(each, DeviceClass(each, (each,)))
        return found

    def step(self):
        self.draw.choice(self.steps)(self.draw.choice(self.nodes))

    def allocate(self, node):
        device = self.draw.choice([card(node, self.draw.randrange(3)), self.adapters[node], self.far])
        self.there.append(f"h{next(self.numbers)}")
        self.world.devices.set_claim(claim(self.there[-1], allocation=results(device)))

    def free(self, _node):
        if self.there:
            self.world.devices.remove_claim(self.there.pop(self.draw.randrange(len(self.there))))

    def taint(self, node):
        self.taints[node] = (Taint("k", "v", "NoSchedule"),) if self.draw.random() < 0.5 else ()
        self.world.cluster.set_nodes(self.world.node(each, taints=self.taints.get(each, ())) for each in self.nodes)

    def crowd(self, node):
        self.world.cluster.set_other_usage(node, OtherUsage(self.draw.choice([0, 63_000])))

    def rule(self, _node):
        taint = Taint("k", "v", "NoSchedule")
        self.world.devices.set_taint_rule("r", TaintRule(taint, self.draw.choice(["nic", "far", DRIVER])))

    def no_rule(self, _node):
        self.world.devices.set_taint_rule("r", None)

    def offer(self, node):
        devices = (self.adapters[node],) if self.draw.random() < 0.5 else ()
        self.world.devices.set_pool(("nic", node), Pool("nic", node, devices))


@pytest.mark.parametrize("seed", range(40))
def test_remembered_refusals_equal_a_fresh_search_after_any_change(seed):
    changes = Changes(seed)
    for _ in range(40):
        changes.step()
        for count, name in ((4, DRIVER), (1, "nic"), (2, DRIVER), (1, "far")):
            one = pod(claim("new", of(count, device_class=name)), cpu_milli=2000)
            assert changes.world.claims.place(one) == changes.fresh().place(one)


def test_a_device_that_was_taken_during_a_search_is_not_allocated_again():
    adapters = [SliceDevice("nic", node, "nic-0", node) for node in "ab"]
    world = World(*(Pool("nic", each.node, (each,)) for each in adapters))
    placed = world.place(claim("one", of(1)))
    world.devices.set_claim(claim("other", allocation=results(placed.picks[0].device)))
    with pytest.raises(Conflict, match="was taken meanwhile"):
        world.claims.hold(placed)
    assert not world.devices.is_being_written("one")
    again = world.place(claim("one", of(1)))
    assert again.node != placed.node
    assert world.claims.hold(again) is None


def test_an_earlier_allocation_in_a_watch_frees_no_held_device():
    world = World(cards("a", 2))
    first, second = (device.id for device in world.devices.pools_of("a")[0].devices)
    asked = claim("one")
    world.devices.set_claim(asked)
    placement = world.place(asked)
    assert isinstance(placement, ClaimPlacement)
    assert [pick.device.id for pick in placement.picks] == [first]
    assert world.claims.hold(placement) is None
    world.devices.written("one")
    earlier = claim("one", allocation=ClaimAllocation((DeviceResult("r", second),)))
    world.devices.set_claim(earlier)
    assert world.holders == {"one": ("a-0",)}
    assert isinstance(world.place(claim("two", of(1))), Unplaced), "both cards may be in use"
    world.devices.set_claim(asked)
    assert world.holders == {"one": ("a-0",)}
    world.devices.set_claim(claim("one", allocation=ClaimAllocation((DeviceResult("r", first),))))
    assert world.holders == {"one": ("a-0",)}
    assert not world.devices.is_being_written("one")
    world.devices.set_claim(asked)
    assert world.holders == {}
