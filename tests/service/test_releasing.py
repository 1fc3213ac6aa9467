"""Owners that were asked to leave: their cards are charged until it is confirmed, or the time is over."""

from __future__ import annotations

import pytest
from tests.lab import Lab, a_node

from ullage.core.placing.decision import Refusal
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import NotFound
from ullage.model.request import ResourceRequirement
from ullage.service.store_port import PutAllocation

ONE_CARD = a_node(gpus=1)


def ask(uid: str, **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string("gpu=1"), Claim(**claim))


def nobody() -> None:
    """Nobody waits for the answer."""


def released(lab: Lab, within_s: float | None) -> Allocation:
    lab.service.allocations.alloc(ask("p"), nobody)
    answer = lab.service.allocations.release("p", within_s, nobody)
    lab.pump()
    return answer


def kinds(lab: Lab) -> list[str]:
    return [event.kind for event in lab.service.events.recent if event.kind.startswith("allocation.")]


def test_without_a_time_the_card_is_held_until_it_is_confirmed():
    with Lab(ONE_CARD) as lab:
        assert released(lab, None).state is AllocationState.RELEASING
        lab.pass_time(10 * 24 * 3600)
        assert isinstance(lab.service.allocations.alloc(ask("q"), nobody), Refusal)
        assert lab.service.allocations.dealloc("p", None, nobody).gpus == ("GPU-n1-0",)
        assert isinstance(lab.service.allocations.alloc(ask("q"), nobody), Allocation)


def test_the_card_is_free_when_the_time_is_over_and_not_before():
    with Lab(ONE_CARD) as lab:
        assert released(lab, 60).release_by == lab.now + 60
        lab.pass_time(59)
        assert isinstance(lab.service.allocations.alloc(ask("q"), nobody), Refusal)
        lab.pass_time(1)
        assert kinds(lab) == ["allocation.bound", "allocation.releasing", "allocation.freed"]
        assert lab.store.load().allocations == ()
        assert isinstance(lab.service.allocations.alloc(ask("q"), nobody), Allocation)


def test_a_repeat_brings_the_time_forward_and_never_puts_it_off():
    with Lab(ONE_CARD) as lab:
        first = released(lab, 60)
        assert lab.service.allocations.release("p", 90, nobody) == first
        assert lab.service.allocations.release("p", None, nobody) == first
        assert kinds(lab) == ["allocation.bound", "allocation.releasing"]
        lab.service.allocations.release("p", 5, nobody)
        lab.pass_time(5)
        assert lab.service.allocations.all() == ()


def test_a_uid_that_was_confirmed_and_placed_again_is_not_freed_by_the_old_time():
    with Lab(ONE_CARD) as lab:
        released(lab, 60)
        lab.service.allocations.dealloc("p", None, nobody)
        lab.service.allocations.alloc(ask("p"), nobody)
        lab.pass_time(60)
        assert lab.service.allocations.get("p").state is AllocationState.BOUND


def test_nor_is_one_whose_gang_was_ended():
    with Lab(ONE_CARD) as lab:
        lab.service.gangs.put("g", [ask("p", gang=GangClaim("g", 1, 1))], nobody)
        lab.service.allocations.release("p", 60, nobody)
        lab.service.gangs.drop("g", nobody)
        lab.service.allocations.alloc(ask("p"), nobody)
        lab.pass_time(60)
        assert lab.service.allocations.get("p").state is AllocationState.BOUND


def test_an_assumption_that_is_released_is_not_swept():
    with Lab(ONE_CARD) as lab:
        lab.service.allocations.assume(ask("p"), None, nobody)
        lab.service.allocations.release("p", None, nobody)
        lab.pass_time(24 * 3600)
        assert lab.service.allocations.get("p").state is AllocationState.RELEASING


def test_a_restart_keeps_the_time():
    with Lab(ONE_CARD) as lab:
        released(lab, 60)
        (stored,) = lab.store.load().allocations
        with Lab(ONE_CARD) as again:
            again.store.write(PutAllocation(stored)).result()
            again.service.allocations.recover(lab.store.load())
            again.pass_time(59)
            assert again.service.allocations.get("p").state is AllocationState.RELEASING
            again.pass_time(1)
            assert (again.service.allocations.all(), again.store.load().allocations) == ((), ())


def test_a_member_of_a_gang_that_was_released_does_not_come_back():
    with Lab(ONE_CARD) as lab:
        lab.service.gangs.put("g", [ask("p", gang=GangClaim("g", 1, 1))], nobody)
        lab.service.allocations.release("p", 60, nobody)
        lab.pass_time(60)
        assert lab.service.allocations.all() == ()


def test_a_request_without_cards_cannot_be_released():
    with Lab(ONE_CARD) as lab, pytest.raises(NotFound, match="allocation p does not exist"):
        lab.service.allocations.release("p", None, nobody)
