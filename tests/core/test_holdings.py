"""The ledger of one fleet: when it says that a waiting request may find room, and where what is found is entered."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import GIB, NOW, a_card, a_node, ask

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import OtherUsage
from ullage.core.placing.nomination import Promised
from ullage.model.allocation import Allocation, AllocationState, Charge
from ullage.model.claim import Claim
from ullage.model.error import Conflict
from ullage.model.nomination import Nomination
from ullage.model.request import ResourceRequirement

NODES = [a_node("m", a_card("m-0")), a_node("n", a_card("n-0"), a_card("n-1"))]
ONE = ResourceRequirement.of(gpu=1)


def an_allocator() -> FleetAllocator:
    made = FleetAllocator(Fleet(NODES))
    made.set_ready()
    made.fleet.charge(Allocation("executor", "m", ONE, ("m-0",)))
    return made


FIRST = Nomination(ask("gpu=1", "first"), "n", since=NOW)
PLACE = Promised((Allocation("promised", "n", ONE, ("n-1",)),))


@pytest.mark.parametrize(
    ("before", "change", "grows"),
    [
        pytest.param((), lambda a: a.nominate(FIRST), 1, id="room is reserved"),
        pytest.param((FIRST,), lambda a: a.nominate(replace(FIRST, since=NOW + 1)), 0, id="for a longer time"),
        pytest.param((FIRST,), lambda a: a.nominate(replace(FIRST, node="m")), 1, id="at another place"),
        pytest.param((FIRST,), lambda a: a.withdraw("first"), 1, id="no more"),
        pytest.param((FIRST,), lambda a: a.withdraw("other"), 0, id="for another, which had none"),
        pytest.param((), lambda a: a.promise_to_sessions((PLACE,)), 1, id="a session is promised a place"),
        pytest.param((), lambda a: a.promise_to_sessions(()), 0, id="no session is"),
        pytest.param((), lambda a: a.leave("executor"), 1, id="an executor is gone"),
        pytest.param((), lambda a: a.set_other_usage("n", OtherUsage(500, 0, 0)), 1, id="others use less CPU"),
        pytest.param((), lambda a: a.set_other_usage("n", OtherUsage(1500, 9, 9)), 0, id="others use more"),
        pytest.param((), lambda a: a.set_other_usage("n", OtherUsage(1500, 9, 0)), 1, id="others use a slot less"),
        pytest.param((), lambda a: a.set_nodes(NODES), 1, id="the nodes report"),
        pytest.param((), lambda a: a.dealloc("held", NOW), 1, id="a request gives back its cards"),
        pytest.param((), lambda a: a.dealloc("other", NOW), 0, id="one that holds none"),
        pytest.param((), lambda a: a.release("held"), 1, id="a request is to leave"),
        pytest.param((), lambda a: a.commit("held", NOW), 1, id="a request is bound"),
    ],
)
def test_the_version_grows_if_a_waiting_request_may_find_room_when(before, change, grows):
    allocator = an_allocator()
    allocator.set_other_usage("n", OtherUsage(1000, 5, 1))
    assert isinstance(allocator.assume(ask("gpu=1", "held"), ["n-0"], NOW), Allocation)
    allocator.nominate(*before)
    version = allocator.version
    change(allocator)
    assert allocator.version == version + grows


@pytest.mark.parametrize(
    ("node", "cards", "entered"),
    [
        pytest.param("n", ("n-0",), "n", id="where it was found"),
        pytest.param("n", ("m-0",), "n", id="on a known node that does not report the card"),
        pytest.param("gone", ("n-0",), "n", id="on the node of its card if its own is not known"),
        pytest.param("gone", ("m-0",), "m", id="which may be the first node"),
        pytest.param("gone", ("lost", "n-1"), "n", id="or of the first card that is known"),
        pytest.param("gone", ("lost",), "gone", id="on a node that is not known if its card is not either"),
        pytest.param("gone", (), "gone", id="or if it has no cards"),
    ],
)
def test_what_is_found_is_entered(node, cards, entered):
    allocator = FleetAllocator(Fleet(NODES))
    asked = ResourceRequirement.of(cpu=1, gpu=len(cards))
    allocator.adopt(Allocation("found", node, asked, cards, AllocationState.BOUND, claim=Claim("team")))
    held = allocator.fleet.ledger["found"]
    assert (held.node, held.gpus) == (entered, cards)


def test_a_ledger_that_is_reconciled_has_what_was_found_and_what_is_assumed():
    allocator = an_allocator()
    for uid, card in (("found", "n-0"), ("lost", "n-1")):
        assert isinstance(allocator.bind(ask("gpu=1", uid), [card], NOW), Allocation)
    found = allocator.fleet.ledger["found"]
    assert allocator.reconcile([found], NOW) == ("lost",)
    assert allocator.fleet.ledger.keys() == {"executor", "found"}
    assert isinstance(allocator.assume(ask("gpu=1", "assumed"), ["n-1"], NOW), Allocation)
    assert allocator.reconcile([found], NOW) == ()
    assert allocator.fleet.ledger.keys() == {"executor", "found", "assumed"}
    moved = replace(found, gpus=("m-0",), node="m")
    assert allocator.reconcile([moved], NOW) == ("found",)
    assert allocator.fleet.ledger["found"].gpus == ("m-0",)


@pytest.mark.parametrize(("pod_uid", "freed"), [(None, True), ("of the pod", True), ("held", True), ("other", False)])
def test_what_a_pod_holds_is_freed_by_the_uid_of_the_pod_or_of_the_request(pod_uid, freed):
    allocator = an_allocator()
    request = ask("gpu=1", "held", pod="web", pod_uid="of the pod")
    assert isinstance(allocator.bind(request, ["n-0"], NOW), Allocation)
    assert [each.uid for each in allocator.dealloc_by_pod("team", "web", NOW, pod_uid)] == ["held"] * freed
    assert ("held" in allocator.fleet.ledger) is not freed


@pytest.mark.parametrize(
    ("more", "fits"),
    [((50_000, 8), True), ((50_001, 8), False), ((50_000, 9), False), ((1, 1), True), ((50_001, 9), False)],
)
def test_a_part_is_entered_only_if_its_card_has_as_much_left(more, fits):
    fleet = Fleet(NODES)
    part = ResourceRequirement.from_string("tflops=50,vram=8g")

    def enter(uid: str, compute: int, gib: int, *, force: bool = False) -> None:
        charges = (Charge(compute, gib * GIB),)
        fleet.charge(Allocation(uid, "m", part, ("m-0",), charges=charges, claim=Claim("team")), force=force)

    enter("first", 50_000, 8)
    if fits:
        enter("second", *more)
    else:
        with pytest.raises(Conflict):
            enter("second", *more)
        assert fleet.ledger.keys() == {"first"}
        enter("second", *more, force=True)
    assert (fleet.compute_free.item(0), fleet.vram_free.item(0)) == (50_000 - more[0], (8 - more[1]) * GIB)
