"""What the books of one fleet know besides amounts: users of cards, sizes, nodes open to work, and who was reported."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
from tests.books import NOW, Books, a_card, a_node, ask
from tests.core.test_fleet import sizes

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import OtherUsage
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import KnownEntitlement
from ullage.core.sharing.world import Demand, World
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim
from ullage.model.error import Conflict
from ullage.model.node import NodeState
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement
from ullage.model.zone_placement import Rank, ZonePlacement

CARD = ResourceRequirement.of(gpu=1)


@pytest.mark.parametrize(
    ("isolation", "most", "refused"),
    [
        pytest.param(Isolation.SOFT, 2, True, id="parts are held by as many as may share the card"),
        pytest.param(Isolation.SOFT, 3, False, id="parts are held by fewer"),
        pytest.param(Isolation.SOFT, None, False, id="any number may share it"),
        pytest.param(Isolation.PARTITIONED, 2, False, id="partitions are not counted"),
    ],
)
def test_a_card_takes_as_many_parts_as_it_may_have_users(isolation, most, refused):
    fleet = Fleet([a_node("n", a_card("n-0", max_users=most))])
    asked = ResourceRequirement.from_string("gpu=1,tflops=1")
    users = [Allocation(f"u{n}", "n", asked, ("n-0",), charges=(Charge(1000, 0, isolation),)) for n in range(3)]
    fleet.charge(users[0])
    fleet.charge(users[1])
    if refused:
        with pytest.raises(Conflict):
            fleet.charge(users[2])
    else:
        fleet.charge(users[2])
    assert len(fleet.holders[0]) == 3 - refused


def test_what_sessions_deserve_follows_what_requests_hold():
    """A request takes one of two cards, and gives it back; what an executor holds makes no difference."""
    fleet, known = Fleet([a_node("n", a_card("n-0"), a_card("n-1"))]), KnownEntitlement()
    world = World(fleet, (Demand("s", 1, CARD, 2),))
    assert known.of(world, Policy()) == {"s": 2}
    fleet.charge(Allocation("executor", "n", CARD, ("n-1",)))
    assert known.of(world, Policy()) == {"s": 2}
    fleet.charge(Allocation("request", "n", CARD, ("n-0",), claim=Claim()))
    assert known.of(world, Policy()) == {"s": 1}
    fleet.release("request")
    assert known.of(world, Policy()) == {"s": 2}


def test_books_that_are_opened_have_every_node_open_and_nobody_on_it():
    states = {"ready": {}, "cordoned": {"cordoned": True}, "down": {"state": NodeState.NOT_READY}}
    fleet = Fleet([a_node(name, a_card(f"{name}-0"), **facts) for name, facts in states.items()])
    fleet.charge(Allocation("held", "ready", CARD, ("ready-0",)))
    opened = fleet.opened()
    assert [node.name for node in fleet.nodes if node.schedulable] == ["ready"]
    assert opened.schedulable.tolist() == [True, True, True]
    assert not opened.ledger
    assert fleet.opened() is opened


def test_what_others_use_of_a_node_and_who_has_no_cards_says_nothing_of_the_sizes_that_run_there():
    books = Books(a_node("n", *(a_card(f"n-{k}") for k in range(3))))
    books.run("pair", "n-0", "n-1", of="")
    for usage in (OtherUsage(1000, 5, 1), OtherUsage(500, 5, 1), OtherUsage()):
        books.fleet.set_other_usage("n", usage)
        assert sizes(books.fleet) == {2}
    books.fleet.charge(Allocation("no cards", "n", ResourceRequirement.of(cpu=1)))
    assert sizes(books.fleet) == {2}


def test_a_request_that_is_bound_again_is_reported_again():
    allocator, heard = FleetAllocator(Fleet([a_node("n")])), []
    allocator.set_ready()
    allocator.register_bind_handler(lambda held: heard.append(held.id))
    for _ in range(2):
        assert isinstance(allocator.alloc(ask("gpu=1", "again"), NOW), Allocation)
        assert allocator.notify_bound("again") == ()
        assert allocator.notify_bound("again") == ()
        allocator.dealloc("again", NOW)
    assert heard == ["again", "again"]


def test_nodes_that_changed_are_known_in_the_order_of_their_last_change_whichever_was_last():
    fleet = Fleet([a_node(name, a_card(f"{name}-0")) for name in "abc"])
    for first in range(3):
        for second in range(3):
            clock = fleet.clock
            for number, row in enumerate((first, second)):
                fleet.charge(Allocation(f"x{number}", "abc"[row], ResourceRequirement.of(cpu=1)))
            assert fleet.touched_since(clock) == sorted({first, second})
            assert fleet.touched_since(fleet.clock - 1) == [second]
            fleet.release("x1")
            assert fleet.touched_since(fleet.clock - 1) == [second]
            fleet.release("x0")
    assert fleet.touched_since(-1) == [0, 1, 2]


# --- what is found outside ---


def an_allocator(held: Allocation) -> FleetAllocator:
    allocator = FleetAllocator(Fleet([a_node("m"), a_node("n")]))
    allocator.set_ready()
    allocator.fleet.charge(held)
    return allocator


def test_who_leaves_still_leaves_by_its_time_when_it_is_found_again():
    held = Allocation("held", "n", CARD, ("n-0",), AllocationState.RELEASING, claim=Claim(), bound_at=NOW)
    allocator = an_allocator(replace(held, release_by=NOW + 60, released_at=NOW + 5))
    assert allocator.adopt(replace(held, state=AllocationState.BOUND)) == {}
    known = allocator.fleet.ledger["held"]
    assert (known.state, known.release_by, known.released_at) == (AllocationState.RELEASING, NOW + 60, NOW + 5)


@pytest.mark.parametrize(("node", "kept"), [("n", True), ("m", False)])
def test_where_its_node_showed_a_request_it_is_until_it_is_found_on_another_node(node, kept):
    seen = ZonePlacement(devices=(("nvidia.com/gpu", ("0",)),), rank=Rank.OBSERVED)
    held = Allocation("held", "n", CARD, ("n-0",), AllocationState.BOUND, claim=Claim(), bound_at=NOW)
    allocator = an_allocator(replace(held, placement=seen))
    assert allocator.fleet.ledger["held"].observed
    allocator.adopt(replace(held, node=node, gpus=(f"{node}-0",)))
    assert allocator.fleet.ledger["held"].observed is kept
    assert allocator.fleet.ledger["held"].node == node


def test_what_others_hold_by_zone_is_in_the_ledger_and_the_version_grows_if_it_changed():
    allocator = an_allocator(Allocation("executor", "m", CARD, ("m-0",)))
    versions, few, more = [allocator.version], ((0, "nvidia.com/gpu", 1),), ((0, "nvidia.com/gpu", 2),)
    there: tuple[tuple[int, str, int], ...] = ()
    for node, amounts in (("n", few), ("n", few), ("n", more), ("m", ()), ("x", few), ("n", ()), ("n", ())):
        allocator.set_zone_usage(node, amounts)
        there = amounts if node == "n" else there
        held = [each.placement for each in allocator.fleet.ledger.values() if each.id != "executor"]
        assert [each.amounts for each in held] == [there] * bool(there)
        versions.append(allocator.version)
    grew = [after > before for before, after in itertools.pairwise(versions)]
    assert grew == [True, False, True, False, False, True, False]


def test_cards_are_in_the_order_of_their_indices_whatever_order_they_were_reported_in():
    cards = tuple(a_card(f"n-{number}") for number in range(3))
    for reported in itertools.permutations(cards):
        (node,) = Fleet([a_node("n", *reported)]).nodes
        assert node.gpus == cards


def test_a_trial_inside_another_one_leaves_that_open_and_nothing_is_noted_after_both():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    fleet = books.fleet
    outer = fleet.checkpoint()
    books.run("first", "n-0")
    inner = fleet.checkpoint()
    books.run("second", "n-1")
    fleet.rollback(inner)
    assert list(fleet.ledger) == ["first"]
    books.run("third", "n-1")
    fleet.rollback(outer)
    assert list(fleet.ledger) == []
    books.run("stays", "n-0")
    assert fleet.checkpoint() == 0, "what happens outside of trials is not noted"


def test_books_for_another_thread_have_emptied_books_of_their_own():
    fleet = Books(a_node("n", a_card("n-0"))).run("x", "n-0").fleet
    empty = fleet.emptied()
    apart = fleet.copy(apart=True)
    assert apart.emptied() is not empty
    assert list(apart.emptied().ledger) == []
    assert fleet.copy().emptied() is empty
