"""What the books of one fleet know besides amounts: users of cards, sizes, nodes open to work, and who was reported."""

from __future__ import annotations

import pytest
from tests.books import NOW, Books, a_card, a_node, ask
from tests.core.test_fleet import sizes

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import OtherUsage
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import KnownEntitlement
from ullage.core.sharing.world import Demand, World
from ullage.model.allocation import Allocation, Charge
from ullage.model.claim import Claim
from ullage.model.error import Conflict
from ullage.model.node import NodeState
from ullage.model.part import Isolation
from ullage.model.request import ResourceRequirement

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


def test_what_others_use_of_a_node_says_nothing_of_the_sizes_that_run_there():
    books = Books(a_node("n", *(a_card(f"n-{k}") for k in range(3))))
    books.run("pair", "n-0", "n-1", of="")
    for usage in (OtherUsage(1000, 5, 1), OtherUsage(500, 5, 1), OtherUsage()):
        books.fleet.set_other_usage("n", usage)
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
