"""What nodes show of who holds what goes before what the ledger says: the cases of the ledger, and what is reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from tests.books import a_card, a_node
from tests.core.zones import GIB, kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.observation import LAG_S, Mismatch, foreign_id
from ullage.core.gang import Gangs
from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import Conflict, NotFound
from ullage.model.holding import Holding, MemoryHolding, PodHolding, Use
from ullage.model.node import Node
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.request import ResourceRequirement
from ullage.model.topology import Device
from ullage.model.zone_placement import Rank

pytestmark = pytest.mark.timeout(900)

B = machine("n")
KUBELET = machine("n", kubelet=kubelet("best-effort"), memory=(4, 4))


def books(*nodes: Node) -> FleetAllocator:
    found = FleetAllocator(Fleet(nodes or (B,)))
    found.set_ready()
    return found


def ask(uid: str, text: str = "gpu=4", pod: str = "", **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim("team", pod=pod or uid, **claim))


def cards(*numbers: int, node: str = "n") -> tuple[str, ...]:
    return tuple(f"{node}-g{number}" for number in numbers)


def shows(*pods: PodHolding, stale: bool = False) -> Use:
    return Use(pods, stale)


def pod(uid: str = "", name: str = "", gpus: tuple[str, ...] = (), cpus: tuple[int, ...] = (), **more: object):
    devices = (("gpu", gpus),) if gpus else ()
    return PodHolding("team", name, uid, (Holding("main", cpus, devices + more.pop("devices", ()), **more),))


def place(found: FleetAllocator, uid: str, text: str = "gpu=4", pod: str = "") -> Allocation:
    placed = found.alloc(ask(uid, text, pod), 0.0)
    assert isinstance(placed, Allocation)
    return placed


def as_rebuilt(found: FleetAllocator) -> None:
    """The books are what the ledger says."""
    fleet = found.fleet
    again = Fleet(fleet.nodes, fleet.ledger.values())
    assert (fleet.card_rows[:, :6] == again.card_rows[:, :6]).all()
    assert (fleet.gpu_free == again.gpu_free).all()
    assert (fleet.cpu_free == again.cpu_free).all()
    assert (fleet.board.supplies == again.board.supplies).all()
    assert fleet.holders == again.holders


# --- the cases of the ledger ---


def test_two_of_four_fill_a_machine_and_one_that_goes_gives_its_own_back():
    found = books()
    assert place(found, "a").gpus == cards(0, 1, 2, 3)
    assert place(found, "b").gpus == cards(4, 5, 6, 7)
    assert isinstance(found.alloc(ask("c"), 0.0), Refusal)
    found.dealloc("a", 1.0)
    assert place(found, "c").gpus == cards(0, 1, 2, 3)


def test_a_gang_that_is_not_placed_leaves_what_was_free():
    found = books()
    before = found.fleet.card_rows.copy(), found.fleet.board.supplies.copy()
    gang, gangs = GangClaim("g", 3, 3), Gangs()
    for number in range(3):
        request = Request(f"g{number}", ResourceRequirement.from_string("gpu=4"), Claim("team", gang=gang))
        gangs.add(request, 0.0)
    assert [outcome.placed for outcome in gangs.tick(found, 0.0)] == [()]
    assert (found.fleet.card_rows[:, :6] == before[0][:, :6]).all()
    assert (found.fleet.board.supplies == before[1]).all()


def test_a_pod_that_goes_before_its_node_showed_it_is_gone_at_once():
    found = books()
    place(found, "a")
    found.observe("n", shows(), 1.0)
    found.dealloc("a", 2.0)
    assert not found.fleet.ledger
    seen = found.observe("n", shows(pod(uid="a", gpus=cards(0, 1, 2, 3))), 3.0)
    assert (seen.foreign, seen.owners) == (None, ())
    assert place(found, "b").gpus == cards(0, 1, 2, 3)


# --- what is shown goes first ---


def test_what_is_shown_as_it_was_bound_is_confirmed():
    found = books()
    place(found, "a")
    seen = found.observe("n", shows(pod(uid="a", gpus=cards(3, 2, 1, 0))), 5.0)
    assert seen.mismatches == ()
    held = found.fleet.ledger["a"]
    assert held.observed
    assert (held.gpus, held.placement.zones) == (cards(0, 1, 2, 3), (0,))
    assert seen.changed == (held,)
    assert found.observe("n", shows(pod(uid="a", gpus=cards(3, 2, 1, 0))), 6.0).changed == ()


@pytest.mark.parametrize(
    "shown", [pod(uid="a"), pod(uid="p-uid"), pod(name="p"), pod(uid="p-uid", name="other")], ids=str
)
def test_a_pod_is_known_by_its_uid_or_its_name(shown):
    found = books()
    placed = found.alloc(ask("a", pod="p", pod_uid="p-uid"), 0.0)
    shown = replace(shown, containers=(Holding("c", devices=(("gpu", placed.gpus),)),))
    found.observe("n", shows(shown), 1.0)
    assert found.fleet.ledger["a"].observed
    assert found.observe("n", shows(shown), 1.0).foreign is None


def test_a_pod_of_the_same_name_and_another_uid_is_another_one():
    found = books()
    placed = found.alloc(ask("a", pod="p", pod_uid="p-uid"), 0.0)
    seen = found.observe("n", shows(pod(uid="new-uid", name="p", gpus=cards(4))), 1.0)
    assert found.fleet.ledger["a"] == placed
    assert seen.owners == ("team/p",)


def test_other_cards_than_were_bound_are_a_mismatch_and_the_ledger_is_healed():
    found = books(KUBELET)
    placed = place(found, "a", "cpu=4,gpu=4")
    assert (placed.gpus, placed.placement.cpus) == (cards(0, 1, 2, 3), (0, 1, 2, 3))
    found.take_dirty()
    seen = found.observe("n", shows(pod(uid="a", gpus=cards(4, 5, 6, 7), cpus=(16, 17, 18, 19))), 5.0)
    assert seen.mismatches == (
        Mismatch("a", "n", "gpu", cards(0, 1, 2, 3), cards(4, 5, 6, 7)),
        Mismatch("a", "n", "cpu", ("0", "1", "2", "3"), ("16", "17", "18", "19")),
    )
    held = found.fleet.ledger["a"]
    assert (held.gpus, held.placement.zones, held.placement.rank) == (cards(4, 5, 6, 7), (1,), Rank.OBSERVED)
    assert held.placement.cpus == (16, 17, 18, 19)
    assert found.take_dirty() == frozenset(cards(*range(8)))
    as_rebuilt(found)
    assert place(found, "b", "cpu=4,gpu=4").gpus == cards(0, 1, 2, 3)
    assert isinstance(found.alloc(ask("c", "gpu=1"), 6.0), Refusal)


def test_who_is_on_cards_that_another_one_shows_shares_them_with_nobody_new():
    """Until the other one is shown too both are on the books; no card is free before both are gone from it."""
    found = books()
    place(found, "a")
    place(found, "b")
    found.observe("n", shows(pod(uid="a", gpus=cards(4, 5, 6, 7))), 1.0)
    as_rebuilt(found)
    assert place(found, "c", "gpu=4").gpus == cards(0, 1, 2, 3)
    found.dealloc("a", 2.0)
    as_rebuilt(found)
    assert isinstance(found.alloc(ask("d", "gpu=1"), 2.0), Refusal)
    found.dealloc("b", 3.0)
    assert place(found, "d").gpus == cards(4, 5, 6, 7)


def test_cpus_and_memory_that_are_not_shown_with_the_cards_are_not_held():
    found = books(replace(KUBELET, topology=replace(KUBELET.topology, kubelet=kubelet("none", static_cpus=True))))
    place(found, "a", "cpu=4,gpu=1")
    seen = found.observe("n", shows(pod(uid="a", gpus=cards(0))), 5.0)
    assert [(each.resource, each.shown) for each in seen.mismatches] == [("cpu", ())]
    assert found.fleet.ledger["a"].placement.cpus == ()
    as_rebuilt(found)


def test_a_pod_that_is_shown_without_its_cards_is_not_shown_yet():
    """It is admitted before it has devices: its CPUs are those that are shown, its cards stay its own."""
    found = books(KUBELET)
    placed = place(found, "a", "cpu=4,gpu=4")
    assert found.observe("n", shows(pod(uid="a")), 1.0).changed == ()
    seen = found.observe("n", shows(pod(uid="a", cpus=(8, 9, 10, 11))), 1.0)
    assert [each.resource for each in seen.mismatches] == ["cpu"]
    held = found.fleet.ledger["a"]
    assert (held.gpus, held.observed) == (placed.gpus, False)
    assert held.placement.cpus == (8, 9, 10, 11)
    as_rebuilt(found)


def test_a_file_that_is_kept_of_some_resources_replaces_only_these():
    found = books(KUBELET)
    placed = place(found, "a", "cpu=4,gpu=4")
    found.observe("n", shows(pod(uid="a", gpus=cards(4, 5, 6, 7)), stale=True), 1.0)
    held = found.fleet.ledger["a"]
    assert (held.gpus, held.placement.cpus, held.observed) == (cards(4, 5, 6, 7), placed.placement.cpus, True)
    found.observe("n", shows(pod(uid="a", cpus=(4, 5, 6, 7)), stale=True), 2.0)
    held = found.fleet.ledger["a"]
    assert (held.gpus, held.placement.cpus, held.observed) == (cards(4, 5, 6, 7), (4, 5, 6, 7), True)
    as_rebuilt(found)


def test_ids_of_no_card_here_are_told_and_change_nothing():
    """As where a plugin of its own hands out cards: what the kubelet records then is not what runs."""
    found = books()
    placed = place(found, "a")
    seen = found.observe("n", shows(pod(uid="a", gpus=("vgpu-1", "m-g0"))), 1.0)
    assert (seen.unknown, seen.changed, seen.mismatches) == (("m-g0", "vgpu-1"), (), ())
    assert found.fleet.ledger["a"] == placed


def test_memory_and_huge_pages_are_held_by_zone_as_they_are_shown():
    found = books(KUBELET)
    place(found, "a", "gpu=1")
    blocks = (MemoryHolding("memory", (0, 1), 3 * GIB), MemoryHolding("hugepages-2Mi", (1,), GIB))
    found.observe("n", shows(pod(uid="a", gpus=cards(0), memory=blocks)), 1.0)
    placement = found.fleet.ledger["a"].placement
    assert placement.memory == ((0, 3 * GIB // 2), (1, 3 * GIB // 2))
    assert (placement.amounts, placement.zones) == (((1, "hugepages-2Mi", GIB),), (0, 1))
    as_rebuilt(found)


def test_a_part_of_a_card_goes_where_it_is_shown():
    found = books(a_node("n", a_card("n-0", gib=16), a_card("n-1", gib=32)))
    placed = place(found, "a", "gpu=1,vram=4g,tflops=10")
    other = next(uuid for uuid in ("n-0", "n-1") if uuid not in placed.gpus)
    seen = found.observe("n", shows(pod(uid="a", gpus=(f"{other}::3",))), 1.0)
    assert seen.mismatches == (Mismatch("a", "n", "gpu", placed.gpus, (other,)),)
    held = found.fleet.ledger["a"]
    assert (held.gpus, held.charges) == ((other,), placed.charges)
    assert held.charges[0].isolation is Isolation.SOFT
    as_rebuilt(found)


def test_a_card_on_which_two_isolations_are_shown_takes_nobody_until_both_users_are_gone():
    dynamic = [a_card(f"n-{k}", isolation_policy=IsolationPolicy.DYNAMIC) for k in range(2)]
    found = books(a_node("n", *dynamic))
    (on,) = place(found, "a", "gpu=1,tflops=10,isolation=soft").gpus
    place(found, "b", "gpu=1,tflops=10,isolation=hard")
    found.observe("n", shows(pod(uid="a", gpus=(on,)), pod(uid="b", gpus=(on,))), 1.0)
    pair = "gpu=2,tflops=10,isolation=soft"
    assert isinstance(found.alloc(ask("c", pair), 2.0), Refusal)
    found.dealloc("b", 3.0)
    assert isinstance(found.alloc(ask("c", pair), 3.0), Refusal)
    found.dealloc("a", 4.0)
    assert set(place(found, "c", pair).gpus) == {"n-0", "n-1"}


def test_a_pod_with_two_requests_is_shown_as_one():
    found = books()
    place(found, "a", "gpu=2", "p")
    place(found, "b", "gpu=1", "p")
    found.observe("n", shows(pod(name="p", gpus=cards(0, 1, 2))), 1.0)
    held = found.fleet.ledger
    assert (held["a"].gpus, held["b"].gpus) == (cards(0, 1), cards(2))
    seen = found.observe("n", shows(pod(name="p", gpus=cards(1, 6, 7))), 2.0)
    assert (held["a"].gpus, held["b"].gpus) == (cards(1, 6), cards(7))
    assert [each.uid for each in seen.mismatches] == ["a", "b"]
    assert found.observe("n", shows(pod(name="p", gpus=cards(1, 6, 7))), 3.0).changed == ()
    as_rebuilt(found)


def test_a_node_that_is_not_known_is_refused():
    with pytest.raises(NotFound) as refused:
        books().observe("elsewhere", shows(), 0.0)
    assert (refused.value.code, refused.value.field) == ("unknown-node", "node")


# --- owners that are not known ---


def test_what_a_stranger_holds_is_not_free_until_its_node_stops_showing_it():
    nic = Device("nic", 0, "nic-0", zones=(1,))
    node = replace(KUBELET, topology=replace(KUBELET.topology, devices=(nic,)))
    found = books(node)
    stranger = pod(name="other", gpus=cards(0, 1), cpus=(0, 1), devices=(("nic", ("nic-0",)),))
    seen = found.observe("n", shows(stranger), 1.0)
    assert seen.owners == ("team/other",)
    assert seen.foreign is not None
    assert seen.foreign.state is AllocationState.FOREIGN
    assert (seen.foreign.gpus, seen.foreign.placement.zones) == (cards(0, 1), (0, 1))
    assert found.fleet.cpu_free.tolist() == [30_000]
    as_rebuilt(found)
    assert place(found, "a", "gpu=6").gpus == cards(2, 3, 4, 5, 6, 7)
    assert isinstance(found.alloc(ask("b", "gpu=1"), 1.0), Refusal)
    assert found.observe("n", shows(stranger), 2.0).changed == ()
    assert found.observe("n", shows(), 3.0).foreign is None
    assert place(found, "b", "gpu=2").gpus == cards(0, 1)
    as_rebuilt(found)


def test_what_a_stranger_holds_counts_in_no_share_and_nobody_can_take_it():
    found = books()
    found.observe("n", shows(pod(name="other", gpus=cards(0, 1, 2, 3, 4))), 1.0)
    assert found.fleet.requested().gpu_free.tolist() == [3]
    refused = found.preempt(ask("a", priority=100), 2.0)
    assert [attempt.shielded for attempt in refused.attempts] == [{"owner-not-known": 1}]
    with pytest.raises(Conflict, match="a node shows of others"):
        found.held(foreign_id("n"))
    assert found.sweep(1e6, lambda _: False, lambda _: False) == ()


@pytest.mark.parametrize(
    "held", [{"gpus": ("x-1", "y-2", "y-2::1")}, {"counts": (("gpu", 2),)}, {"gpus": ("x-1",), "counts": (("gpu", 1),)}]
)
def test_cards_that_a_stranger_holds_without_a_name_are_not_free(held):
    found = books()
    place(found, "a", "gpu=1")
    stranger = pod(name="other", **held)
    assert found.observe("n", shows(stranger), 1.0).foreign.gpus == cards(1, 2)
    found.dealloc("a", 2.0)
    again = found.observe("n", shows(stranger, pod(name="second", gpus=cards(1))), 3.0)
    assert again.foreign.gpus == cards(0, 1, 2), "one more is held by name, and what had no name may be any other"
    assert place(found, "b", "gpu=5").gpus == cards(3, 4, 5, 6, 7)
    as_rebuilt(found)
    assert found.observe("n", shows(), 4.0).foreign is None


def test_a_known_owner_that_is_shown_with_an_unknown_id_keeps_as_many_of_its_cards():
    found = books()
    place(found, "a", "gpu=3")
    found.observe("n", shows(pod(uid="a", gpus=(*cards(5), "x-1"))), 1.0)
    assert found.fleet.ledger["a"].gpus == cards(0, 5)
    as_rebuilt(found)


def test_shares_that_a_plugin_makes_of_a_card_hold_no_other():
    found = books()
    assert found.observe("n", shows(pod(name="other", gpus=("n-g0-3", "n-g0-4"))), 1.0).foreign is None


def test_who_has_just_left_is_no_stranger_for_as_long_as_a_node_may_lag():
    found = books()
    place(found, "a", "gpu=1", "p")
    found.dealloc("a", 10.0)
    by_name = shows(pod(name="p", gpus=cards(0)))
    assert found.observe("n", by_name, 10.0 + LAG_S).foreign is None
    assert found.observe("n", by_name, 11.0 + LAG_S).foreign is not None
    assert found.observe("n", replace(by_name, stale=True), 11.0 + LAG_S).foreign is None


def test_a_stranger_that_becomes_known_holds_its_cards_once():
    found = books()
    shown = shows(pod(uid="a", name="a", gpus=cards(0, 1)))
    found.observe("n", shown, 1.0)
    asked = ask("a", "gpu=2")
    found.reconcile([Allocation("a", "n", asked.requirement, cards(0, 1), AllocationState.BOUND, (), asked.claim)], 2.0)
    assert found.observe("n", shown, 3.0).foreign is None
    assert list(found.fleet.ledger) == ["a"]
    as_rebuilt(found)


def test_what_is_foreign_stays_while_its_node_does_and_its_cards_do_not_move():
    other = machine("m", cards=(0,), cpus=(2, 2))
    found = books(B, other)
    found.observe("n", shows(pod(name="other", gpus=cards(0, 1))), 1.0)
    found.set_nodes([replace(B, gpus=B.gpus[1:]), replace(other, gpus=(*other.gpus, B.gpus[0]))])
    assert found.fleet.ledger[foreign_id("n")].gpus == cards(1)
    as_rebuilt(found)
    found.set_nodes([other])
    assert not found.fleet.ledger


# --- what is not shown ---


def test_what_is_bound_and_not_shown_is_told_after_a_while_and_stays():
    found = books()
    place(found, "a", "gpu=1")
    assert found.unconfirmed(1e6) == ()  # nobody tells what this node has
    for at in (1.0, LAG_S, LAG_S + 1):
        found.observe("n", shows(), at)
    assert found.unconfirmed(LAG_S) == ()
    assert [held.id for held in found.unconfirmed(LAG_S + 1)] == ["a"]
    assert found.is_bound("a")
    found.observe("n", shows(pod(uid="a", gpus=cards(0))), LAG_S + 2)
    assert found.unconfirmed(1e6) == ()
    found.observe("n", shows(), LAG_S + 3)
    assert found.is_bound("a")
    assert found.unconfirmed(1e6) == ()


def test_what_is_only_reserved_waits_for_nobody():
    found = books()
    found.assume(ask("a", "gpu=1"), cards(0), 0.0)
    found.observe("n", shows(), 1.0)
    assert found.unconfirmed(1e6) == ()
    found.observe("n", shows(pod(uid="a", gpus=cards(1))), 2.0)
    assert found.commit("a", 3.0).gpus == cards(1)


# --- the ledger from outside ---


def test_what_was_seen_is_not_undone_by_what_was_written_at_bind():
    found = books()
    placed = place(found, "a")
    found.observe("n", shows(pod(uid="a", gpus=cards(4, 5, 6, 7))), 1.0)
    assert found.reconcile([placed], 2.0) == ()
    assert found.fleet.ledger["a"].gpus == cards(4, 5, 6, 7)


def test_a_restart_finds_what_was_seen_even_where_two_have_a_card_by_the_ledger():
    found = books()
    place(found, "a")
    place(found, "b")
    found.observe("n", shows(pod(uid="a", gpus=cards(4, 5, 6, 7)), pod(name="other", gpus=cards(0))), 1.0)
    again = FleetAllocator(Fleet(()))
    again.reconcile(found.fleet.ledger.values(), 2.0)
    again.set_nodes([B])
    again.set_ready()
    assert again.fleet.ledger == found.fleet.ledger
    assert (again.fleet.card_users == found.fleet.card_users).all()
    as_rebuilt(again)
