"""Room that is made by moving, from the plan until everybody has its cards."""

from contextlib import contextmanager
from dataclasses import replace

import pytest
from tests.lab import Lab, a_node
from tests.service.test_restart import Machine

from ullage.core.evicting.moves import Consolidation, NoConsolidation
from ullage.core.evicting.preemption import NoPreemption
from ullage.core.placing.decision import Refusal
from ullage.core.placing.nomination import NOMINATED_TTL_S
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict
from ullage.model.nomination import Nomination
from ullage.model.quota import Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


def nothing() -> None:
    pass


def asked(uid: str, text: str = "gpu=2", priority: int = 0, strategy: str | None = None) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(priority=priority), strategy)


@pytest.fixture
def machine(tmp_path):
    """Two nodes of two cards, half a card held on each."""

    @contextmanager
    def build():
        with Machine(str(tmp_path / "state.db"), a_node("n1", gpus=2), a_node("n2", gpus=2)) as lab:
            yield lab

    with build() as lab:
        alloc(lab, "a", "gpu=0.4", strategy="spread")
        alloc(lab, "b", "gpu=0.4", strategy="spread")
        assert {held(lab, uid).node for uid in "ab"} == {"n1", "n2"}
        yield lab


def alloc(machine, uid, text="gpu=2", priority=0, strategy=None):
    outcome = machine.service.allocations.alloc(asked(uid, text, priority, strategy), nothing)
    machine.pump()
    return outcome


def free(machine, uid):
    machine.service.allocations.dealloc(uid, None, nothing)
    machine.pump()


def held(machine, uid):
    return machine.service.state.fleet.ledger[uid]


def make_room(machine, *uids):
    found = machine.service.consolidations.carry_out(asked("room"), uids, None, nothing)
    machine.pump()
    return found


def kept(machine):
    return {entry.request.uid: (entry.node, entry.gpus) for entry in machine.service.preemptions.nominations()}


def reported(machine, kind):
    return [event.data["uid"] for event in machine.service.events.recent if event.kind == kind]


def test_a_plan_changes_nothing(machine):
    before = dict(machine.service.state.fleet.ledger)
    found = machine.service.consolidations.plan(asked("room"), 1, None)
    assert isinstance(found, Consolidation)
    assert machine.service.state.fleet.ledger == before
    assert not kept(machine)


def test_a_moving_allocation_leaves_and_returns_at_the_reserved_place_and_the_room_is_free(machine):
    found = make_room(machine, "wide")
    (move,) = found.moves
    uid = move.allocation.id
    assert held(machine, uid).state is AllocationState.RELEASING
    assert kept(machine) == {uid: (move.to.node, move.to.gpus), "wide": (found.units[0].node, found.units[0].gpus)}
    assert reported(machine, "allocation.moving") == [uid]
    assert isinstance(alloc(machine, "wide"), Refusal)
    free(machine, uid)
    assert set(reported(machine, "allocation.ready")) == {uid, "wide"}
    back = alloc(machine, uid, "gpu=0.4")
    assert (back.node, back.gpus) == (move.to.node, move.to.gpus)
    wide = alloc(machine, "wide")
    assert (wide.node, wide.gpus) == (found.units[0].node, found.units[0].gpus)
    assert not kept(machine)


def test_room_is_not_searched_while_leaving_allocations_still_hold_it(machine, monkeypatch):
    tried = []
    simulate = machine.service.state.allocator.simulate
    monkeypatch.setattr(
        machine.service.state.allocator, "simulate", lambda asked: (tried.append(asked.uid), simulate(asked))[1]
    )
    (move,) = make_room(machine, "wide").moves
    alloc(machine, "other", "gpu=0.1")
    assert tried == []
    free(machine, move.allocation.id)
    assert set(tried) == {"wide", move.allocation.id}


@pytest.mark.parametrize("priority", [-1, 0, 100_000])
def test_no_priority_gets_cards_that_are_held(machine, priority):
    found = make_room(machine, "wide")
    free(machine, found.moves[0].allocation.id)
    refused = alloc(machine, "other", "gpu=2", priority)
    assert isinstance(refused, Refusal)
    assert refused.code is Code.NOMINATED
    (room,) = found.units
    for number in range(4):
        other = alloc(machine, f"small-{number}", "gpu=0.5", priority)
        assert not isinstance(other, Allocation) or not set(other.gpus) & set(room.gpus)


def test_sessions_use_no_held_cards(machine):
    found = make_room(machine, "wide")
    free(machine, found.moves[0].allocation.id)
    machine.session("train", "cpu=1,gpu=1", tasks=4)
    cards = {gpu for executor in machine.executors for gpu in executor.gpus}
    assert len(cards) == 1
    assert not cards & {gpu for _, gpus in kept(machine).values() for gpu in gpus}


def test_a_restart_in_the_middle_loses_nothing(machine):
    found = make_room(machine, "wide")
    uid, places = found.moves[0].allocation.id, kept(machine)
    machine.restart()
    assert kept(machine) == places
    assert held(machine, uid).state is AllocationState.RELEASING
    free(machine, uid)
    machine.restart()
    assert kept(machine) == places
    back, wide = alloc(machine, uid, "gpu=0.4"), alloc(machine, "wide")
    assert (back.gpus, wide.gpus) == (places[uid][1], places["wide"][1])
    machine.restart()
    assert not kept(machine)


def test_an_unclaimed_place_is_reserved_for_half_an_hour(machine):
    found = make_room(machine, "wide")
    free(machine, found.moves[0].allocation.id)
    machine.pass_time(NOMINATED_TTL_S + 1)
    assert not kept(machine)
    assert isinstance(alloc(machine, "other"), Allocation)


def test_a_repeated_release_keeps_its_place_and_a_forgotten_allocation_does_not(machine):
    uid = make_room(machine, "wide").moves[0].allocation.id
    machine.service.allocations.release(uid, 60.0, nothing)
    assert uid in kept(machine)
    machine.pass_time(61)
    assert uid not in machine.service.state.fleet.ledger
    assert uid in kept(machine)
    free(machine, uid)
    assert uid not in kept(machine)
    machine.service.allocations.forget("wide", nothing)
    assert not kept(machine)


def test_without_moves_the_room_is_reserved_at_once(machine):
    free(machine, "a")
    found = make_room(machine, "wide")
    assert (found.moves, list(kept(machine))) == ((), ["wide"])
    assert isinstance(alloc(machine, "wide"), Allocation)


def test_an_impossible_request_is_refused_and_changes_nothing(machine):
    before = dict(machine.service.state.fleet.ledger)
    found = make_room(machine, "one", "two")
    assert isinstance(found, NoConsolidation)
    assert (found.rejections[0].needed, found.rejections[0].had) == (2, 1)
    assert machine.service.state.fleet.ledger == before
    assert not kept(machine)


def test_a_uid_that_holds_cards_or_waits_is_refused(machine):
    with pytest.raises(Conflict):
        make_room(machine, "a")
    make_room(machine, "wide")
    with pytest.raises(Conflict):
        make_room(machine, "wide")


def test_a_place_that_was_lost_meanwhile_is_chosen_again(machine):
    found = make_room(machine, "wide")
    uid, to = found.moves[0].allocation.id, found.moves[0].to
    free(machine, uid)
    machine.service.nodes.cordon(to.node, cordoned=True)
    machine.service.allocations.forget("wide", nothing)
    back = alloc(machine, uid, "gpu=0.4")
    assert back.node != to.node


# --- nobody moves in vain ---


def own(uid: str, text: str, card: str | None = None) -> tuple[Request, list[str] | None]:
    request = Request(uid, ResourceRequirement.from_string(text), Claim(namespace="own"))
    return request, None if card is None else [card]


def take(machine, uid, text, card=None):
    """A request of the namespace `own`."""
    request, gpus = own(uid, text, card)
    if gpus is None:
        return machine.service.allocations.alloc(request, nothing)
    return machine.service.allocations.bind(request, gpus, nothing)


@contextmanager
def two_halves():
    """Two nodes of two cards, part of a card held on each by the namespace `own`."""
    with Lab(a_node("n1", gpus=2), a_node("n2", gpus=2)) as lab:
        take(lab, "a", "gpu=0.4", "GPU-n1-0")
        take(lab, "b", "gpu=0.4", "GPU-n2-0")
        yield lab


def test_room_that_was_made_stays_reserved_for_its_request():
    with two_halves() as lab:
        for move in make_room(lab, "wide").moves:
            free(lab, move.allocation.id)
        assert isinstance(alloc(lab, "wide"), Allocation)
        higher = asked("higher", priority=100)
        assert isinstance(lab.service.preemptions.alloc(higher, nothing), NoPreemption)
        lab.pass_time(lab.service.state.allocator.rules.protected_s)
        assert isinstance(lab.service.preemptions.alloc(higher, nothing), Nomination)


def test_room_that_was_there_without_moves_is_not_protected():
    with Lab(a_node("n1", gpus=2)) as lab:
        make_room(lab, "wide")
        wide = alloc(lab, "wide")
        assert wide.claim.protected_until == 0.0


def test_a_moving_allocation_keeps_its_part_of_the_quota_of_its_namespace():
    with two_halves() as lab:
        lab.service.quotas.put("own", Quota(max_workers=2), nothing)
        (move,) = make_room(lab, "wide").moves
        free(lab, move.allocation.id)
        assert isinstance(take(lab, "other", "gpu=0.1"), Refusal)
        assert isinstance(take(lab, move.allocation.id, "gpu=0.4"), Allocation)


def test_a_moving_allocation_counts_once_in_the_quota_of_its_namespace():
    with two_halves() as lab:
        lab.service.quotas.put("own", Quota(max_workers=3), nothing)
        make_room(lab, "wide")
        assert isinstance(take(lab, "third", "gpu=0.1"), Allocation)


def test_nothing_moves_for_a_request_that_a_quota_then_refuses():
    with two_halves() as lab:
        lab.service.quotas.put("own", Quota(max_workers=3), nothing)
        request, _ = own("room", "gpu=1")
        found = lab.service.consolidations.carry_out(request, ["one", "two"], None, nothing)
        assert isinstance(found, NoConsolidation)
        assert (found.code, found.rejections[0].quota.used) == (Code.QUOTA_TOTAL_WORKERS, 3)
        assert not kept(lab)
        request, _ = own("room", "gpu=2")
        assert isinstance(lab.service.consolidations.carry_out(request, ["one"], None, nothing), Consolidation)


def test_resources_that_a_moving_allocation_still_holds_are_not_charged_twice():
    with Lab(a_node("n1", cpu=4, gpus=3)) as lab:
        take(lab, "a", "cpu=1,gpu=0.4", "GPU-n1-0")
        take(lab, "b", "cpu=1,gpu=0.4", "GPU-n1-1")
        (move,) = make_room(lab, "wide").moves
        assert isinstance(take(lab, "third", "cpu=2,gpu=0.1"), Allocation)
        free(lab, move.allocation.id)
        assert isinstance(take(lab, "fourth", "cpu=1,gpu=0.1"), Refusal)
        assert isinstance(take(lab, move.allocation.id, "cpu=1,gpu=0.4"), Allocation)


def test_a_place_on_a_part_of_a_card_is_not_exchanged_with_another_moving_allocation():
    """`first` can come to the free half at once, though another one is about to leave the card."""
    with Lab(a_node("n1", gpus=2)) as lab:
        take(lab, "second", "gpu=0.5", "GPU-n1-1")
        lab.service.allocations.release("second", None, nothing)
        books = lab.service.state.allocator
        request, _ = own("first", "gpu=0.5")
        place = books.choose_on(replace(request, requirement=ON_SECOND), "n1")
        books.nominate(Nomination(request, "n1", lab.now, place.gpus, place.charges, hold=True, owed=True))
        refused = lab.service.allocations.alloc(Request("other", ON_SECOND), nothing)
        assert isinstance(refused, Refusal)
        assert take(lab, "first", "gpu=0.5").gpus == ("GPU-n1-1",)


ON_SECOND = ResourceRequirement.from_string("gpu=0.5,gpu_index=1")
