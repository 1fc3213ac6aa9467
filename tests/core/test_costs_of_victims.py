"""What victims cost: the order of costs from its definition, budgets that count for other workloads, and ages."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from tests.books import NOW, Books, a_card, a_node, ask
from tests.core.test_preemption import fits, may_go, subsets

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.preemption import NoPreemption, Preemption, place_or_wait, preempt
from ullage.core.evicting.put_back import put_back
from ullage.core.evicting.victim_search import VictimSearch
from ullage.core.evicting.victims import Budgets, Cost, EvictionContext, budgets_of, cost_of
from ullage.core.placing.decision import Refusal
from ullage.core.placing.draft import enter
from ullage.core.placing.nomination import Nominations
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, Request
from ullage.model.nomination import Nomination
from ullage.model.part import IsolationPolicy
from ullage.model.quota import Quota
from ullage.model.rejection import Code

WORKLOADS = "web", "job", "etl", "free"
TEXTS = "tflops=20,vram=2g", "tflops=40,vram=4g", "tflops=30,vram=1g", ""
CAPPED = Rules(quotas=Quotas({"team": Quota(max_workers=2)}))


def some_books(rng: Random) -> Fleet:
    """Return two nodes whose cards workers of several workloads fill."""
    books = Books(*(a_node(name, *(a_card(f"{name}-{k}") for k in range(2))) for name in "mn"))
    for number in range(8):
        card = rng.choice([gpu.uuid for node in books.fleet.nodes for gpu in node.gpus])
        facts = {"priority": rng.randint(-1, 2), "workload": rng.choice(WORKLOADS), "since": float(rng.randint(0, 3))}
        facts["namespace"] = rng.choice(["team", "team", "other"])
        held = books.fleet.holders[books.fleet.card_of[card]]
        if len(held) < 3 and None not in held.values():
            text = rng.choice(TEXTS[: -1 if held else None])
            if text in ("", *TEXTS[:1]) or books.fleet.compute_free[books.fleet.card_of[card]] >= 40_000:
                books.run(f"w{number}", card, of=text, **facts)
    return books.fleet


def some_budgets(rng: Random, fleet: Fleet) -> Budgets:
    """Return budgets of some workloads; some workers count for another one, which may have no budget."""
    keys = [(namespace, workload) for namespace in ("team", "other") for workload in WORKLOADS[:3]]
    left = {key: rng.randint(0, 1) for key in rng.sample(keys, rng.randint(1, 4))}
    moved = [uid for uid in fleet.ledger if rng.random() < 0.3]
    return Budgets(left, {uid: rng.choice([*keys, ("team", "unknown")]) for uid in moved})


def price(fleet: Fleet, budgets: Budgets, node: str, gone: tuple[str, ...]) -> Cost:
    """Return what a set costs, from the definition of its fields."""
    claims = {uid: fleet.ledger[uid].claim for uid in gone}
    keys = Counter(budgets.of.get(uid, (claim.namespace, claim.workload)) for uid, claim in claims.items())
    beyond = sum(max(0, number - budgets.left[key]) for key, number in keys.items() if key in budgets.left)
    highest = max(claim.priority for claim in claims.values())
    ages = [NOW - fleet.ledger[uid].bound_at for uid, claim in claims.items() if claim.priority == highest]
    priorities = sum(claim.priority for claim in claims.values() if claim.priority > 0)
    return Cost(beyond, highest, priorities, len(gone), max(ages), node)


@pytest.mark.parametrize("seed", range(20))
def test_a_set_costs_what_the_definition_says(seed):
    fleet = some_books(Random(seed))
    budgets = some_budgets(Random(seed), fleet)
    for gone in subsets(sorted(fleet.ledger)):
        if gone:
            victims = [fleet.ledger[uid] for uid in gone]
            assert cost_of(budgets, NOW, "n", victims) == price(fleet, budgets, "n", gone)
    assert cost_of(budgets, NOW, "n", []) == Cost(0, 0, 0, 0, 0.0, "n")


def cheapest(fleet: Fleet, rules: Rules, request: Request, budgets: Budgets) -> Cost | None:
    """Return what the cheapest of all sets on one node costs with which a request fits."""
    costs = [
        price(fleet, budgets, node.name, gone)
        for node in fleet.nodes
        for gone in subsets([a.id for a in fleet.ledger.values() if a.node == node.name and may_go(rules, request, a)])
        if gone and fits(fleet, rules, request, node, gone)
    ]
    return min(costs, default=None)


@pytest.mark.parametrize("seed", range(40))
def test_no_set_costs_less_whatever_workload_its_workers_count_for(seed):
    rng = Random(seed)
    fleet = some_books(rng)
    budgets, rules = some_budgets(rng, fleet), Rules()
    request = ask(rng.choice(["gpu=1", "gpu=2", "gpu=1,tflops=80,vram=8g", "gpu=2,tflops=70,vram=6g"]))
    found = preempt(EvictionContext(fleet, rules, NOW, budgets), request)
    wanted = cheapest(fleet, rules, request, budgets)
    if isinstance(found, Preemption) and not found.victims:
        assert any(fits(fleet, rules, request, node, ()) for node in fleet.nodes)
    else:
        assert (found.cost if isinstance(found, Preemption) else None) == wanted


@pytest.mark.parametrize("seed", range(30))
def test_members_of_a_gang_use_up_the_budgets_that_their_victims_count_for(seed):
    """Each finds what it would find alone with those before it placed."""
    rng = Random(seed)
    fleet = some_books(rng)
    budgets, rules = some_budgets(rng, fleet), Rules()
    text = rng.choice(["gpu=1", "gpu=1,tflops=80,vram=8g", "gpu=2"])
    requests = [ask(text, f"member {number}") for number in range(2)]
    found, context = preempt_together(EvictionContext(fleet, rules, NOW, budgets), requests), None
    left = dict(budgets.left)
    with trial(fleet):
        for request in requests:
            context = EvictionContext(fleet, rules, NOW, Budgets(left, budgets.of))
            alone = preempt(context, request)
            if not isinstance(alone, Preemption):
                assert not isinstance(found, dict)
                return
            assert isinstance(found, dict)
            assert (found[request.uid].uids, found[request.uid].cost) == (alone.uids, alone.cost)
            for gone in [fleet.release(uid) for uid in alone.uids]:
                key = budgets.key(gone)
                if key in left:
                    left[key] = max(0, left[key] - 1)
            enter(fleet, [request], [alone.choice], NOW)


@pytest.mark.parametrize("rules", [Rules(), CAPPED], ids=["by sums", "on trial"])
def test_a_search_that_is_asked_about_a_node_again_has_the_same_answer(rules):
    fleet = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("a", "n-0").run("b", "n-0", of="tflops=40").fleet
    fleet = Books.run(_with(fleet), "c", "n-1", of="tflops=60", priority=2).fleet
    for text in ("gpu=1", "gpu=2", "gpu=1,tflops=90"):
        search = VictimSearch(EvictionContext(fleet, rules, NOW), ask(text))
        first = search.on(0, fleet.ledger.values())
        assert first.victims
        assert search.on(0, fleet.ledger.values()) == first


def _with(fleet: Fleet) -> Books:
    books = Books()
    books.fleet = fleet
    return books


def test_a_set_with_all_who_may_go_is_the_best_of_its_node_whatever_others_cost():
    """`up_to` names the priority above which nobody was tried; here nobody is above it."""
    books = Books(a_node("m"), a_node("n")).run("cheap", "m-0", priority=1).run("same", "n-0", priority=1)
    books.run("stays", "n-0", of="tflops=40,vram=1g", priority=10)
    found = books.preempt(ask("gpu=1"))
    assert isinstance(found, Preemption)
    assert [(each.node, each.eligible, each.up_to) for each in found.attempts] == [("m", 1, None), ("n", 1, None)]


def test_the_place_of_a_request_is_on_no_card_whose_lock_stays_though_its_last_user_leaves():
    locked, free = a_card("n-0", isolation_policy=IsolationPolicy.DYNAMIC), a_card("n-1")
    books = Books(a_node("n", locked, free)).run("both", "n-0", "n-1", of="tflops=50,vram=8g,isolation=soft")
    found = books.preempt(ask("gpu=1,tflops=80,vram=8g,isolation=hard"))
    assert isinstance(found, Preemption)
    assert (found.uids, found.choice.gpus) == (("both",), ("n-1",))


def test_a_node_on_which_nobody_may_go_says_that_one_is_needed_and_none_had():
    found = Books(a_node("n")).run("stays", "n-0", priority=10).preempt()
    assert isinstance(found, NoPreemption)
    (refusal,) = [each.refusal for each in found.attempts]
    assert refusal is not None
    assert [(each.code, each.needed, each.had, each.node) for each in refusal.rejections] == [
        (Code.NO_VICTIMS, 1, 0, "n")
    ]


def test_a_nominated_request_waits_for_those_who_leave_its_node():
    books = Books(a_node("m", a_card("m-0"), a_card("m-1")), a_node("n"))
    books.run("leaves n", "n-0", state=AllocationState.RELEASING)
    for number in range(2):
        books.run(f"leaves m {number}", f"m-{number}", state=AllocationState.RELEASING)
    request = ask("gpu=1")
    kept = Nominations((Nomination(request, "n", NOW, ("n-0",)),))
    waits = place_or_wait(books.fleet, Rules(), request, kept)
    assert isinstance(waits, NoPreemption)
    assert [(each.code, each.needed, each.node) for each in waits.rejections] == [(Code.EVICTING, 1, "n")]


def test_a_nominated_request_does_not_wait_for_those_whose_room_is_not_enough():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("stays", "n-0", priority=10)
    books.run("leaves", "n-1", state=AllocationState.RELEASING)
    request = ask("gpu=2")
    kept = Nominations((Nomination(request, "n", NOW, ("n-0", "n-1")),))
    found = place_or_wait(books.fleet, Rules(), request, kept)
    assert isinstance(found, Refusal)
    assert not isinstance(found, NoPreemption)


# --- cards that were given to more than they have room for ---


def overfull() -> Fleet:
    """Return a node on one of whose cards two hold more than it has."""
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("a", "n-0", of="tflops=70,vram=2g")
    twin = replace(books.fleet.ledger["a"], id="b", bound_at=501.0)
    books.fleet.charge(twin, force=True)
    return books.run("c", "n-1", of="tflops=50,vram=2g", priority=1, since=502.0).fleet


def test_who_shares_a_card_that_is_overfull_comes_back_as_well_as_others():
    fleet = overfull()
    gone: list[tuple[Allocation, ...]] = [(fleet.release(uid),) for uid in ("a", "b", "c")]
    assert put_back(fleet, gone, lambda held: held[0].id != "c") == [gone[2]]
    assert sorted(fleet.ledger) == ["a", "b"]


@pytest.mark.parametrize("rules", [Rules(), Rules(quotas=Quotas({"team": Quota(max_workers=3)}))])
def test_all_who_hold_too_much_of_a_card_leave_it_and_each_has_its_reason(rules):
    fleet = overfull()
    before = dict(fleet.ledger)
    found = preempt(EvictionContext(fleet, rules, NOW), ask("gpu=1,tflops=60,vram=8g", priority=5))
    assert isinstance(found, Preemption)
    assert [(each.uid, each.reason.needed, each.reason.had) for each in found.victims] == [
        ("a", 60_000, 30_000),
        ("b", 60_000, 30_000),
    ]
    assert fleet.ledger == before


@pytest.mark.parametrize("rules", [Rules(), Rules(quotas=Quotas({"team": Quota(max_workers=9)}))])
def test_who_leaves_an_overfull_card_has_a_reason_though_it_does_not_fit_on_it_any_more(rules):
    books = Books(a_node("n")).run("stays", "n-0", of="tflops=60,vram=2g", priority=10)
    books.fleet.charge(replace(books.fleet.ledger["stays"], id="goes", claim=Claim(namespace="team")), force=True)
    found = books.preempt(ask("tflops=30,vram=1g"), rules)
    assert isinstance(found, Preemption)
    assert [(each.uid, each.reason.needed, each.reason.had) for each in found.victims] == [("goes", 30_000, 0)]


def test_as_many_of_a_workload_may_go_as_are_above_its_minimum():
    fleet = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("a", "n-0", workload="web").run("b", "n-1").fleet
    assert budgets_of(fleet, {("team", "web"): 0}).left == {("team", "web"): 1}
    assert budgets_of(fleet, {("team", "web"): 1, ("team", "job"): 1}).left == {("team", "web"): 0, ("team", "job"): 0}
    assert not budgets_of(fleet, {}).left
