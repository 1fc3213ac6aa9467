"""Who gives way to several requests at once: as one after the other, and no cheaper nodes than those taken."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain, combinations

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import NOW, Books, a_card, a_node, ask, capped, crowd, frozen

from ullage.core.books.fleet import Fleet
from ullage.core.books.occupancy import Occupancy
from ullage.core.books.trial import trial
from ullage.core.evicting.gang_eviction import preempt_together
from ullage.core.evicting.preemption import NoPreemption, Preemption, preempt
from ullage.core.evicting.victims import Budgets, EvictionContext
from ullage.core.placing.draft import Misfit, enter
from ullage.core.placing.nomination import NO_NOMINATIONS
from ullage.core.placing.rules import Rules
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import GangClaim, Request
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.part import IsolationPolicy
from ullage.model.rejection import Code

pytestmark = pytest.mark.timeout(900)

TEXTS = ("tflops=20,vram=2g", "tflops=40,vram=8g", "tflops=60,vram=2g", "percent=25", "", "")


def gang(count: int, text: str = "gpu=2", **claim: object) -> list[Request]:
    return [ask(text, f"m{n}", gang=GangClaim("g", count, count), **claim) for n in range(count)]


def gone(found: dict[str, Preemption] | Misfit) -> list[str]:
    assert isinstance(found, dict)
    return sorted(chain.from_iterable(each.uids for each in found.values()))


def wide(names: str, cards: int = 2, **facts: object) -> list[Node]:
    return [a_node(name, *(a_card(f"{name}-{k}") for k in range(cards)), **facts) for name in names]


# --- cases ---


def test_all_victims_of_all_members_are_decided_together():
    books = Books(*wide("abc"))
    for name, priority in (("a", 3), ("b", 1), ("c", 2)):
        books.run(f"{name}0", f"{name}-0", of="", priority=priority).run(f"{name}1", f"{name}-1", of="", priority=0)
    found = preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(2))
    assert gone(found) == ["b0", "b1", "c0", "c1"]
    assert {each.choice.node for each in found.values()} == {"b", "c"}
    assert found["m0"].cost is not None
    assert (found["m0"].cost.highest, found["m1"].cost.highest) == (1, 2)


def test_or_nobody():
    books = Books(*wide("abc")).run("a0", "a-0", of="", priority=3).run("b0", "b-0", of="", priority=20)
    books.run("c0", "c-0", of="", priority=20)
    found = preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(2))
    assert isinstance(found, Misfit)
    assert found.refusal.code is Code.NO_VICTIMS
    assert (found.refusal.rejections[0].needed, found.refusal.rejections[0].had) == (2, 1)


def test_what_fits_takes_nobodys_room():
    books = Books(*wide("abc")).run("a0", "a-0", of="", priority=3).run("b0", "b-0", of="", priority=1)
    found = preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(2))
    assert gone(found) == ["b0"]
    assert {uid: each.choice.node for uid, each in found.items()} == {"m0": "c", "m1": "b"}


def test_what_a_victim_leaves_over_is_for_the_next_member():
    books = Books(*wide("ab", cards=4))
    books.run("a", *(f"a-{k}" for k in range(4)), of="", priority=1)
    books.run("b", *(f"b-{k}" for k in range(4)), of="", priority=2)
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(2))) == ["a"]
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(3))) == ["a", "b"]


def test_members_of_several_sizes_are_served_in_order():
    books = Books(*wide("ab", cards=4))
    for name in "ab":
        for k in range(4):
            books.run(f"{name}{k}", f"{name}-{k}", of="", priority=1, since=float(k))
    both = [*gang(1, "gpu=4"), ask("gpu=1", "small", gang=GangClaim("g", 2, 2))]
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), both)) == ["a0", "a1", "a2", "a3", "b3"]


def test_what_one_member_takes_of_a_budget_is_not_left_for_the_next():
    books = Books(*wide("abc", cards=1)).run("web1", "a-0", of="", workload="web", since=900.0)
    books.run("web2", "b-0", of="", workload="web").run("job", "c-0", of="", workload="job", priority=1)
    members = [ask("gpu=1", "m0"), ask("gpu=1,tflops=100", "m1")]
    for left, victims in ((1, ["job", "web1"]), (2, ["web1", "web2"])):
        context = EvictionContext(books.fleet, Rules(), NOW, Budgets({("team", "web"): left}))
        assert gone(preempt_together(context, members)) == victims


@pytest.mark.parametrize(
    ("victim", "text", "rules", "reason"),
    [
        pytest.param("tflops=90", "gpu=1,tflops=20", {}, (Code.GPU_COMPUTE, 20_000, 10_000), id="of its card"),
        pytest.param("tflops=20,cpu=60", "gpu=1,tflops=20,cpu=10", {}, (Code.CPU, 10_000, 4_000), id="of CPUs"),
        pytest.param("tflops=20", "gpu=1,tflops=20", {"workers_per_node": 1}, (Code.WORKER_CAP, 2, 1), id="of places"),
    ],
)
def test_a_victim_has_the_reason_why_nothing_fits_while_it_stays(victim, text, rules, reason):
    books = Books(a_node("n")).run("v", "n-0", of=victim)
    found = preempt_together(EvictionContext(books.fleet, Rules(**rules), NOW), [ask(text, "m0")])
    assert isinstance(found, dict)
    (gives_way,) = found["m0"].victims
    assert (gives_way.reason.code, gives_way.reason.needed, gives_way.reason.had) == reason


def test_the_own_gang_is_no_victim():
    books = Books(*wide("a", cards=1))
    books.run("late", "a-0", of="", priority=1, gang=GangClaim("g", 1, 2))
    assert isinstance(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(1, "gpu=1")), Misfit)
    assert isinstance(books.preempt(gang(1, "gpu=1")[0]), NoPreemption)
    other = ask("gpu=1", "x", gang=GangClaim("h", 1, 1))
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), [other])) == ["late"]


@pytest.mark.parametrize(
    "facts",
    [
        {"priority": 10},
        {"state": AllocationState.RELEASING},
        {"executor": True},
        {"protected_until": NOW + 1},
    ],
)
def test_who_is_shielded_stays(facts):
    books = Books(*wide("a", cards=1)).run("v", "a-0", of="", **facts)
    assert isinstance(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(2, "gpu=1")[:1]), Misfit)


def test_only_the_own_namespace_if_preemption_is_not_cluster_wide():
    books = Books(*wide("ab", cards=1)).run("v", "a-0", of="", namespace="other").run("w", "b-0", of="", priority=4)
    found = preempt_together(EvictionContext(books.fleet, Rules(preempt_cluster_wide=False), NOW), gang(1, "gpu=1"))
    assert gone(found) == ["w"]


def test_budgets_are_for_the_gang_as_a_whole():
    books = Books(*wide("abc", cards=1))
    books.run("a", "a-0", of="", workload="web").run("b", "b-0", of="", workload="web")
    books.run("c", "c-0", of="", priority=5)
    budgets = Budgets({("team", "web"): 1})
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW, budgets), gang(2, "gpu=1"))) == ["a", "c"]
    found = preempt_together(EvictionContext(books.fleet, Rules(), NOW, budgets), gang(3, "gpu=1"))
    assert sum(each.cost.violations for each in found.values() if each.cost) == 1


def test_quotas_that_victims_must_relax_are_judged_member_by_member():
    books = Books(*wide("ab", cards=1)).run("own", "a-0", of="", priority=5).run("w", "b-0", of="", namespace="other")
    found = preempt_together(EvictionContext(books.fleet, capped(workers=1), NOW), gang(1, "gpu=1"))
    assert gone(found) == ["own"]
    assert isinstance(preempt_together(EvictionContext(books.fleet, capped(workers=1), NOW), gang(2, "gpu=1")), Misfit)


def test_room_that_is_kept_for_others_stays_theirs_and_that_of_the_gang_is_its_own():
    books = Books(*wide("ab", cards=1)).run("v", "a-0", of="", priority=1)
    first = Nomination(ask("gpu=1", "first", priority=20), "b", NOW, ("b-0",))
    requests = gang(1, "gpu=1")
    assert gone(
        preempt_together(EvictionContext(books.fleet, Rules(), NOW, nominations=NO_NOMINATIONS.with_(first)), requests)
    ) == ["v"]
    own = Nomination(requests[0], "b", NOW, ("b-0",))
    assert (
        gone(
            preempt_together(
                EvictionContext(books.fleet, Rules(), NOW, nominations=NO_NOMINATIONS.with_(own)), requests
            )
        )
        == []
    )


def test_who_holds_a_card_that_was_moved_to_another_machine_is_as_in_the_ledger_there_too():
    books = Books(*wide("ab")).run("v", "a-0", "b-0", of="", since=900.0).run("w", "b-1", of="", since=950.0)
    occupancy, before = Occupancy.of(books.fleet), books.fleet.ledger["v"]
    assert [a.id for a in occupancy.columns().who] == ["v", "v", "w"]
    books.fleet.replace(replace(before, state=AllocationState.RELEASING, bound_at=990.0))
    columns = occupancy.columns()
    assert [(a.id, a.state) for a in columns.who] == [
        ("v", AllocationState.RELEASING),
        ("w", AllocationState.BOUND),
        ("v", AllocationState.RELEASING),
    ]
    assert columns.since.tolist() == [990.0, 950.0, 990.0]


def test_the_lock_of_a_dynamic_card_stays():
    node = a_node("n", a_card("n-0", isolation_policy=IsolationPolicy.DYNAMIC), a_card("n-1"))
    books = Books(node).run("v", "n-0", of="tflops=50,isolation=soft").run("w", "n-1", of="", priority=5)
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(1, "tflops=80,isolation=hard"))) == [
        "w"
    ]
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(1, "tflops=80,isolation=soft"))) == [
        "v"
    ]


def test_every_victim_says_why():
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-0", of="").run("w", "n-1", of="tflops=1")
    found = preempt_together(EvictionContext(books.fleet, Rules(workers_per_node=1), NOW), gang(1, "gpu=1"))
    reasons = {victim.uid: victim.reason.code for victim in found["m0"].victims}
    assert reasons == {"v": Code.GPU_NOT_IDLE, "w": Code.GPU_NOT_IDLE}
    books = Books(a_node("n", a_card("n-0"), a_card("n-1"))).run("v", "n-0", of="tflops=1")
    found = preempt_together(EvictionContext(books.fleet, Rules(workers_per_node=1), NOW), gang(1, "tflops=1"))
    assert [victim.reason.code for victim in found["m0"].victims] == [Code.WORKER_CAP]


def test_parts_of_cards_are_cleared_too_where_the_strategy_follows_the_fleet():
    books = Books(*wide("ab", cards=2))
    for name, priority in (("a", 2), ("b", 1)):
        for k in range(2):
            books.run(f"{name}{k}", f"{name}-{k}", of="tflops=60,vram=4g", priority=priority)
    requests = gang(3, "tflops=50,vram=4g")
    assert not Rules().strategy_of(requests[0]).stateless
    found = preempt_together(EvictionContext(books.fleet, Rules(), NOW), requests)
    assert gone(found) == ["b0", "b1"]
    assert sorted(each.choice.gpus[0] for each in found.values()) == ["b-0", "b-1", "b-1"]


# --- as one after the other ---


@st.composite
def worlds(draw: st.DrawFn) -> tuple[Fleet, Rules]:
    nodes = [
        a_node(name, *(a_card(f"{name}-{k}", draw(st.sampled_from([60, 100]))) for k in range(draw(st.integers(1, 4)))))
        for name in "abcd"[: draw(st.integers(1, 4))]
    ]
    books = Books(*nodes)
    crowd(draw, books, nodes, draw(st.integers(4, 20)), TEXTS)
    rules = Rules(
        strategy=draw(st.sampled_from(["best-fit", "spread", "node-compact-gpu-low-load"])),
        workers_per_node=draw(st.sampled_from([0, 2, 3])),
        preempt_cluster_wide=draw(st.booleans()),
    )
    return books.fleet, rules


sizes = st.lists(
    st.tuples(st.sampled_from(["gpu=1", "gpu=2", "tflops=50,vram=4g", "gpu=2,tflops=30,vram=2g"]), st.integers(1, 3)),
    min_size=1,
    max_size=2,
    unique_by=lambda pair: pair[0],
)


def one_by_one(fleet: Fleet, rules: Rules, requests: list[Request], budgets: dict[tuple[str, str], int]):
    """The slow and obvious way: each member alone, with those before it placed and their victims gone."""
    found: dict[str, Preemption] = {}
    left = dict(budgets)
    with trial(fleet):
        for request in requests:
            each = preempt(EvictionContext(fleet, rules, NOW, Budgets(left)), request)
            if isinstance(each, NoPreemption):
                return None
            found[request.uid] = each
            for victim in each.victims:
                fleet.release(victim.uid)
                key = victim.namespace, victim.workload
                if key in left:
                    left[key] = max(0, left[key] - 1)
            enter(fleet, [request], [each.choice], NOW)
    return found


@pytest.mark.long
@settings(max_examples=400)
@given(worlds(), sizes, st.sampled_from([{}, {("team", "web"): 0}, {("team", "web"): 1, ("other", "job"): 0}]))
def test_together_is_as_one_after_the_other(world, asked, budgets):
    fleet, rules = world
    requests = [ask(text, f"{text}-{n}") for text, count in asked for n in range(count)]
    before = frozen(fleet)
    found = preempt_together(EvictionContext(fleet, rules, NOW, Budgets(budgets)), requests)
    assert frozen(fleet) == before
    wanted = one_by_one(fleet, rules, requests, budgets)
    event("refused" if wanted is None else f"{len(gone(wanted))} victims")
    if wanted is None:
        assert isinstance(found, Misfit)
        return
    assert isinstance(found, dict)
    assert {uid: each.uids for uid, each in found.items()} == {uid: each.uids for uid, each in wanted.items()}
    assert {uid: each.cost for uid, each in found.items()} == {uid: each.cost for uid, each in wanted.items()}
    where = {uid: (each.choice.node, each.choice.gpus, each.choice.charges) for uid, each in found.items()}
    assert where == {uid: (each.choice.node, each.choice.gpus, each.choice.charges) for uid, each in wanted.items()}


# --- exact ---


@st.composite
def full_nodes(draw: st.DrawFn) -> Fleet:
    """Nodes of up to six cards, full of work on one to three cards each."""
    nodes = wide("abcd"[: draw(st.integers(1, 4))], cards=draw(st.sampled_from([1, 2, 4, 5, 6, 6])))
    books, number = Books(*nodes), 0
    for node in nodes:
        free = [gpu.uuid for gpu in node.gpus]
        while free:
            held, free = free[: (taken := draw(st.sampled_from([1, 1, 2, 3])))], free[taken:]
            number += 1
            priority = draw(st.sampled_from([-1, 0, 1, 1, 1, 1, 15]))
            books.run(f"w{number}", *held, of="", priority=priority, since=float(draw(st.integers(0, 2))))
    return books.fleet


def cheapest_on_each(fleet: Fleet, needed: int) -> dict[str, tuple[int, int, int, float]]:
    """Per node where it is possible, the least that so many of its cards cost: every set of victims."""
    found = {}
    for node in fleet.nodes:
        may = [a for a in fleet.ledger.values() if a.node == node.name and a.claim.priority < 10]
        sets = chain.from_iterable(combinations(may, n) for n in range(1, len(may) + 1))
        enough = [price(list(each)) for each in sets if sum(len(a.gpus) for a in each) >= needed]
        if enough:
            found[node.name] = min(enough)
    return found


def price(gone: list[Allocation]) -> tuple[int, int, int, float]:
    highest = max(allocation.claim.priority for allocation in gone)
    oldest = min(allocation.bound_at for allocation in gone if allocation.claim.priority == highest)
    return highest, sum(max(0, allocation.claim.priority) for allocation in gone), len(gone), NOW - oldest


@pytest.mark.long
@settings(max_examples=300)
@given(full_nodes(), st.data())
def test_no_choice_of_nodes_and_victims_costs_less(fleet, data):
    """Members that need more than half of a node each, against every choice of nodes and victims."""
    cards = len(fleet.nodes[0].gpus)
    needed, count = data.draw(st.integers(cards // 2 + 1, cards)), data.draw(st.integers(1, len(fleet.nodes)))
    per_node = cheapest_on_each(fleet, needed)
    found = preempt_together(EvictionContext(fleet, Rules(), NOW), gang(count, f"gpu={needed}"))
    if isinstance(found, Misfit):
        assert len(per_node) < count
        return
    assert len({each.choice.node for each in found.values()}) == count
    paid = sorted(price([fleet.ledger[uid] for uid in each.uids]) for each in found.values())
    assert paid == min(sorted(choice) for choice in combinations(per_node.values(), count))


@pytest.mark.long
@settings(max_examples=300)
@given(full_nodes(), st.data())
def test_one_request_finds_the_cheapest_node_and_victims(fleet, data):
    needed = data.draw(st.integers(1, len(fleet.nodes[0].gpus)))
    per_node = cheapest_on_each(fleet, needed)
    found = preempt(EvictionContext(fleet, Rules(), NOW), gang(1, f"gpu={needed}")[0])
    if isinstance(found, NoPreemption):
        assert not per_node
        return
    assert (price([fleet.ledger[uid] for uid in found.uids]), found.choice.node) == min(
        (cost, node) for node, cost in per_node.items()
    )


def test_one_large_job_goes_rather_than_two_small_ones():
    books = Books(*wide("a", cards=5)).run("large", "a-0", "a-1", of="", priority=1, since=0.0)
    for k in (2, 3, 4):
        books.run(f"small{k}", f"a-{k}", of="", priority=1, since=100.0 + k)
    assert gone(preempt_together(EvictionContext(books.fleet, Rules(), NOW), gang(1, "gpu=2"))) == ["large"]
