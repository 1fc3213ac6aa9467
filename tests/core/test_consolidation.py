"""Plans that make room by moving: the cheapest against brute force, possible step by step, and nobody who stays."""

import random
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.books import Books, a_card, a_node, content

from ullage.core.books.fleet import Fleet
from ullage.core.books.slices import at_once
from ullage.core.books.trial import trial
from ullage.core.evicting.consolidation import consolidate
from ullage.core.evicting.move_search import MoveHolders
from ullage.core.evicting.moves import (
    Consolidation,
    Move,
    MoveContext,
    MoveCost,
    MovePlan,
    MoveQuestion,
    NoConsolidation,
)
from ullage.core.evicting.protection import Shield
from ullage.core.evicting.victims import Budgets
from ullage.core.kernel.freeing import NEVER, share_out
from ullage.core.placing.decision import Choice
from ullage.core.placing.nomination import Nominations
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.verdict.quota import Quotas
from ullage.model.affinity import NODE_NAME, Expression, NodeAffinity, Operator
from ullage.model.allocation import Allocation, AllocationState
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.nomination import Nomination
from ullage.model.quota import Caps, Quota
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement

pytestmark = pytest.mark.timeout(900)
NOW = 1000.0
PART = "tflops=40,vram=6g"


def wanted(text="gpu=2", **facts):
    return Request("wanted", ResourceRequirement.from_string(text), Claim(**facts))


def plan(books, text="gpu=2", units=1, rules=None, **more):
    """What is answered, with the books as before."""
    before = content(books.fleet)
    found = consolidate(books.fleet, rules or Rules(), wanted(text), units, NOW, **more)
    assert content(books.fleet) == before
    if isinstance(found, Consolidation):
        carried_out(books.fleet, found, wanted(text), units)
    return found


def carried_out(fleet, found, asked, units):
    """Each move has room when its turn comes, and in the end the units have theirs."""
    with trial(fleet):
        out = []
        for move in found.moves:
            fleet.release(move.allocation.id)
            if move.gap:
                out.append(move)
            else:
                fleet.charge(at(move))
        for move in out:
            fleet.charge(at(move))
        for number, unit in enumerate(found.units):
            fleet.charge(Allocation(f"unit-{number}", unit.node, asked.requirement, unit.gpus, charges=unit.charges))
        assert len(found.units) == units
        assert (fleet.cpu_free >= 0).all()
        assert (fleet.memory_free >= 0).all()


def at(move):
    held, to = move.allocation, move.to
    return Allocation(held.id, to.node, held.requirement, to.gpus, held.state, to.charges, held.claim)


def moves(found):
    return [(move.allocation.id, move.to.node, *move.to.gpus) for move in found.moves]


def two_nodes(**facts):
    return Books(a_node("n", a_card("n-0"), a_card("n-1"), **facts), a_node("o", a_card("o-0"), a_card("o-1"), **facts))


# --- cases ---


def test_what_fits_needs_no_moves():
    found = plan(two_nodes().run("a", "n-0", of=PART))
    assert (found.moves, found.cost, found.least) == ((), MoveCost(0, 0, 0), True)
    assert [unit.node for unit in found.units] == ["o"]


def test_two_parts_come_together_and_a_node_is_free():
    found = plan(two_nodes().run("a", "n-0", of=PART).run("b", "o-0", of=PART))
    assert moves(found) == [("a", "o", "o-0")]
    assert found.units[0].gpus == ("n-0", "n-1")
    assert found.cost == MoveCost(0, 1, 400)
    assert found.age_s == 500.0


def test_cards_of_one_node_are_freed_by_a_move_within_it():
    books = Books(a_node("n", *(a_card(f"n-{k}") for k in range(3)))).run("a", "n-0", of=PART).run("b", "n-1", of=PART)
    assert moves(plan(books)) == [("a", "n", "n-1")]


def test_the_lowest_priority_moves_then_the_fewest_then_the_smallest():
    books = two_nodes().run("dear", "n-0", of=PART, priority=5)
    books.run("cheap", "o-0", of=PART).run("cheap-too", "o-1", of="tflops=20,vram=2g")
    assert [move[0] for move in moves(plan(books))] == ["cheap", "cheap-too"]
    books = two_nodes().run("big", "n-0", of="tflops=90,vram=9g").run("one", "o-0", of=PART).run("two", "o-1", of=PART)
    books.fleet = Fleet([*books.fleet.nodes, a_node("p", a_card("p-0"))], books.fleet.ledger.values())
    assert [move[0] for move in moves(plan(books))] == ["big"]


def test_as_many_units_as_are_wanted_each_on_its_node():
    books = Books(*(a_node(f"n{k}", a_card(f"n{k}-0"), a_card(f"n{k}-1")) for k in range(4)))
    for k in range(4):
        books.run(f"r{k}", f"n{k}-0", of="tflops=25,vram=4g")
    found = plan(books, units=3)
    assert len({unit.node for unit in found.units}) == 3
    assert found.cost.number == 3
    refused = plan(books, units=4)
    assert isinstance(refused, NoConsolidation)
    assert (refused.rejections[0].needed, refused.rejections[0].had, refused.curable) == (4, 3, True)
    assert not plan(books, units=5).curable


def test_a_refusal_says_for_how_many_there_is_a_plan_and_not_how_many_would_be_free_if_all_were_gone():
    """Each alone would find a place, but there are not as many places."""
    books = Books(*(a_node(name, a_card(f"{name}-0"), a_card(f"{name}-1")) for name in "no"), a_node("p"))
    for uid, card in (("a", "n-0"), ("b", "o-0"), ("c", "o-1"), ("d", "n-1")):
        books.run(uid, card, of="tflops=60,vram=2g")
    for units in (1, 2, 3):
        refused = plan(books, units=units)
        assert isinstance(refused, NoConsolidation)
        assert (refused.rejections[0].needed, refused.rejections[0].had) == (units, 0)
    books.fleet.release("d")
    for units in (2, 3):
        refused = plan(books, units=units)
        assert isinstance(refused, NoConsolidation)
        assert (refused.rejections[0].needed, refused.rejections[0].had) == (units, 1)
    assert isinstance(plan(books, units=1), Consolidation)


def test_a_move_to_a_free_card_has_no_gap():
    """The card of the other request is too small for both, so a free card is chosen, and nobody has to leave first."""
    books = Books(a_node("n", a_card("n-0"), a_card("n-1")), a_node("o", a_card("o-0", 100, 40), a_card("o-1")))
    books.run("big", "n-0", of="tflops=50,vram=10g").run("small", "o-0", of="tflops=60,vram=9g")
    found = plan(books)
    assert isinstance(found, Consolidation)
    assert [move.gap for move in found.moves] == [False]


def test_quotas_do_not_keep_anybody_from_moving():
    quotas = Quotas({"team": Quota(total_requests=Caps(80_000), max_workers=2)})
    books = two_nodes().run("a", "n-0", of=PART).run("b", "o-0", of=PART)
    assert isinstance(plan(books, rules=Rules(quotas=quotas)), Consolidation)


def test_the_cpu_of_those_who_move_counts():
    books = Books(
        Node("n", 8_000, 2**40, (a_card("n-0"), a_card("n-1"))), Node("o", 8_000, 2**40, (a_card("o-0"),))
    ).run("a", "n-0", of=f"{PART},cpu=6")
    found = plan(books, "gpu=2,cpu=4")
    assert moves(found) == [("a", "o", "o-0")]
    assert isinstance(plan(books, "gpu=2,cpu=9"), NoConsolidation)


def test_a_node_that_takes_no_work_gives_and_gets_nothing():
    books = Books(
        a_node("n", a_card("n-0"), a_card("n-1")), a_node("o", a_card("o-0"), a_card("o-1"), cordoned=True)
    ).run("a", "n-0", of=PART)
    refused = plan(books)
    assert isinstance(refused, NoConsolidation)
    assert refused.code is Code.NO_MOVES_HELP


def test_the_models_that_are_wanted_are_freed_and_the_others_filled():
    cards = {model: [Gpu(f"{model}-{k}", k, model=model) for k in range(2)] for model in ("A100", "T4")}
    books = Books(*(Node(f"n-{model}", 64_000, 2**40, tuple(gpus)) for model, gpus in cards.items()))
    books.fleet.charge(held("a", "A100-0", books.fleet))
    assert [move[1] for move in moves(plan(books, "gpu=2,gpu_model=A100"))] == ["n-T4"]


def held(uid, card, fleet, text="gpu=0.5", **facts):
    placed = None
    with trial(fleet):
        placed = Placer(fleet, Policy()).place(uid, ResourceRequirement.from_string(text))
    node = fleet.nodes[int(fleet.card_row[fleet.card_of[card]])].name
    return Allocation(
        uid, node, placed.requirement, (card,), AllocationState.BOUND, placed.charges, Claim(**facts), 0.0, 0.0
    )


# --- who stays ---


SHIELDED = {
    Shield.EXECUTOR: {"executor": True},
    Shield.NOT_BOUND: {"state": AllocationState.ASSUMED},
    Shield.GANG: {"gang": GangClaim("g", 1, 1)},
    Shield.PROTECTED: {"protected_until": NOW + 1},
    Shield.PRIORITY: {"priority": 7},
}


@pytest.mark.parametrize("reason", SHIELDED)
def test_who_is_shielded_stays(reason):
    books = two_nodes().run("a", "n-0", of=PART, **SHIELDED[reason]).run("b", "o-0", of=PART, **SHIELDED[reason])
    refused = plan(books, up_to=6)
    assert isinstance(refused, NoConsolidation)
    assert refused.stays == {reason: 2}
    books.run("c", "n-1", of=PART)
    books.fleet.release("a")
    assert [move[0] for move in moves(plan(books, up_to=6))] == ["c"]


def test_a_disruption_budget_lets_only_so_many_move():
    books = Books(*(a_node(f"n{k}", a_card(f"n{k}-0"), a_card(f"n{k}-1")) for k in range(3)))
    for k in range(3):
        books.run(f"r{k}", f"n{k}-0", of="tflops=30,vram=5g", workload="web")
    one = Budgets({("team", "web"): 1})
    assert isinstance(plan(books, units=1, budgets=one), Consolidation)
    refused = plan(books, units=2, budgets=one)
    assert refused.stays == {Shield.BUDGET: 2}
    assert isinstance(plan(books, units=2, budgets=Budgets({("team", "web"): 2})), Consolidation)


def test_who_has_no_room_elsewhere_stays():
    books = two_nodes().run("a", "n-0", of="tflops=90,vram=15g").run("b", "o-0", of="tflops=90,vram=15g")
    books.run("c", "o-1", of="tflops=90,vram=15g").run("d", "n-1", of=PART)
    refused = plan(books)
    assert refused.stays == {Shield.NOWHERE: 3}


def test_who_may_run_on_one_node_only_stays_there():
    terms = NodeAffinity(required=((Expression(NODE_NAME, Operator.IN, ("n",)),),))
    pinned = ResourceRequirement(0, 0, 1, nodes=terms)
    books = two_nodes()
    books.fleet.charge(
        Allocation("a", "n", pinned, ("n-0",), AllocationState.BOUND, claim=Claim(), assumed_at=0.0, bound_at=0.0)
    )
    books.run("b", "o-0", of=PART)
    found = plan(books)
    assert [move[0] for move in moves(found)] == ["b"]


def test_room_that_is_kept_for_others_is_nobodys_target():
    books = two_nodes().run("a", "n-0", of=PART).run("b", "o-0", of=PART)
    kept = Nomination(Request("later", ResourceRequirement.of(gpu=1)), "o", 0.0, ("o-1",), hold=True)
    found = plan(books, nominations=Nominations((kept,)))
    assert [unit.node for unit in found.units] == ["n"]
    assert isinstance(
        plan(
            books,
            nominations=Nominations(
                (kept, Nomination(Request("x", ResourceRequirement.of(gpu=1)), "n", 0.0, ("n-1",)))
            ),
        ),
        NoConsolidation,
    )


@pytest.mark.parametrize(("text", "units", "field"), [("gpu=0.5", 1, "resreq"), ("gpu=1", 0, "count")])
def test_only_whole_cards_and_a_sensible_number_are_taken(text, units, field):
    with pytest.raises(InvalidRequest) as error:
        consolidate(Fleet([a_node("n")]), Rules(), wanted(text), units, NOW)
    assert error.value.field == field


# --- against brute force ---


TEXTS = ("gpu=1", "gpu=0.2", "gpu=0.3", "gpu=0.5", "gpu=0.7", "cpu=3,gpu=0.4", "gpu=2,percent=50")


def some_books(rng):
    nodes = [
        Node(
            f"n{k}", 8_000, 2**40, tuple(Gpu(f"n{k}-{c}", c, model=rng.choice("AB")) for c in range(rng.randint(2, 3)))
        )
        for k in range(rng.randint(2, 3))
    ]
    fleet = Fleet(nodes)
    placer = Placer(fleet, Policy(strategy="spread"))
    for number in range(rng.randint(3, 9)):
        placed = placer.place(f"r{number}", ResourceRequirement.from_string(rng.choice(TEXTS)))
        if placed is not None:
            fleet.release(placed.id)
            claim = None if rng.random() < 0.15 else Claim(priority=rng.choice((0, 0, 3)))
            state = AllocationState.BOUND
            fleet.charge(
                Allocation(
                    placed.id, placed.node, placed.requirement, placed.gpus, state, placed.charges, claim, 0.0, 0.0
                )
            )
    books = Books.__new__(Books)
    books.fleet = fleet
    return books


def brute(fleet, asked, units):
    """The least cost over all sets of cards to free, each tried in full; None if there is no way."""
    best = None
    movable = {
        a.id
        for a in fleet.ledger.values()
        if a.claim is not None and Placer(fleet, Policy("drf", "best-fit")).room(a.requirement).any()
    }
    ways = []
    for row, node in enumerate(fleet.nodes):
        cards = range(len(node.gpus))
        sets = [tuple(c for c in cards if mask >> c & 1) for mask in range(1 << len(node.gpus))]
        ways.append([(row, count, freed) for count in range(units + 1) for freed in (sets if count else [()])])
    for way in product(*ways):
        if sum(count for _, count, _ in way) != units:
            continue
        freed = {fleet.cards[fleet.cards_on(row).start + c].uuid for row, _, cards in way for c in cards}
        leaving = [a for a in fleet.ledger.values() if freed & set(a.gpus)]
        if any(a.id not in movable for a in leaving):
            continue
        cost = MoveCost(
            max((a.claim.priority for a in leaving), default=0),
            len(leaving),
            sum(fleet.resources(a.requirement).gpu_milli for a in leaving),
        )
        if (best is None or cost < best) and works(fleet, asked, way, leaving):
            best = cost
    return best


def works(fleet, asked, way, leaving):
    with trial(fleet):
        for allocation in leaving:
            fleet.release(allocation.id)
        for row, count, freed in way:
            for number in range(count):
                first = fleet.cards_on(row).start
                idle = [c for c in range(len(fleet.nodes[row].gpus)) if not fleet.holders[first + c]]
                idle = [c for c in idle if fleet.cards[first + c].model in (asked.cards.models or "AB")]
                taken = sorted(idle, key=lambda c: (c not in freed, c))[: asked.gpu_count]
                if len(taken) < asked.gpu_count or fleet.cpu_free[row] < asked.cpu_milli:
                    return False
                uuids = tuple(fleet.cards[first + c].uuid for c in taken)
                fleet.charge(Allocation(f"u-{row}-{number}", fleet.nodes[row].name, asked, uuids))
        placer = Placer(fleet, Policy(strategy="best-fit"))
        for a in sorted(
            leaving, key=lambda a: (-fleet.resources(a.requirement).gpu_milli, -a.requirement.cpu_milli, a.id)
        ):
            if placer.place(a.id, a.requirement) is None:
                return False
    return True


@pytest.mark.parametrize("seed", range(120))
def test_the_plan_is_the_cheapest_there_is(seed):
    rng = random.Random(seed)
    books = some_books(rng)
    text, units = rng.choice(("gpu=1", "gpu=2", "gpu=3", "cpu=6,gpu=2", "gpu=2,gpu_model=A")), rng.randint(1, 2)
    expected = brute(books.fleet, ResourceRequirement.from_string(text), units)
    found = plan(books, text, units, tries=100_000)
    assert isinstance(found, Consolidation) == (expected is not None)
    if expected is not None:
        assert (found.cost, found.least) == (expected, True)


def test_the_brute_force_meets_every_kind_of_answer():
    """The cases above are not all of one kind."""
    kinds = set()
    for seed in range(120):
        rng = random.Random(seed)
        books = some_books(rng)
        text, units = rng.choice(("gpu=1", "gpu=2", "gpu=3", "cpu=6,gpu=2", "gpu=2,gpu_model=A")), rng.randint(1, 2)
        found = plan(books, text, units, tries=1)
        kinds.add(min(3, len(found.moves)) if isinstance(found, Consolidation) else "none")
        kinds.add("one by one" if isinstance(found, Consolidation) and not found.least else "exact")
    assert kinds >= {0, 1, 2, "none", "exact"}


def test_what_is_decided_for_one_unit_is_fixed_for_the_next_until_the_trial_ends():
    books = Books(*(a_node(name, *(a_card(f"{name}-{k}") for k in range(3))) for name in "no"))
    books.run("moves", "n-0", of=PART).run("stays", "o-2", of=PART)
    look = MoveContext.of(books.fleet, Rules(), MoveQuestion(wanted("gpu=1"), 1, NOW))
    holders = at_once(MoveHolders.read(look, books.fleet.ledger.values()))
    first, second = books.fleet.ledger["moves"], books.fleet.ledger["stays"]
    assert [holders.of(row, mask) for row, mask in ((0, 1), (1, 4), (1, 3))] == [[first], [second], []]
    with holders.trial():
        holders.fix(
            MovePlan((Choice("n", ("n-0", "n-2"), charges=()),), (Move(first, Choice("o", ("o-1",), charges=())),))
        )
        assert holders.stays.tolist() == [0b101, 0b010]
        assert [holders.of(0, 1), holders.of(1, 4)] == [[], [second]]
    assert holders.stays.tolist() == [0, 0]
    assert holders.of(0, 1) == [first]


LOW, HIGH = "tflops=30,vram=4g", "tflops=10,vram=9g"
"""Two sizes of parts; neither fits where just the other one fits."""
BESIDE = {LOW: "tflops=65,vram=11g", HIGH: "tflops=85,vram=6g"}
"""What leaves room on a card for one part of a size."""


@settings(max_examples=60)
@given(
    st.lists(st.tuples(st.sampled_from([LOW, HIGH]), st.sampled_from([0, 0, 1])), min_size=2, max_size=5),
    st.lists(st.sampled_from([LOW, HIGH]), min_size=1, max_size=4),
    st.integers(1, 2),
    st.integers(1, 3),
    st.sampled_from([1, 2, 1000]),
)
def test_cards_are_freed_by_as_many_as_find_a_place_and_each_place_is_taken_once(movers, holes, size, units, tries):
    """Whether all is planned at once, or one unit after the other."""
    books, numbers = Books(), range(0, len(movers), size)
    freed = [a_node(f"n{n}", *(a_card(f"n{n}-{k}", 40, 10) for k in range(len(movers[n : n + size])))) for n in numbers]
    books = Books(*freed, *(a_node(f"o{n}", a_card(f"o{n}-0")) for n in range(len(holes))))
    for (text, priority), card in zip(movers, (gpu for node in freed for gpu in node.gpus), strict=True):
        books.run(f"on {card.uuid}", card.uuid, of=text, priority=priority)
    for n, text in enumerate(holes):
        books.run(f"stays {n}", f"o{n}-0", of=BESIDE[text], executor=True)
    milli = {text: books.fleet.resources(ResourceRequirement.from_string(f"gpu=1,{text}")).gpu_milli for text in BESIDE}
    found = plan(books, "gpu=1", units, tries=tries)
    for highest in sorted({priority for _, priority in movers}):
        low, high = (
            min(holes.count(text), sum(each == text and priority <= highest for each, priority in movers))
            for text in (LOW, HIGH)
        )
        if low + high >= units:
            few = min(low, units)
            assert found.cost == MoveCost(highest, units, few * milli[LOW] + (units - few) * milli[HIGH])
            assert found.least or tries < 1000
            assert len({move.allocation.id for move in found.moves}) == units
            return
    assert isinstance(found, NoConsolidation)
    assert (found.rejections[0].needed, found.rejections[0].had) == (units, low + high)


@pytest.mark.parametrize("seed", range(10))
def test_large_plans_can_be_carried_out_step_by_step(seed):
    rng = random.Random(seed)
    fleet = Fleet([Node(f"n{k:02}", 64_000, 2**40, tuple(Gpu(f"n{k:02}-{c}", c) for c in range(8))) for k in range(12)])
    placer, number = Placer(fleet, Policy(strategy="spread")), 0
    while fleet.gpu_free.sum() > 20:
        number += 1
        placed = placer.place(str(number), ResourceRequirement.from_string(rng.choice(TEXTS)))
        if placed is None:
            continue
        fleet.release(placed.id)
        claim = Claim(priority=rng.choice((0, 5)))
        fleet.charge(
            Allocation(
                placed.id,
                placed.node,
                placed.requirement,
                placed.gpus,
                AllocationState.BOUND,
                placed.charges,
                claim,
                0.0,
                0.0,
            )
        )
    books = Books.__new__(Books)
    books.fleet = fleet
    for text, units in (("gpu=4", 3), ("gpu=8", 1), ("gpu=8", 2), ("cpu=30,gpu=6", 2)):
        plan(books, text, units)


@pytest.mark.parametrize("seed", range(20))
def test_units_are_spread_over_nodes_at_least_cost(seed):
    rng = random.Random(seed)
    costs = np.array(
        [[0, *(rng.choice((NEVER, rng.randint(0, 9))) for _ in range(2))] for _ in range(4)], dtype=np.int64
    )
    for units in (1, 3, 5):
        ways = [way for way in product(range(3), repeat=4) if sum(way) == units]
        sums = [sum(int(costs[row, n]) for row, n in enumerate(way)) for way in ways]
        found = share_out(costs, units)
        if min(sums) >= NEVER:
            assert len(found) == 0
        else:
            assert sum(found) == units
            assert sum(int(costs[row, n]) for row, n in enumerate(found)) == min(sums)
