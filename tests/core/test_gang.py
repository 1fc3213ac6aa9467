"""Gangs: together or not at all; amounts as TFLOPS and GiB, cards of 100/100 unless said."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from ullage.core.admitting.gang_state import BACKOFF_S, MAX_BACKOFF_S, GangOutcome, GangPhase
from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.gang import Gangs
from ullage.core.placing.decision import Refusal
from ullage.core.placing.draft import Misfit, by_size, fit_together
from ullage.core.placing.nomination import NOMINATED_TTL_S
from ullage.core.placing.rules import Rules
from ullage.core.placing.subgroups import fit_gang
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import Conflict, InvalidRequest, Unavailable
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import CardSelector, Isolation, Part
from ullage.model.quota import Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

GIB = 2**30
SOFT = CardSelector(isolation=Isolation.SOFT)


def allocating(*cards_per_node: int, **rules: object) -> FleetAllocator:
    nodes = [
        Node(f"n{k}", 64_000, 2**40, tuple(Gpu(f"n{k}-g{i}", i, "X", "V", 100 * GIB, 100_000) for i in range(cards)))
        for k, cards in enumerate(cards_per_node)
    ]
    allocator = FleetAllocator(Fleet(nodes), Rules(**rules))
    allocator.set_ready()
    return allocator


def member(
    uid: str,
    key: str = "gang",
    required: int = 3,
    size: int = 100,
    *,
    count: int = 1,
    timeout: float | None = None,
    desired: int | None = None,
) -> Request:
    requirement = ResourceRequirement(0, 0, count, Part(size * 1000, size * GIB), SOFT)
    gang = GangClaim(key, required, max(required, desired or 0), timeout)
    return Request(uid, requirement, Claim("team", gang=gang))


def plain(uid: str, size: int = 100) -> Request:
    return Request(uid, ResourceRequirement(0, 0, 1, Part(size * 1000, size * GIB), SOFT), Claim("team"))


def content(fleet: Fleet) -> tuple[object, ...]:
    """All that the books say."""
    columns = (fleet.cpu_free, fleet.memory_free, fleet.slots_free, fleet.gpu_free, fleet.compute_free, fleet.vram_free)
    held = [dict(sorted(holders.items())) for holders in fleet.holders]
    return dict(fleet.ledger), dict(fleet.usage), held, [column.tolist() for column in (*columns, fleet.card_users)]


class Lab:
    """Gangs over an allocator with a clock."""

    def __init__(self, *cards_per_node: int, **rules: object) -> None:
        self.allocator = allocating(*cards_per_node, **rules)
        self.gangs = Gangs()
        self.now = 0.0

    def add(self, *members: Request) -> None:
        for request in members:
            self.gangs.add(request, self.now)

    def tick(self, after: float = 0.0, *, commit: bool = True) -> tuple[GangOutcome, ...]:
        self.now += after
        return self.gangs.tick(self.allocator, self.now, commit=commit)

    def code(self, uid: str) -> Code:
        answer = self.gangs.answer(uid)
        assert isinstance(answer, Refusal)
        return answer.code

    @property
    def held(self) -> dict[str, AllocationState]:
        return {uid: allocation.state for uid, allocation in sorted(self.allocator.fleet.ledger.items())}


BOUND, ASSUMED = AllocationState.BOUND, AllocationState.ASSUMED


# --- quorum ---


def test_two_of_three_wait_and_the_third_lets_all_go():  # C87
    lab = Lab(4)
    lab.add(member("a"), member("b"))
    assert lab.tick()[0].phase is GangPhase.PENDING
    assert (lab.held, lab.code("a"), lab.gangs.phase("gang")) == ({}, Code.GANG_INCOMPLETE, GangPhase.PENDING)
    lab.add(member("c"))
    (outcome,) = lab.tick(1)
    assert (outcome.key, outcome.phase) == ("gang", GangPhase.RUNNING)
    assert [allocation.id for allocation in outcome.placed] == ["a", "b", "c"]
    assert lab.held == {"a": BOUND, "b": BOUND, "c": BOUND}
    assert lab.tick(1) == ()


def test_what_is_told_of_an_incomplete_gang_has_numbers():
    lab = Lab(4)
    lab.add(member("a"), member("b"))
    lab.tick()
    (rejection,) = lab.gangs.answer("b").rejections
    assert (rejection.needed, rejection.had) == (3, 2)


def test_members_that_run_already_count():
    lab = Lab(4)
    for uid in ("old-1", "old-2"):
        lab.allocator.alloc(member(uid), 0)
    lab.add(member("new"))
    lab.tick()
    assert lab.held["new"] is BOUND


def test_a_member_that_is_being_released_does_not_count():
    lab = Lab(4)
    for uid in ("old-1", "old-2"):
        lab.allocator.alloc(member(uid), 0)
    lab.allocator.release("old-1")
    lab.add(member("new"))
    lab.tick()
    assert "new" not in lab.held


def test_late_members_of_a_satisfied_gang_pass_alone():
    lab = Lab(4)
    lab.add(*(member(uid, desired=5) for uid in "abc"))
    lab.tick()
    lab.add(member("d", desired=5), member("e", desired=5))
    (outcome,) = lab.tick(1)
    assert [allocation.id for allocation in outcome.placed] == ["d"]
    assert (lab.held["d"], outcome.phase) == (BOUND, GangPhase.RUNNING)
    assert lab.code("e") in (Code.GPU_COMPUTE, Code.GPU_VRAM)
    assert lab.tick(10_000) == ()
    lab.allocator.dealloc("a", lab.now)
    lab.gangs.remove("a")
    lab.tick()
    assert lab.held["e"] is BOUND


def test_of_late_members_that_are_alike_the_first_that_finds_no_room_speaks_for_all(monkeypatch: pytest.MonkeyPatch):
    lab = Lab(3)
    lab.add(member("a", required=1, desired=9))
    lab.tick()
    tried: list[str] = []

    def counted(fleet, rules, requests, *more, **reserved):
        tried.extend(request.uid for request in requests)
        return fit_gang(fleet, rules, requests, *more, **reserved)

    monkeypatch.setattr("ullage.core.admitting.gang_step.fit_gang", counted)
    for uid in ("b", "c", "d", "e", "f"):
        lab.add(member(uid, required=1, desired=9, count=2))
    lab.add(member("small", required=1, desired=9, size=50))
    lab.tick()
    assert set(tried) == {"b", "c", "small"}
    assert {uid: isinstance(lab.gangs.answer(uid), Allocation) for uid in ("b", "c", "d", "f")} == {
        "b": True,
        "c": False,
        "d": False,
        "f": False,
    }
    assert lab.gangs.answer("f") == lab.gangs.answer("c")


def test_more_members_than_required_go_together_if_they_fit_and_else_as_many_as_do():
    lab = Lab(4)
    lab.add(*(member(uid, desired=5) for uid in "abcde"))
    (outcome,) = lab.tick()
    assert (len(outcome.placed), outcome.phase) == (4, GangPhase.RUNNING)
    assert sum(isinstance(answer, Refusal) for answer in outcome.answers.values()) == 1


def test_a_request_without_a_gang_or_of_another_is_refused():
    lab = Lab(1)
    with pytest.raises(InvalidRequest, match="gang"):
        lab.add(plain("x"))
    lab.add(member("a"))
    lab.add(member("a"))
    with pytest.raises(Conflict, match="gang"):
        lab.add(member("a", "other"))
    assert lab.gangs.remove("nobody") is None


def test_an_allocator_that_is_not_ready_places_nobody():
    lab = Lab(4)
    lab.allocator.set_ready(False)
    lab.add(*(member(uid) for uid in "abc"))
    with pytest.raises(Unavailable):
        lab.tick()
    assert lab.gangs.phase("gang") is GangPhase.PENDING


# --- all or nothing ---


def test_a_gang_that_does_not_fit_leaves_the_books_as_they_were():
    lab = Lab(1, 1)
    lab.allocator.alloc(plain("other", 10), 0)
    before = content(lab.allocator.fleet), lab.allocator.version, lab.allocator.take_dirty()
    lab.add(*(member(uid, size=90) for uid in "abc"))
    (outcome,) = lab.tick()
    assert (outcome.phase, outcome.placed) == (GangPhase.WAITING, ())
    assert (content(lab.allocator.fleet), lab.allocator.version) == before[:2]
    assert lab.allocator.take_dirty() == frozenset()
    assert sorted(lab.code(uid) for uid in "abc")[:2] == [Code.GANG_ROOM, Code.GANG_ROOM]


def test_it_goes_when_there_is_room():
    lab = Lab(3)
    lab.allocator.alloc(plain("other"), 0)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick()
    assert list(lab.held) == ["other"]
    lab.allocator.dealloc("other", 1)
    lab.tick(1)
    assert lab.held == dict.fromkeys("abc", BOUND)


def test_the_quota_of_the_whole_gang_counts():
    quotas = Quotas({"team": Quota(max_workers=2)})
    lab = Lab(4, quotas=quotas)
    before = content(lab.allocator.fleet)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick()
    assert content(lab.allocator.fleet) == before
    assert Code.QUOTA_TOTAL_WORKERS in {lab.code(uid) for uid in "abc"}


def test_larger_members_are_placed_first_and_each_is_answered():
    lab = Lab(1, 2)
    lab.add(member("small", size=30), member("wide", count=2, size=60), member("large", size=70))
    sized = by_size(lab.allocator.fleet, [member("s", size=30), member("w", count=2, size=60), member("l", size=70)])
    assert [request.uid for request in sized] == ["w", "l", "s"]
    (outcome,) = lab.tick()
    assert {uid: answer.state for uid, answer in outcome.answers.items()} == dict.fromkeys(
        ("small", "wide", "large"), BOUND
    )
    assert lab.allocator.fleet.ledger["wide"].node == "n1"


def test_a_gang_that_fits_only_tightly_is_packed():
    sizes = [60, 40, 40, 30, 30]
    members = [member(f"m{k}", required=5, size=size) for k, size in enumerate(sizes)]
    lab = Lab(2, strategy="low-load-first")
    lab.add(*members)
    lab.tick()
    assert len(lab.held) == 5
    one = allocating(2, strategy="low-load-first")
    before = content(one.fleet)
    misfit = fit_together(one.fleet, one.rules, [*members, member("more", size=1)], 0)
    assert isinstance(misfit, Misfit)
    assert (misfit.uid, content(one.fleet)) == ("m4", before)


def test_the_smallest_that_are_enough_go_when_not_all_fit():
    lab = Lab(1)
    lab.add(*(member(f"m{size}", required=2, size=size, desired=3) for size in (90, 50, 40)))
    (outcome,) = lab.tick()
    assert [allocation.id for allocation in outcome.placed] == ["m40", "m50"]


# --- in time ---


def test_a_wait_that_is_too_long_ends_and_a_new_one_begins_after_the_back_off():
    lab = Lab(4)
    lab.add(member("a", timeout=60))
    assert lab.gangs.due() == 60
    lab.tick(30)
    lab.add(member("b", timeout=60))
    assert lab.tick(29) != ()
    (outcome,) = lab.tick(1)
    assert (outcome.phase, outcome.retry_at, lab.code("b")) == (GangPhase.TIMED_OUT, 70, Code.BACKOFF)
    lab.add(member("c", timeout=60))
    assert [outcome.placed for outcome in lab.tick(9)] == [()]
    assert lab.gangs.due() == 70
    lab.tick(1)
    assert lab.held == dict.fromkeys("abc", BOUND)
    assert lab.gangs.due() is None


def test_the_back_off_doubles_up_to_a_bound_and_starts_over_with_a_placement():
    lab = Lab(2)
    lab.add(*(member(uid, timeout=1) for uid in "abc"))
    found = []
    for _ in range(7):
        lab.tick()
        (outcome,) = lab.tick(1)
        found.append(outcome.retry_at - lab.now)
        lab.now = outcome.retry_at
    assert found == [BACKOFF_S, 20, 40, 80, 160, MAX_BACKOFF_S, MAX_BACKOFF_S]
    lab.gangs.remove("c")
    lab.add(*(member(uid, required=2, timeout=1) for uid in "d"))
    lab.gangs.remove("a")
    lab.tick()
    assert lab.held == dict.fromkeys("bd", BOUND)
    lab.add(member("e", required=3, timeout=1))
    lab.tick()
    (outcome,) = lab.tick(1)
    assert outcome.retry_at - lab.now == BACKOFF_S


@pytest.mark.parametrize("timeout", [None, 0.0])
def test_without_a_timeout_a_gang_waits_for_ever(timeout):
    lab = Lab(4)
    lab.add(member("a", timeout=timeout))
    lab.tick()
    assert lab.gangs.due() is None
    assert lab.tick(1e9) == ()


def test_reservations_that_are_not_committed_in_time_are_forgotten():
    lab = Lab(4)
    before = content(lab.allocator.fleet)
    lab.add(*(member(uid, timeout=60) for uid in "abc"))
    (outcome,) = lab.tick(commit=False)
    assert (outcome.phase, lab.held) == (GangPhase.SCHEDULING, dict.fromkeys("abc", ASSUMED))
    assert all(lab.gangs.waits(uid) for uid in "abc")
    assert lab.tick(59, commit=False) == ()
    (outcome,) = lab.tick(1, commit=False)
    assert (outcome.phase, outcome.forgotten) == (GangPhase.TIMED_OUT, ("a", "b", "c"))
    assert content(lab.allocator.fleet) == before
    assert lab.gangs.commit("gang", lab.allocator, lab.now) == ()


def test_reservations_are_committed_together():
    lab = Lab(4)
    lab.add(*(member(uid, timeout=60) for uid in "abc"))
    lab.tick(commit=False)
    assert [allocation.id for allocation in lab.gangs.commit("gang", lab.allocator, 5)] == ["a", "b", "c"]
    assert lab.held == dict.fromkeys("abc", BOUND)
    assert (lab.gangs.phase("gang"), lab.gangs.waits("a"), lab.gangs.due()) == (GangPhase.RUNNING, False, None)
    assert lab.gangs.commit("gang", lab.allocator, 6) == lab.gangs.commit("nobody", lab.allocator, 6) == ()


def test_a_commit_that_comes_too_late_binds_nothing():
    lab = Lab(4)
    lab.add(*(member(uid, timeout=60) for uid in "abc"))
    lab.tick(commit=False)
    assert lab.gangs.commit("gang", lab.allocator, 60) == ()


def test_a_lost_quorum_gives_all_reservations_back():
    lab = Lab(4)
    before = content(lab.allocator.fleet)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick(commit=False)
    lab.gangs.remove("b")
    assert lab.gangs.commit("gang", lab.allocator, lab.now) == ()
    (outcome,) = lab.tick(1, commit=False)
    assert (outcome.phase, outcome.forgotten, outcome.retry_at) == (GangPhase.FAILED, ("b", "a", "c"), 11)
    assert content(lab.allocator.fleet) == before
    lab.add(member("d"))
    lab.tick(9)
    assert lab.held == {}
    lab.tick(1)
    assert lab.held == dict.fromkeys("acd", BOUND)


def test_a_member_beside_the_quorum_that_goes_takes_only_its_own():
    lab = Lab(4)
    lab.add(*(member(uid, desired=4) for uid in "abcd"))
    lab.tick(commit=False)
    lab.gangs.remove("d")
    (outcome,) = lab.tick()
    assert (outcome.forgotten, outcome.phase, lab.held) == (("d",), GangPhase.RUNNING, dict.fromkeys("abc", BOUND))


def test_a_gang_without_members_is_nowhere_and_holds_nothing():
    lab = Lab(4)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick(commit=False)
    for uid in "abc":
        lab.gangs.remove(uid)
    assert lab.gangs.phase("gang") is None
    (outcome,) = lab.tick()
    assert (outcome.forgotten, lab.held, lab.tick()) == (("a", "b", "c"), {}, ())


def test_the_sweep_leaves_reservations_that_wait_for_their_gang():
    lab = Lab(4)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick(commit=False)
    assert lab.allocator.sweep(1e6, lambda _: True, lab.gangs.waits) == ()


# --- two gangs ---


def test_of_two_gangs_that_each_need_most_the_older_goes_and_then_the_younger():
    lab = Lab(2, 2)
    for uid in "abc":  # their members come in turns
        lab.add(member(f"old-{uid}", "old"))
        lab.now += 1
        lab.add(member(f"new-{uid}", "new"))
        lab.tick()
    assert lab.held == dict.fromkeys(("old-a", "old-b", "old-c"), BOUND)
    assert lab.gangs.phase("new") is GangPhase.WAITING
    for uid in "abc":
        lab.gangs.remove(f"old-{uid}")
        lab.allocator.dealloc(f"old-{uid}", lab.now)
        lab.tick(1)
    assert lab.held == dict.fromkeys(("new-a", "new-b", "new-c"), BOUND)


def test_a_younger_gang_goes_ahead_only_if_the_older_does_not_fit():
    lab = Lab(3)
    lab.allocator.alloc(plain("other"), 0)
    lab.add(*(member(f"old-{k}", "old") for k in range(3)))
    lab.now = 1
    lab.add(*(member(f"new-{k}", "new", required=2) for k in range(2)))
    lab.tick()
    assert set(lab.held) == {"other", "new-0", "new-1"}


def test_gangs_of_one_age_go_by_name_whatever_the_order_they_came_in():
    for keys in ("xy", "yx"):
        lab = Lab(2)
        lab.add(*(member(f"{key}{k}", key, required=2) for key in keys for k in range(2)))
        lab.tick()
        assert set(lab.held) == {"x0", "x1"}


def test_a_gang_keeps_its_age_through_a_back_off():
    lab = Lab(2)
    lab.add(*(member(f"old-{k}", "old", required=2, timeout=5) for k in range(2)))
    lab.allocator.alloc(plain("other"), 0)
    lab.tick()
    lab.now = 2
    lab.add(*(member(f"new-{k}", "new", required=2) for k in range(2)))
    lab.tick(3)
    lab.tick(10)
    lab.allocator.dealloc("other", lab.now)
    lab.tick()
    assert set(lab.held) == {"old-0", "old-1"}


def test_what_a_younger_gang_gives_back_goes_to_the_older_one_in_the_same_tick():
    lab = Lab(2)
    lab.allocator.alloc(plain("other"), 0)
    lab.add(*(member(f"old-{k}", "old", required=2) for k in range(2)))
    lab.now = 1
    lab.add(member("new-0", "new", required=1, timeout=5))
    lab.tick(commit=False)
    assert lab.held == {"other": BOUND, "new-0": ASSUMED}
    lab.allocator.dealloc("other", lab.now)
    lab.tick(5, commit=False)
    assert lab.held == dict.fromkeys(("old-0", "old-1"), ASSUMED)


def test_a_reservation_that_lost_a_member_is_not_kept_for_a_part():
    lab = Lab(2)
    lab.add(member("a", required=2), member("b", required=2, size=40))
    lab.tick(commit=False)
    assert lab.held == {"a": ASSUMED, "b": ASSUMED}
    lab.allocator.alloc(plain("other", 60), lab.now)
    lab.gangs.remove("b")
    lab.add(member("c", required=2))
    lab.tick(commit=False)
    assert (lab.held, lab.gangs.phase("gang")) == ({"other": BOUND}, GangPhase.WAITING)
    lab.allocator.dealloc("other", lab.now)
    lab.tick(commit=False)
    assert lab.held == {"a": ASSUMED, "c": ASSUMED}


def test_where_not_one_member_finds_room_the_reason_is_that_of_one_alone():
    lab = Lab(3)
    lab.allocator.alloc(plain("other"), 0)
    lab.add(*(member(uid) for uid in "abc"))
    lab.tick()
    assert lab.gangs.explain("a", lab.allocator) == lab.gangs.answer("a")
    for uid in ("another", "third"):
        lab.allocator.alloc(plain(uid), 0)
    lab.tick()
    explained = lab.gangs.explain("a", lab.allocator)
    assert isinstance(explained, Refusal)
    assert (explained.code, lab.code("a"), lab.gangs.explain("x", lab.allocator)) == (
        Code.GPU_COMPUTE,
        Code.GANG_ROOM,
        None,
    )


# --- others give way ---


def urgent(uid: str, key: str = "high", required: int = 2, *, timeout: float | None = None, **gang: object) -> Request:
    request = member(uid, key, required, 100, timeout=timeout)
    claim = replace(request.claim, priority=10, gang=replace(request.claim.gang, **{"preempt": True, **gang}))
    return replace(request, claim=claim)


def crowded(*cards_per_node: int, **rules: object) -> Lab:
    """Every card is held by somebody of low priority."""
    lab = Lab(*cards_per_node, **rules)
    for n in range(sum(cards_per_node)):
        lab.allocator.alloc(plain(f"low-{n}"), 0)
    return lab


def test_a_gang_that_may_preempt_lets_all_of_its_victims_leave_at_once_and_then_goes():
    lab = crowded(2, 2)
    lab.add(*(urgent(uid, required=3) for uid in "abc"))
    (outcome,) = lab.tick()
    assert (outcome.phase, outcome.placed, len(outcome.evicted)) == (GangPhase.WAITING, (), 3)
    assert [lab.code(uid) for uid in "abc"] == [Code.EVICTING] * 3
    assert {nomination.request.uid for nomination in outcome.nominated} == set("abc")
    assert {a.state for a in outcome.evicted} == {AllocationState.RELEASING}
    for left, victim in enumerate(outcome.evicted, start=1):
        assert not any(outcome.placed for outcome in lab.tick(1))
        lab.allocator.dealloc(victim.id, lab.now)
        assert sum(state is AllocationState.RELEASING for state in lab.held.values()) == 3 - left
    (done,) = lab.tick(1)
    assert [allocation.id for allocation in done.placed] == ["a", "b", "c"]
    assert lab.allocator.nominations.entries == ()


def test_members_go_where_others_left_for_them_if_the_strategy_puts_one_where_only_another_can_be():
    lab = Lab(1, 1)

    def of(request: Request, cpu: int, priority: int) -> Request:
        requirement, claim = replace(request.requirement, cpu_milli=1000 * cpu), request.claim
        return replace(request, requirement=requirement, claim=replace(claim, priority=priority))

    for gpu, *there in (
        ("n0-g0", of(plain("first", 70), cpu=0, priority=0), of(plain("stays-0", 20), cpu=21, priority=100)),
        ("n1-g0", of(plain("second", 50), cpu=0, priority=1), of(plain("stays-1", 50), cpu=20, priority=100)),
    ):
        for request in there:
            assert isinstance(lab.allocator.assume(request, [gpu], 0), Allocation)
            lab.allocator.commit(request.uid, 0)
    gang = GangClaim("high", 2, 2, preempt=True)
    for uid, cpu in (("small", 24), ("large", 44)):
        request = of(plain(uid, 50), cpu, priority=10)
        lab.add(replace(request, claim=replace(request.claim, gang=gang)))
    (outcome,) = lab.tick()
    assert {each.request.uid: each.node for each in outcome.nominated} == {"small": "n0", "large": "n1"}
    for victim in outcome.evicted:
        lab.allocator.dealloc(victim.id, lab.now)
    (done,) = lab.tick(1)
    assert {allocation.id: allocation.node for allocation in done.placed} == {"small": "n0", "large": "n1"}


def test_nobody_leaves_for_a_gang_that_would_not_fit_all_the_same():
    lab = crowded(2)
    lab.add(*(urgent(uid, required=3) for uid in "abc"))
    (outcome,) = lab.tick()
    assert (outcome.evicted, outcome.nominated, lab.code("a")) == ((), (), Code.GANG_ROOM)
    assert set(lab.held.values()) == {BOUND}


def test_nobody_leaves_for_a_gang_that_does_not_say_so():
    lab = crowded(2)
    lab.add(*(urgent(uid, preempt=False) for uid in "ab"))
    assert [outcome.evicted for outcome in lab.tick()] == [()]


def test_nobody_leaves_for_more_members_than_are_required():
    lab = crowded(4)
    lab.add(*(urgent(uid, desired=3) for uid in "abc"))
    assert [len(outcome.evicted) for outcome in lab.tick()] == [2]


def test_no_lower_priority_gets_the_room_that_is_kept_for_the_gang():
    lab = crowded(2)
    lab.add(*(urgent(uid) for uid in "ab"))
    (outcome,) = lab.tick()
    lab.allocator.dealloc(outcome.evicted[0].id, lab.now)
    thief = lab.allocator.alloc(plain("thief", 10), lab.now)
    assert isinstance(thief, Refusal)
    assert thief.code is Code.NOMINATED


def test_a_gang_that_is_given_up_or_backs_off_keeps_no_room():
    lab = crowded(2)
    lab.add(*(urgent(uid, timeout=60) for uid in "ab"))
    lab.tick()
    lab.tick(60)
    assert lab.gangs.phase("high") is GangPhase.WAITING, "others leave for it"
    lab.allocator.set_nodes([replace(node, cordoned=True) for node in lab.allocator.fleet.nodes])
    lab.tick(60)
    assert (lab.gangs.phase("high"), lab.allocator.nominations.entries) == (GangPhase.TIMED_OUT, ())
    lab = crowded(2)
    lab.add(*(urgent(uid) for uid in "ab"))
    lab.tick()
    for uid in "ab":
        lab.gangs.remove(uid)
    lab.tick()
    assert lab.allocator.nominations.entries == ()


def test_room_is_kept_for_a_gang_for_as_long_as_it_waits():
    lab = crowded(2)
    lab.add(*(urgent(uid) for uid in "ab"))
    lab.tick()
    for _ in range(5):
        due = lab.gangs.due()
        assert due is not None
        assert due < lab.now + NOMINATED_TTL_S
        (outcome,) = lab.tick(due - lab.now)
        assert (len(outcome.nominated), outcome.evicted) == (2, ())
        assert lab.allocator.nominations.lapsed(due + NOMINATED_TTL_S - 1) == ()


def test_others_leave_only_if_the_room_is_lost_that_was_kept():
    lab = crowded(2, 2)
    lab.add(*(urgent(uid) for uid in "ab"))
    (outcome,) = lab.tick()
    node = outcome.evicted[0].node
    for victim in outcome.evicted:
        lab.allocator.dealloc(victim.id, lab.now)
    lab.allocator.set_nodes([replace(n, cordoned=n.name == node) for n in lab.allocator.fleet.nodes])
    (outcome,) = lab.tick(1)
    assert {victim.node for victim in outcome.evicted} == {"n0", "n1"} - {node}


def test_a_gang_is_placed_near_itself_where_a_label_says_how():
    lab = Lab(2, 1, 2)
    labels = {"n0": "r0", "n1": "r1", "n2": "r1"}
    lab.allocator.set_nodes([replace(n, labels={"rack": labels[n.name]}) for n in lab.allocator.fleet.nodes])
    lab.add(*(urgent(uid, required=3, domain="rack") for uid in "abc"))
    lab.tick()
    assert {lab.allocator.fleet.ledger[uid].node for uid in "abc"} == {"n1", "n2"}
    assert lab.gangs.domain("high") == "rack"


# --- any history ---


SIZES = (40, 60, 100)


class Histories(RuleBasedStateMachine):
    """Members come and go, gangs end, room is taken and freed, time passes: never a part of a gang."""

    @initialize(commit=st.booleans())
    def start(self, commit):
        self.lab, self.twin, self.commit = Lab(2, 3), Lab(2, 3), commit
        self.required = {"x": 4, "y": 4, "z": 2, "h": 2}
        self.robbed: set[str] = set()
        """Gangs of which a member gave way: what is left of them goes on."""
        self.number = 0
        self.log: list[object] = []

    def both(self, step):
        step(self.lab)
        step(self.twin)

    @rule(key=st.sampled_from("xyz"), size=st.sampled_from(SIZES), timeout=st.sampled_from([None, 15.0]))
    def come(self, key, size, timeout):
        self.number += 1
        request = member(f"{key}{self.number}", key, self.required[key], size, timeout=timeout, desired=9)
        self.both(lambda lab: lab.add(request))

    @rule(size=st.sampled_from(SIZES), timeout=st.sampled_from([None, 15.0]))
    def come_urgently(self, size, timeout):
        """A member of a gang to which others give way."""
        self.number += 1
        request = member(f"h{self.number}", "h", self.required["h"], size, timeout=timeout, desired=9)
        claim = replace(request.claim, priority=5, gang=replace(request.claim.gang, preempt=True))
        self.both(lambda lab: lab.add(replace(request, claim=claim)))

    @rule(pick=st.randoms(use_true_random=False))
    def leave(self, pick):
        """An owner that was asked to leave is gone."""
        reported = [uid for uid, state in self.lab.held.items() if state is AllocationState.RELEASING]
        if reported:
            uid = pick.choice(reported)
            self.both(lambda lab: (lab.gangs.remove(uid), lab.allocator.dealloc(uid, lab.now)))

    @rule(pick=st.randoms(use_true_random=False))
    def go(self, pick):
        """A member that does not run goes away."""
        there = [uid for uid in self.lab.gangs._key_of if self.lab.held.get(uid) is not BOUND]
        if there:
            uid = pick.choice(there)
            self.both(lambda lab: lab.gangs.remove(uid))

    @rule(key=st.sampled_from("xyz"))
    def end(self, key):
        """A gang that runs has done its work."""
        done = [uid for uid, state in self.lab.held.items() if uid[0] == key and state is BOUND]
        for uid in done:
            self.both(lambda lab, uid=uid: (lab.gangs.remove(uid), lab.allocator.dealloc(uid, lab.now)))

    @rule(size=st.sampled_from(SIZES))
    def take(self, size):
        self.number += 1
        self.both(lambda lab: lab.allocator.alloc(plain(f"p{self.number}", size), lab.now))

    @rule()
    def free(self):
        for uid in [uid for uid in self.lab.held if uid[0] == "p"]:
            self.both(lambda lab, uid=uid: lab.allocator.dealloc(uid, lab.now))

    @rule(after=st.sampled_from([0.0, 1.0, 10.0, 60.0]))
    def tick(self, after):
        before = content(self.lab.allocator.fleet)
        outcomes = self.lab.tick(after, commit=self.commit)
        assert self.twin.tick(after, commit=self.commit) == outcomes
        changed = [outcome for outcome in outcomes if outcome.placed or outcome.forgotten or outcome.evicted]
        if not changed and self.commit:
            assert content(self.lab.allocator.fleet) == before
        for outcome in outcomes:
            self.robbed.update(victim.id[0] for victim in outcome.evicted)
            backs_off = outcome.phase in (GangPhase.TIMED_OUT, GangPhase.FAILED)
            assert not (backs_off and outcome.placed)
            assert backs_off == (outcome.retry_at is not None) or not outcome.answers
            assert not outcome.evicted or len(outcome.nominated) >= self.required["h"]
        self.nothing_is_held_for_a_part()
        self.nobody_waits_who_could_go()

    @rule(key=st.sampled_from("xyz"))
    def permit(self, key):
        self.both(lambda lab: lab.gangs.commit(key, lab.allocator, lab.now))

    def states(self, key):
        return [state for uid, state in self.lab.held.items() if uid[0] == key]

    def nothing_is_held_for_a_part(self):
        for key, required in self.required.items():
            assert key in self.robbed or not self.states(key) or len(self.states(key)) >= required

    def nobody_waits_who_could_go(self):
        """After a tick, no gang that waits would fit as a whole."""
        allocator = self.lab.allocator
        for key in self.required:
            if self.lab.gangs.phase(key) is GangPhase.WAITING:
                waiting = [
                    request
                    for request in self.lab.gangs._gangs[key].members.values()
                    if request.uid not in self.lab.held
                ]
                sized = by_size(allocator.fleet, waiting)
                found = fit_together(allocator.fleet, allocator.rules, sized, 0, allocator.nominations)
                assert isinstance(found, Misfit)

    @invariant()
    def what_is_bound_is_whole(self):
        for key, required in getattr(self, "required", {}).items():
            states = self.states(key)
            whole = states.count(BOUND) in (0, len(states)) or states.count(BOUND) >= required
            assert whole or key in self.robbed

    @invariant()
    def the_books_balance(self):
        if hasattr(self, "lab"):
            fleet = self.lab.allocator.fleet
            assert content(Fleet(fleet.nodes, fleet.ledger.values())) == content(fleet)
            assert (fleet.compute_free >= 0).all()


Histories.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestHistories = Histories.TestCase
TestHistories.pytestmark = pytest.mark.long


def test_what_a_tick_places_is_in_the_ledger():
    lab = Lab(4)
    lab.add(*(member(uid) for uid in "abc"))
    (outcome,) = lab.tick()
    assert {answer for answer in outcome.answers.values() if isinstance(answer, Allocation)} == set(outcome.placed)
    assert all(lab.allocator.fleet.ledger[allocation.id] == allocation for allocation in outcome.placed)
