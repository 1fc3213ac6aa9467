"""Who gives way to whom: the cases, each rule by itself, and every subset of victims on small clusters."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import GIB, NOW, Books, a_card, a_node, ask, capped, crowd, frozen

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import Usage
from ullage.core.evicting.preemption import (
    NoPreemption,
    Preemption,
    Released,
    check_nodes_preempt,
    check_single_node_preempt,
    filter_with_preempt,
    preempt,
)
from ullage.core.evicting.protection import Shield
from ullage.core.evicting.victim_search import Attempt
from ullage.core.evicting.victims import NO_BUDGETS, Budgets, Cost, EvictionContext, budgets_of
from ullage.core.placing.candidates import check_quota
from ullage.core.placing.decision import Refusal
from ullage.core.placing.feasibility import quota_allows, summable
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import NODE_NAME, Expression, NodeAffinity, Operator
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.error import Conflict, InvalidRequest, NotFound
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.quantity import PPM
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.victim import FreedAmounts


def uids(found: Preemption | NoPreemption) -> tuple[str, ...] | None:
    return found.uids if isinstance(found, Preemption) else None


# --- the cases ---

A = (
    a_node(
        "node-1",
        *(
            a_card(f"gpu-{n}", 100, gib, model="A100", pool="test-pool")
            for n, gib in ((1, 16), (2, 32), (5, 16), (6, 16))
        ),
    ),
    a_node("node-2", a_card("gpu-3", 120, 24, pool="other-pool")),
)


def test_the_victims_card_and_the_free_ones_beside_it_are_candidates():
    books = Books(*A).run("victim", "gpu-1")
    request = ask("gpu=2,tflops=30,vram=8g,pool=test-pool")
    found = filter_with_preempt(books.fleet, Rules(), request, ["victim"])
    assert isinstance(found, Released)
    assert found.by_node == {"node-1": ("gpu-1", "gpu-2", "gpu-5", "gpu-6")}
    assert found.free["gpu-1"] == (100_000, 16 * GIB)
    assert found.stages


def test_only_cards_of_the_named_node():
    books = Books(*A).run("victim", "gpu-1")
    found = filter_with_preempt(books.fleet, Rules(), ask("tflops=30,vram=8g"), ["victim"], ["node-2"])
    assert isinstance(found, Released)
    assert found.by_node == {"node-2": ("gpu-3",)}


def test_neither_victims_nor_nodes():
    found = filter_with_preempt(Books(*A).fleet, Rules(), ask(), [])
    assert isinstance(found, Refusal)
    assert found.code is Code.NO_AFFECTED_NODE


def test_a_quota_that_is_used_up_is_relaxed_by_what_the_victim_held():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")))
    books.run("victim", "n-0", of="tflops=20,vram=1g").run("peer", "n-1", of="tflops=60,vram=1g", priority=10)
    rules = Rules(quotas=Quotas({"team": Quota(total_requests=Caps(100_000))}))
    request = ask("tflops=30,vram=1g")
    refused = check_single_node_preempt(EvictionContext(books.fleet, rules, NOW), request, "n", [])
    assert isinstance(refused, NoPreemption)
    assert refused.code is Code.QUOTA_TOTAL_COMPUTE_REQUEST
    assert uids(check_single_node_preempt(EvictionContext(books.fleet, rules, NOW), request, "n", ["victim"])) == (
        "victim",
    )
    assert uids(books.preempt(request, rules)) == ("victim",)


# --- with victims that are named ---


def test_victims_on_one_card_add_up():
    books = Books(a_node("n")).run("v1", "n-0", of="tflops=40,vram=4g").run("v2", "n-0", of="tflops=60,vram=4g")
    assert isinstance(filter_with_preempt(books.fleet, Rules(), ask("tflops=100,vram=4g"), ["v1"]), Refusal)
    found = filter_with_preempt(books.fleet, Rules(), ask("tflops=100,vram=4g"), ["v1", "v2", "v1"])
    assert isinstance(found, Released)
    assert found.free == {"n-0": (100_000, 16 * GIB)}


def test_a_refusal_keeps_its_stages():
    books = Books(a_node("n")).run("v", "n-0")
    found = filter_with_preempt(books.fleet, Rules(), ask("tflops=200,vram=1g"), ["v"])
    assert isinstance(found, Refusal)
    assert found.code is Code.GPU_COMPUTE
    assert found.stages[0].filter == "quota"


def test_names_nobody_knows():
    books = Books(a_node("n")).run("v", "n-0")
    with pytest.raises(NotFound, match="victim w"):
        filter_with_preempt(books.fleet, Rules(), ask(), ["v", "w"])
    with pytest.raises(NotFound, match="node m"):
        filter_with_preempt(books.fleet, Rules(), ask(), ["v"], ["m"])
    with pytest.raises(NotFound, match="node m"):
        check_single_node_preempt(EvictionContext(books.fleet, Rules(), NOW), ask(), "m", [])
    books.fleet.charge(Allocation("lost", "gone", ask().requirement, ("gone-0",), claim=Claim()))
    with pytest.raises(NotFound) as raised:
        filter_with_preempt(books.fleet, Rules(), ask(), ["lost"])
    assert raised.value.code == "unknown-gpu"


def test_a_single_node_takes_no_victims_of_another():
    books = Books(a_node("m"), a_node("n")).run("v", "n-0")
    with pytest.raises(InvalidRequest, match="workers of node m"):
        check_single_node_preempt(EvictionContext(books.fleet, Rules(), NOW), ask(), "m", ["v"])


def test_a_single_node_without_workers_is_just_looked_at():
    fleet = Books(a_node("n")).fleet
    assert uids(check_single_node_preempt(EvictionContext(fleet, Rules(), NOW), ask(), "n", [])) == ()
    assert isinstance(
        check_single_node_preempt(EvictionContext(fleet, Rules(), NOW), ask("tflops=101"), "n", []), NoPreemption
    )


def test_named_victims_that_may_not_be_evicted_stay():
    books = Books(a_node("n")).run("v", "n-0", priority=10)
    found = check_single_node_preempt(EvictionContext(books.fleet, Rules(), NOW), ask(), "n", ["v"])
    assert isinstance(found, NoPreemption)
    assert found.attempts[0].shielded == {Shield.PRIORITY: 1}


# --- who may be evicted ---


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        pytest.param({"priority": 9}, None, id="lower priority"),
        pytest.param({"priority": 10}, Shield.PRIORITY, id="equal priority"),
        pytest.param({"priority": 11}, Shield.PRIORITY, id="higher priority"),
        pytest.param({"state": AllocationState.ASSUMED}, Shield.NOT_BOUND, id="assumed"),
        pytest.param({"state": AllocationState.RELEASING}, Shield.NOT_BOUND, id="on its way out"),
        pytest.param({"executor": True}, Shield.EXECUTOR, id="of a session"),
        pytest.param({"protected_until": NOW + 1}, Shield.PROTECTED, id="shielded"),
        pytest.param({"protected_until": NOW}, None, id="shielded until now"),
        pytest.param({"namespace": "other"}, None, id="of another namespace"),
    ],
)
def test_a_victim_must_be(facts, reason):
    found = Books(a_node("n")).run("v", "n-0", **facts).preempt()
    if reason is None:
        assert uids(found) == ("v",)
    else:
        assert isinstance(found, NoPreemption)
        assert found.code is Code.GPU_COMPUTE
        assert found.attempts == (Attempt("n", 0, {reason: 1}, refusal=found.attempts[0].refusal),)
        assert found.attempts[0].refusal is not None
        assert found.attempts[0].refusal.code is Code.NO_VICTIMS


def test_only_the_own_namespace_if_preemption_is_not_cluster_wide():
    rules = Rules(preempt_cluster_wide=False)
    books = Books(a_node("n"), a_node("m")).run("own", "n-0", priority=5).run("other", "m-0", namespace="other")
    assert uids(books.preempt(rules=rules)) == ("own",)
    assert uids(books.preempt()) == ("other",)


def test_nobody_is_evicted_when_the_request_fits_without():
    found = Books(a_node("m"), a_node("n")).run("v", "m-0").preempt()
    assert isinstance(found, Preemption)
    assert (found.choice.node, found.victims, found.attempts) == ("n", (), ())


def test_nobody_is_evicted_for_a_request_that_is_placed():
    with pytest.raises(Conflict):
        Books(a_node("n")).run("v", "n-0").preempt(ask(uid="v"))


# --- how many ---


def test_no_more_than_needed_and_the_dearest_stay():
    books = Books(a_node("n"))
    for uid, priority, tflops in (("a", 1, 30), ("b", 2, 30), ("c", 3, 30)):
        books.run(uid, "n-0", of=f"tflops={tflops},vram=1g", priority=priority)
    assert uids(books.preempt(ask("tflops=40,vram=1g"))) == ("a",)
    assert uids(books.preempt(ask("tflops=41,vram=1g"))) == ("b", "a")


def test_of_equal_priority_the_longest_running_stays():
    books = Books(a_node("n")).run("a", "n-0", since=900.0, of="tflops=50").run("b", "n-0", since=100.0, of="tflops=50")
    assert uids(books.preempt(ask("tflops=50"))) == ("a",)


def test_a_request_for_several_cards_uses_the_free_ones_too():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-0").run("w", "n-1", of="tflops=10")
    found = books.preempt(ask("gpu=2,tflops=80,vram=8g"))
    assert uids(found) == ("v",)
    assert set(found.choice.gpus) == {"n-0", "n-1"}


def test_a_whole_card_needs_all_of_its_users_gone():
    books = Books(a_node("n")).run("v", "n-0", of="tflops=10").run("w", "n-0", of="tflops=10", priority=3)
    found = books.preempt(ask("gpu=1"))
    assert uids(found) == ("w", "v")
    assert books.run("x", "n-0", of="tflops=10", priority=10).preempt(ask("gpu=1")).code is Code.GPU_NOT_IDLE


def test_who_holds_a_card_whole_gives_it_whole():
    found = Books(a_node("n")).run("v", "n-0", of="").preempt()
    assert isinstance(found, Preemption)
    assert found.victims[0].gives == (FreedAmounts("n-0", 100_000, 16 * GIB),)


def test_a_partition_gives_its_slot():
    card = Gpu("n-0", 0, "NVIDIA A100 80GB", "NVIDIA", 80 * GIB, 312_000, isolation=Isolation.PARTITIONED)
    allocator = FleetAllocator(Fleet([a_node("n", card)]))
    allocator.set_ready()
    for n in range(7):
        asked = ask("gpu=1,tflops=1,vram=1g,isolation=partitioned", f"v{n}", priority=n)
        assert isinstance(allocator.alloc(asked, float(n)), Allocation)
    request = ask("gpu=1,tflops=50,vram=15g,isolation=partitioned")
    found = allocator.preempt(request, NOW)
    assert isinstance(found, Preemption)
    slots = {a.id: a.charges[0].slot.start for a in allocator.fleet.ledger.values()}
    assert [slots[uid] for uid in found.uids] == [1, 0]
    assert found.choice.charges[0].slot is not None
    assert (found.choice.charges[0].slot.start, found.choice.charges[0].slot.end) == (0, 2)


def test_a_card_that_would_do_has_all_that_others_leave_of_it_and_never_less_than_nothing():
    for held, left in (("16g", 0), ("15g", GIB)):
        books = Books(a_node("n")).run("stays", "n-0", of=f"tflops=10,vram={held}").run("goes", "n-0", of="tflops=80")
        found = filter_with_preempt(books.fleet, Rules(), ask("gpu=1,tflops=20"), ["goes"])
        assert isinstance(found, Released)
        assert found.free == {"n-0": (90_000, left)}


@pytest.mark.parametrize("rules", [Rules(), Rules(oversubscription={"": Oversubscription(0, 0, 1000)})])
def test_a_disruption_budget_is_kept_though_the_other_victim_has_a_higher_priority(rules):
    books = Books(a_node("n")).run("web", "n-0", of="tflops=30", workload="web", priority=0)
    books.run("job", "n-0", of="tflops=30", workload="job", priority=1)
    assert uids(books.preempt(ask("gpu=1,tflops=70"), rules)) == ("web",)
    budgets = Budgets({("team", "web"): 0})
    assert uids(books.preempt(ask("gpu=1,tflops=70"), rules, budgets=budgets)) == ("job",)


def test_besides_named_victims_only_those_go_whose_room_is_needed_when_all_who_leave_are_gone():
    books = Books(a_node("n")).run("leaves", "n-0", of="tflops=40", state=AllocationState.RELEASING)
    books.run("named", "n-0", of="tflops=40").run("other", "n-0", of="tflops=20")
    for tflops, expected in ((80, {"named"}), (81, {"named", "other"})):
        context = EvictionContext(books.fleet, Rules(), NOW)
        found = check_nodes_preempt(context, ask(f"gpu=1,tflops={tflops}"), {"n": ["named"]})
        assert set(found["n"].uids) == expected


def test_who_is_evicted_is_on_a_card_on_which_the_cores_of_the_request_fit_the_quota():
    """Half of the fast card is all of the slow one, whose user would be the cheaper victim."""
    books = Books(a_node("slow", a_card("s-0", 50)), a_node("fast", a_card("f-0", 100)))
    books.run("cheap", "s-0", of="tflops=40", namespace="other", priority=0)
    books.run("dear", "f-0", of="tflops=80", namespace="other", priority=1)
    for quota, victims in ((Quota(max_cores_ppm=PPM // 2), ("dear",)), (Quota(max_workers=9), ("cheap",))):
        assert uids(books.preempt(ask("gpu=1,tflops=50"), Rules(quotas=Quotas({"team": quota})))) == victims


def test_a_free_card_on_which_the_cores_exceed_the_quota_hides_no_other_card_of_its_node():
    """Half of the fast card is all of the slow one, which nobody has."""
    books = Books(a_node("n", a_card("n-0", 50), a_card("n-1", 100)))
    books.run("victim", "n-1", of="tflops=80", namespace="other")
    rules = Rules(quotas=Quotas({"team": Quota(max_cores_ppm=PPM // 2)}))
    assert uids(books.preempt(ask("gpu=1,tflops=50"), rules)) == ("victim",)


def test_a_worker_stays_whose_cores_leave_enough_of_the_quota_for_one_of_several_cards():
    """With it the request exceeds the quota on the slow card, which is free, but not on the fast one."""
    books = Books(a_node("n", a_card("n-0", 50), a_card("n-1", 100), a_card("n-2", 100)))
    books.run("fast", "n-1", of="tflops=80").run("other", "n-2", of="tflops=30", priority=1)
    rules = Rules(quotas=Quotas({"team": Quota(max_cores_ppm=PPM)}))
    assert uids(books.preempt(ask("gpu=1,tflops=50"), rules)) == ("fast",)


def test_the_cards_that_no_lock_keeps_are_examined_be_it_one_or_none():
    """Of two dynamic cards the first has a user of another isolation."""
    for free, reached in ((("n-1",), True), ((), False)):
        cards = [a_card(uuid, isolation_policy=IsolationPolicy.DYNAMIC) for uuid in ("n-0", *free)]
        books = Books(a_node("n", *cards)).run("v", "n-0", of="tflops=50,isolation=soft")
        for uuid in free:
            books.run("w", uuid, of="tflops=50,isolation=hard", priority=20)
        refused = books.preempt(ask("tflops=80,isolation=hard"))
        assert isinstance(refused, NoPreemption)
        assert refused.attempts[0].refusal is not None
        lock, *others = refused.attempts[0].refusal.stages
        assert (lock.filter, lock.after) == ("lock-stays", len(free))
        assert any(stage.reached for stage in others) is reached


# --- what freed room does not cure ---


def test_no_preemption_across_the_lock_of_a_dynamic_card():
    node = a_node("n", a_card("n-0", isolation_policy=IsolationPolicy.DYNAMIC))
    books = Books(node).run("v", "n-0", of="tflops=50,isolation=soft")
    refused = books.preempt(ask("tflops=80,isolation=hard"))
    assert isinstance(refused, NoPreemption)
    assert refused.code is Code.ISOLATION_LOCKED
    assert refused.attempts[0].refusal is not None
    assert refused.attempts[0].refusal.stages[0].filter == "lock-stays"
    assert [stage.reached for stage in refused.attempts[0].refusal.stages].count(True) == 1
    assert uids(books.preempt(ask("tflops=80,isolation=soft"))) == ("v",)


def test_a_named_victim_does_not_unlock_its_dynamic_card():
    """Nor if it goes and others are looked for: the card keeps the isolation of its users."""
    books = Books(a_node("n", a_card("n-0", isolation_policy=IsolationPolicy.DYNAMIC), a_card("n-1")))
    books.run("named", "n-0", of="tflops=50,isolation=soft").run("other", "n-1", of="tflops=50")
    fleet, candidates = books.fleet, {"n": ["named"]}
    assert (
        check_nodes_preempt(EvictionContext(fleet, Rules(), NOW), ask("gpu=2,tflops=80,isolation=hard"), candidates)
        == {}
    )
    found = check_nodes_preempt(EvictionContext(fleet, Rules(), NOW), ask("gpu=2,tflops=80,isolation=soft"), candidates)
    assert found["n"].uids == ("named", "other")


@pytest.mark.parametrize(
    ("text", "facts"),
    [
        pytest.param("tflops=101", {}, id="larger than the card"),
        pytest.param("tflops=80,pool=other", {}, id="another pool"),
        pytest.param("gpu=2,tflops=80", {}, id="more cards than the node has"),
        pytest.param("tflops=80", {"cordoned": True}, id="a cordoned node"),
        pytest.param("tflops=80,gpu_model=H100", {}, id="another model"),
    ],
)
def test_nobody_is_evicted_in_vain(text, facts):
    found = Books(a_node("n", **facts)).run("v", "n-0").preempt(ask(text))
    assert isinstance(found, NoPreemption)
    assert found.attempts == ()


def test_node_affinity_holds():
    nodes = NodeAffinity(((Expression(NODE_NAME, Operator.IN, ("m",)),),))
    books = Books(a_node("m"), a_node("n")).run("v", "m-0", priority=5).run("w", "n-0", priority=1)
    request = ask()
    assert uids(books.preempt(request)) == ("w",)
    assert uids(books.preempt(replace(request, requirement=replace(request.requirement, nodes=nodes)))) == ("v",)


def test_a_cap_on_one_request_is_never_cured():
    rules = Rules(quotas=Quotas({"team": Quota(max_requests=Caps(70_000))}))
    found = Books(a_node("n")).run("v", "n-0").preempt(rules=rules)
    assert isinstance(found, NoPreemption)
    assert (found.code, found.attempts) == (Code.QUOTA_SINGLE_COMPUTE_REQUEST, ())


# --- quota ---


def test_only_victims_of_the_own_namespace_relax_the_quota():
    books = Books(a_node("m"), a_node("n"))
    books.run("other", "m-0", namespace="other").run("own", "n-0", priority=5, of="tflops=50")
    found = books.preempt(rules=capped(tflops=100))
    assert uids(found) == ("own",)
    attempt = found.attempts[0]
    assert attempt.refusal is not None
    assert (attempt.node, attempt.refusal.code) == ("m", Code.QUOTA_TOTAL_COMPUTE_REQUEST)


def test_a_namespace_at_its_worker_cap_can_preempt_itself():
    books = Books(a_node("m"), a_node("n")).run("own", "n-0", of="tflops=10").run("other", "m-0", namespace="other")
    assert uids(books.preempt(ask("tflops=20"), capped(workers=1))) == ("own",)


def test_a_victim_for_room_and_another_for_the_quota():
    books = Books(a_node("n")).run("own", "n-0", of="tflops=10").run("other", "n-0", of="tflops=50", namespace="other")
    found = books.preempt(ask("tflops=80"), capped(tflops=80))
    assert isinstance(found, Preemption)
    assert set(found.uids) == {"own", "other"}
    assert {victim.uid: victim.reason.code for victim in found.victims} == {
        "own": Code.QUOTA_TOTAL_COMPUTE_REQUEST,
        "other": Code.GPU_COMPUTE,
    }


def test_a_quota_above_both_namespaces_is_relaxed_by_the_own_one_alone():
    quotas = Quotas({"all": Quota(total_requests=Caps(100_000))}, parents={"team": "all", "other": "all"})
    books = Books(a_node("n")).run("other", "n-0", namespace="other")
    assert isinstance(books.preempt(rules=Rules(quotas=quotas)), NoPreemption)


def test_a_quota_that_judges_each_card_by_its_size_is_asked_for_each():
    books = Books(a_node("n", a_card("n-0", 60), a_card("n-1", 100), a_card("n-2", 40)))
    books.run("own", "n-2", of="tflops=40,vram=16g")
    assert uids(books.preempt(ask("gpu=2,percent=50,vram=1g"), capped(tflops=110))) == ("own",)


def test_victims_are_taken_from_the_nodes_they_are_on_if_none_is_named():
    books = Books(a_node("m"), a_node("n")).run("v", "n-0")
    found = filter_with_preempt(books.fleet, Rules(), ask(), ["v"], [])
    assert isinstance(found, Released)
    assert found.by_node == {"n": ("n-0",)}


def test_a_worker_place_of_the_node_is_freed_too():
    books = Books(a_node("n")).run("v", "n-0", of="tflops=1")
    found = books.preempt(ask("tflops=1"), Rules(workers_per_node=1))
    assert isinstance(found, Preemption)
    assert (found.uids, found.victims[0].reason.code) == (("v",), Code.WORKER_CAP)


# --- which node ---


def test_the_cheapest_set_wins_from_the_first_difference_on():
    half = {"of": "tflops=50"}
    books = Books(*(a_node(name) for name in "abcdef"))
    books.run("a1", "a-0", priority=3)
    books.run("b1", "b-0", priority=2, **half).run("b2", "b-0", priority=1, **half)
    books.run("c1", "c-0", priority=2, **half).run("c2", "c-0", priority=0, **half)
    books.run("d1", "d-0", priority=2, since=400.0)
    books.run("e1", "e-0", priority=2, since=600.0)
    books.run("f1", "f-0", priority=2, since=600.0)
    order = []
    for _ in range(6):
        found = books.preempt()
        assert isinstance(found, Preemption)
        assert found.cost == min(attempt.cost for attempt in found.attempts if attempt.cost is not None)
        order.append(found.choice.node)
        for uid in found.uids:
            books.fleet.release(uid)
        books.run(f"x{found.choice.node}", found.choice.gpus[0], of="", priority=10)
    assert order == ["e", "f", "d", "c", "b", "a"]


def test_what_would_be_dearer_than_another_node_is_not_tried():
    books = Books(a_node("m"), a_node("n")).run("v", "n-0", priority=1)
    books.run("w", "m-0", of="tflops=30", priority=1).run("x", "m-0", of="tflops=70", priority=3)
    found = books.preempt(ask("tflops=60"))
    assert isinstance(found, Preemption)
    dearer = found.attempts[0]
    assert (found.uids, dearer.node, dearer.eligible, dearer.up_to) == (("v",), "m", 2, 1)
    assert dearer.refusal is not None
    assert (dearer.refusal.rejections[0].needed, dearer.refusal.rejections[0].had) == (60_000, 30_000)


def test_priorities_below_zero_make_no_larger_set_cheaper():
    books = Books(a_node("m"), a_node("n")).run("one", "n-0", priority=-5)
    books.run("v1", "m-0", of="tflops=50", priority=-5).run("v2", "m-0", of="tflops=50", priority=-5)
    assert uids(books.preempt()) == ("one",)


def test_what_is_told_of_a_preemption():
    books = Books(a_node("m", a_card("m-0", 60)), a_node("n")).run("w", "m-0", priority=0)
    books.run("v", "n-0", workload="web", priority=4).run("peer", "n-0", of="tflops=10", priority=10)
    found = books.preempt()
    assert isinstance(found, Preemption)
    victim = found.victims[0]
    assert (victim.uid, victim.namespace, victim.workload, victim.priority) == ("v", "team", "web", 4)
    assert victim.gives == (FreedAmounts("n-0", 50_000, 10 * GIB),)
    assert (victim.reason.code, victim.reason.needed, victim.reason.had) == (Code.GPU_COMPUTE, 80_000, 40_000)
    assert found.cost == Cost(0, 4, 4, 1, 500.0, "n")
    assert found.without is not None
    assert found.without.code is Code.GPU_COMPUTE
    tried = {attempt.node: (attempt.eligible, attempt.shielded) for attempt in found.attempts}
    assert tried == {"m": (1, {}), "n": (1, {Shield.PRIORITY: 1})}
    assert found.attempts[0].refusal is not None


# --- disruption budgets ---


def test_a_node_where_no_budget_breaks_comes_first():
    budgets = Budgets({("team", "web"): 0})
    books = Books(a_node("m"), a_node("n")).run("web", "m-0", workload="web").run("job", "n-0", priority=9)
    assert uids(books.preempt(budgets=budgets)) == ("job",)
    assert uids(books.preempt()) == ("web",)


def test_who_would_break_a_budget_is_put_back_first():
    books = (
        Books(a_node("n")).run("w1", "n-0", of="tflops=50", workload="web").run("j1", "n-0", of="tflops=50", priority=5)
    )
    assert uids(books.preempt(ask("tflops=50"))) == ("w1",)
    assert uids(books.preempt(ask("tflops=50"), budgets=Budgets({("team", "web"): 0}))) == ("j1",)
    assert uids(books.preempt(ask("tflops=50"), budgets=Budgets({("team", "web"): 1}))) == ("w1",)


def test_a_broken_budget_is_counted_and_stops_nobody():
    books = (
        Books(a_node("n"))
        .run("w1", "n-0", of="tflops=50", workload="web")
        .run("w2", "n-0", of="tflops=50", workload="web")
    )
    found = books.preempt(budgets=Budgets({("team", "web"): 1}))
    assert isinstance(found, Preemption)
    assert found.cost is not None
    assert (len(found.victims), found.cost.violations) == (2, 1)


def test_a_node_at_the_cap_of_workers_says_how_many_it_has_and_may_have():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-0", of="tflops=10", priority=20)
    refused = books.preempt(ask("tflops=10"), Rules(workers_per_node=1))
    assert isinstance(refused, NoPreemption)
    (said,) = {(each.code, each.needed, each.had) for each in refused.rejections}
    assert said == (Code.WORKER_CAP, 2, 1)


def test_one_beyond_its_budget_stays_first_and_the_others_of_its_workload_after_dearer_ones():
    books = Books(a_node("n", *(a_card(f"n-{n}") for n in range(4)))).run("web1", "n-0", of="", workload="web")
    books.run("web2", "n-1", of="", workload="web", since=900.0).run("job", "n-2", of="", workload="job", priority=1)
    rules, budgets = Rules(quotas=Quotas({"team": Quota(max_workers=3)})), Budgets({("team", "web"): 1})
    assert uids(books.preempt(ask("gpu=1"), rules, budgets=budgets)) == ("web2",)
    assert uids(books.preempt(ask("gpu=1"), rules, budgets=Budgets({("team", "web"): 0}))) == ("job",)


def test_a_victim_has_the_reason_why_nothing_fits_while_it_and_those_who_stay_are_there():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("stays", "n-0", of="tflops=30", priority=9)
    books.run("goes", "n-0", of="tflops=40")
    for uid in ("twice", "too"):  # a card may hold more than it has, and both stay
        books.run(uid, "n-1", of="tflops=1,vram=1g", priority=9)
        held = books.fleet.release(uid)
        books.fleet.charge(replace(held, charges=(replace(held.charges[0], compute=60_000),)), force=True)
    found = books.preempt(ask("tflops=50"))
    assert uids(found) == ("goes",)
    (reason,) = {(each.reason.code, each.reason.needed, each.reason.had) for each in found.victims}
    assert reason == (Code.GPU_COMPUTE, 50_000, 30_000)


def test_only_nodes_that_take_work_and_have_enough_cards_of_the_right_kind_are_tried():
    two = [a_card("n-0"), a_card("n-1")]
    books = Books(
        a_node("closed", a_card("c-0"), a_card("c-1"), cordoned=True),
        a_node("few", a_card("f-0"), a_card("f-1", model="A100")),
        a_node("n", *(replace(card, model="T4") for card in two)),
    )
    for uid, card in (("x", "c-0"), ("y", "f-0"), ("z", "n-0")):
        books.run(uid, card, of="")
    found = books.preempt(ask("gpu=2,gpu_model=T4"))
    assert isinstance(found, Preemption)
    assert [attempt.node for attempt in found.attempts] == ["n"]


def test_of_a_workload_with_a_minimum_as_many_may_go_as_are_bound_above_it():
    books = Books(a_node("n", *(a_card(f"n-{n}") for n in range(6))))
    for number, (workload, state) in enumerate(
        [("web", AllocationState.BOUND)] * 3 + [("web", AllocationState.ASSUMED), ("job", AllocationState.BOUND)]
    ):
        books.run(f"w{number}", f"n-{number}", of="", workload=workload, state=state)
    books.run("executor", "n-5", of="", executor=True)
    least = {("team", "web"): 1, ("team", "job"): 1, ("team", "more"): 2, ("team", "any"): 0}
    assert budgets_of(books.fleet, least).left == dict(zip(least, (2, 0, 0, 0), strict=True))
    assert budgets_of(books.fleet, {}) is NO_BUDGETS


# --- every subset ---

TEXTS = (
    "tflops=20,vram=2g",
    "tflops=40,vram=8g",
    "tflops=60,vram=2g",
    "tflops=30,vram=4g,isolation=hard",
    "percent=25",
    "",
)


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Books, Rules, Request, Budgets]:
    dynamic = st.sampled_from([IsolationPolicy.STATIC, IsolationPolicy.STATIC, IsolationPolicy.DYNAMIC])
    nodes = [
        a_node(
            name,
            *(
                a_card(f"{name}-{n}", draw(st.sampled_from([60, 100])), 16, isolation_policy=draw(dynamic))
                for n in range(draw(st.integers(1, 3)))
            ),
            cordoned=draw(st.integers(0, 9)) == 0,
        )
        for name in ("m", "n")[: draw(st.integers(1, 2))]
    ]
    books = Books(*nodes)
    crowd(draw, books, nodes, draw(st.integers(2, 9)), TEXTS)
    quota = Quota(
        total_requests=Caps(draw(st.sampled_from([None, 60_000, 120_000, 200_000]))),
        max_workers=draw(st.sampled_from([100, 1, 3])),
        max_cores_ppm=draw(st.sampled_from([None, None, PPM // 2, PPM])),
    )
    rules = Rules(
        workers_per_node=draw(st.sampled_from([0, 1, 2])),
        quotas=Quotas(draw(st.sampled_from([{}, {"team": quota}, {"other": quota}]))),
        preempt_cluster_wide=draw(st.booleans()),
    )
    count, text = draw(st.integers(1, 2)), draw(st.sampled_from(TEXTS))
    request = ask(f"gpu={count},{text}".rstrip(","), priority=draw(st.integers(1, 4)))
    budgets = Budgets(draw(st.sampled_from([{}, {("team", "web"): 0}, {("team", "web"): 1, ("other", "job"): 0}])))
    return books, rules, request, budgets


@st.composite
def used_up(draw: st.DrawFn) -> tuple[Books, Rules, Request, Budgets]:
    """A node with workers on parts of its cards, and a request for which its quota has hardly anything left."""
    speeds = draw(st.lists(st.sampled_from([50, 100]), min_size=2, max_size=4))
    books = Books(a_node("n", *(a_card(f"n-{n}", tflops) for n, tflops in enumerate(speeds))))
    for number in range(draw(st.integers(3, 7))):
        cards = draw(st.lists(st.sampled_from(range(len(speeds))), min_size=1, max_size=2, unique=True))
        facts = {
            "priority": draw(st.integers(0, 3)),
            "namespace": draw(st.sampled_from(["team", "team", "team", "other"])),
            "workload": draw(st.sampled_from(["web", "job"])),
            "since": float(draw(st.integers(0, 3))),
        }
        try:
            books.run(f"w{number}", *(f"n-{card}" for card in cards), of=draw(st.sampled_from(SMALL)), **facts)
        except Conflict:
            continue
    used = books.fleet.usage.get("team", Usage())
    quota = Quota(
        total_requests=Caps(draw(st.sampled_from([None, used.compute_request + 10_000]))),
        max_workers=draw(st.sampled_from([100, max(1, used.workers)])),
        max_cores_ppm=draw(st.sampled_from([None, used.cores_ppm + PPM // 5, used.cores_ppm + PPM // 2])),
    )
    text = draw(st.sampled_from(["gpu=1,tflops=50", "gpu=1,tflops=30,vram=6g", "gpu=2,tflops=25", "gpu=1"]))
    budgets = Budgets(draw(st.sampled_from([{}, {("team", "web"): 0}, {("team", "web"): 1, ("team", "job"): 0}])))
    return books, Rules(quotas=Quotas({"team": quota})), ask(text, priority=4), budgets


SMALL = ("tflops=20,vram=2g", "tflops=25,vram=6g", "tflops=10,vram=1g")


def may_go(rules: Rules, request: Request, allocation: Allocation) -> bool:
    claim = allocation.claim
    return (
        claim is not None
        and allocation.state is AllocationState.BOUND
        and claim.priority < request.claim.priority
        and claim.protected_until <= NOW
        and (rules.preempt_cluster_wide or claim.namespace == request.claim.namespace)
    )


def fits(fleet: Fleet, rules: Rules, request: Request, node: Node, gone: tuple[str, ...]) -> bool:
    """The slow and obvious answer, on books made anew from the ledger."""
    asked, ledger = request.requirement, fleet.ledger
    stay = [allocation for uid, allocation in ledger.items() if uid not in gone]
    if not node.schedulable or sum(a.node == node.name for a in stay) >= (rules.workers_per_node or 99):
        return False
    released = Usage()
    for uid in gone:
        claim = ledger[uid].claim
        assert claim is not None
        if claim.namespace == request.claim.namespace:
            released = released.plus(fleet.usage_of(ledger[uid]))
    held = fleet.usage.get(request.claim.namespace, Usage())
    used = {**fleet.usage, request.claim.namespace: held.minus(released)}
    able = 0
    for gpu in node.gpus:
        users = [(a, a.charges[a.gpus.index(gpu.uuid)] if a.charges else None) for a in stay if gpu.uuid in a.gpus]
        taken = [(gpu.compute, gpu.vram) if charge is None else (charge.compute, charge.vram) for _, charge in users]
        if gpu.isolation_policy is IsolationPolicy.DYNAMIC:
            modes = {a.requirement.cards.isolation for a in ledger.values() if gpu.uuid in a.gpus}
            if not modes <= {asked.cards.isolation}:
                continue
        if asked.whole:
            room = not users
        else:
            assert asked.part is not None
            need = asked.part.on(gpu.compute, gpu.vram)
            room = all(sum(t[i] for t in taken) + need[i] <= (gpu.compute, gpu.vram)[i] for i in range(2))
        card = fleet.card_of[gpu.uuid]
        able += room and not check_quota(fleet, rules, request, [card] * asked.gpu_count, used)
    return able >= asked.gpu_count


def priority(fleet: Fleet, uid: str) -> int:
    claim = fleet.ledger[uid].claim
    assert claim is not None
    return claim.priority


def subsets(uids: list[str]) -> list[tuple[str, ...]]:
    return list(chain.from_iterable(combinations(uids, n) for n in range(len(uids) + 1)))


@pytest.mark.long
@settings(max_examples=400)
@given(worlds())
def test_against_every_subset_of_victims(world):
    assert_victims_are_a_least_set(world)


@settings(max_examples=60)
@given(used_up())
def test_against_every_subset_of_victims_where_a_quota_decides(world):
    assert_victims_are_a_least_set(world)


@settings(max_examples=60)
@given(used_up())
def test_where_a_quota_decides_those_beyond_their_budget_stay_first_and_then_the_dearest(world):
    books, rules, request, budgets = world
    fleet, node, there = books.fleet, books.fleet.nodes[0], list(books.fleet.ledger.values())
    if summable(rules, request) and quota_allows(fleet, rules, request, 1):
        event("the quota does not decide")
        return
    gone, tried = {a.id for a in there}, set[str]()
    dear = sorted(there, key=lambda a: (-a.claim.priority, a.bound_at, a.id))
    feasible = fits(fleet, rules, request, node, tuple(gone))
    for only_beyond in (True, False) if feasible else ():
        for each in dear:
            key = each.claim.namespace, each.claim.workload
            number = sum((a.claim.namespace, a.claim.workload) == key for a in there if a.id in gone)
            if each.id not in tried and (not only_beyond or number > budgets.left.get(key, number)):
                tried.add(each.id)
                if fits(fleet, rules, request, node, tuple(gone - {each.id})):
                    gone.remove(each.id)
    context = EvictionContext(fleet, rules, NOW, budgets)
    found = check_single_node_preempt(context, request, "n", [a.id for a in there])
    event(f"{len(gone)} of {len(there)} go" if feasible else "refused")
    assert isinstance(found, Preemption) == feasible
    if isinstance(found, Preemption):
        assert found.uids == tuple(a.id for a in dear if a.id in gone)


def assert_victims_are_a_least_set(world: tuple[Books, Rules, Request, Budgets]) -> None:
    books, rules, request, budgets = world
    fleet = books.fleet
    before = frozen(fleet)
    found = preempt(EvictionContext(fleet, rules, NOW, budgets), request)
    assert frozen(fleet) == before
    eligible = {
        node.name: [a.id for a in fleet.ledger.values() if a.node == node.name and may_go(rules, request, a)]
        for node in fleet.nodes
    }
    feasible = {
        node.name: {frozenset(gone) for gone in subsets(eligible[node.name]) if fits(fleet, rules, request, node, gone)}
        for node in fleet.nodes
    }
    if isinstance(found, NoPreemption):
        event("refused")
        assert not any(feasible.values())
        return
    event("fits without" if not found.victims else "with victims")
    gone, node = frozenset(found.uids), found.choice.node
    assert (not gone) == any(frozenset() in sets for sets in feasible.values())
    assert gone in feasible[node]
    assert not any(other < gone for other in feasible[node])
    if gone:
        costs = {attempt.node: attempt.cost for attempt in found.attempts if attempt.cost is not None}
        assert found.cost == min(costs.values()) == costs[node]
        for attempt in found.attempts:
            most = 99 if attempt.up_to is None else attempt.up_to
            within = {uid for uid in eligible[attempt.node] if priority(fleet, uid) <= most}
            assert (attempt.cost is None) == (not any(other <= within for other in feasible[attempt.node]))
            assert found.cost is not None
            assert most >= found.cost.highest
            assert attempt.up_to is None or not found.cost.violations
    for uid in gone:
        fleet.release(uid)
    allocator = FleetAllocator(fleet, replace(rules, quotas=Quotas()))
    allocator.set_ready()
    assert isinstance(allocator.bind(request, found.choice.gpus, NOW), Allocation)


def price(fleet: Fleet, budgets: Budgets, node: str, gone: frozenset[str]) -> Cost:
    """What a set costs, from its definition."""
    claims = {uid: fleet.ledger[uid].claim for uid in gone}
    per_workload = Counter((claim.namespace, claim.workload) for claim in claims.values())
    beyond = sum(max(0, n - budgets.left.get(key, n)) for key, n in per_workload.items())
    highest = max(claim.priority for claim in claims.values())
    oldest = min(fleet.ledger[uid].bound_at for uid, claim in claims.items() if claim.priority == highest)
    total = sum(max(0, claim.priority) for claim in claims.values())
    return Cost(beyond, highest, total, len(gone), NOW - oldest, node)


@pytest.mark.long
@settings(max_examples=400)
@given(worlds())
def test_no_set_on_any_node_is_cheaper(world):
    """Where no quota decides, the answer costs as much as that of an exact solver: every subset of every node."""
    books, rules, request, budgets = world
    fleet, free = books.fleet, replace(rules, quotas=Quotas())
    found = preempt(EvictionContext(fleet, free, NOW, budgets), request)
    if isinstance(found, NoPreemption) or not found.victims:
        return
    costs = [
        price(fleet, budgets, node.name, frozenset(gone))
        for node in fleet.nodes
        for gone in subsets([a.id for a in fleet.ledger.values() if a.node == node.name and may_go(free, request, a)])
        if gone and fits(fleet, free, request, node, gone)
    ]
    event(f"{len(costs) > 1} {found.cost.number} victims")
    assert found.cost == min(costs)


@pytest.mark.long
@settings(max_examples=200)
@given(worlds(), st.data())
def test_one_node_with_any_victims_against_every_subset_of_them(world, data):
    books, rules, request, budgets = world
    fleet = books.fleet
    node = data.draw(st.sampled_from(fleet.nodes))
    here = [a.id for a in fleet.ledger.values() if a.node == node.name]
    named = data.draw(st.lists(st.sampled_from(here), unique=True)) if here else []
    before = frozen(fleet)
    found = check_single_node_preempt(EvictionContext(fleet, rules, NOW, budgets), request, node.name, named)
    filter_with_preempt(fleet, rules, request, named, [node.name])
    assert frozen(fleet) == before
    able = [uid for uid in named if may_go(rules, request, fleet.ledger[uid])]
    feasible = {frozenset(gone) for gone in subsets(able) if fits(fleet, rules, request, node, gone)}
    assert isinstance(found, Preemption) == bool(feasible)
    if isinstance(found, Preemption):
        assert frozenset(found.uids) in feasible
        assert not any(other < frozenset(found.uids) for other in feasible)
