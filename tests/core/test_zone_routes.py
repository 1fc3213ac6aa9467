"""Every way to a place knows zones: finding, gangs, preemption, what is kept for others, moves, sessions."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace

import pytest
from tests.core.zones import kubelet, machine

from ullage.core.allocator import FleetAllocator
from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.cycle import schedule
from ullage.core.evicting.moves import Consolidation
from ullage.core.evicting.preemption import NoPreemption, Preemption
from ullage.core.gang import Gangs
from ullage.core.placing.candidates import find
from ullage.core.placing.decision import Choice, Refusal
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.placing.rules import Rules
from ullage.core.placing.selection import place, select
from ullage.core.sharing.plan import Start, Unbind
from ullage.core.sharing.world import Demand, ExecutorPhase, ExecutorView, World
from ullage.model.alignment import Alignment, ContainerNeeds
from ullage.model.allocation import Allocation
from ullage.model.claim import Claim, GangClaim, Request
from ullage.model.node import Node
from ullage.model.oversubscription import Oversubscription
from ullage.model.queue import Queue
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement
from ullage.model.topology import ZonePolicy

pytestmark = pytest.mark.timeout(900)

SINGLE = "numa=single-numa-node"


def allocator(*nodes: Node, **rules: object) -> FleetAllocator:
    found = FleetAllocator(Fleet(nodes), Rules(**rules))  # type: ignore[arg-type]  # facts by name
    found.set_ready()
    return found


def asked(text: str, uid: str = "r", **claim: object) -> Request:
    return Request(uid, ResourceRequirement.from_string(text), Claim(**claim))  # type: ignore[arg-type]  # facts by name


def alloc(books: FleetAllocator, text: str, uid: str, **claim: object) -> Allocation:
    found = books.alloc(asked(text, uid, **claim), 0.0)
    assert isinstance(found, Allocation), found
    return found


def hold(books: FleetAllocator, *gpus: str, uid: str | None = None, text: str = "", **claim: object) -> Allocation:
    """Somebody has these cards, and what else the text says."""
    uid = uid or f"on {' '.join(gpus)}"
    found = books.bind(asked(f"gpu={len(gpus)}{text}", uid, **claim), gpus, 0.0)
    assert isinstance(found, Allocation), found
    return found


def assert_books_are_true(books: FleetAllocator) -> None:
    """No CPU is held twice, and all that is free is what the ledger leaves."""
    fleet = books.fleet
    held = [(a.node, cpu) for a in fleet.ledger.values() if a.placement for cpu in a.placement.cpus]
    assert len(held) == len(set(held))
    assert (Fleet(fleet.nodes, fleet.ledger.values()).board.supplies == fleet.board.supplies).all()


# --- finding ---


def test_each_of_many_nodes_is_judged_by_its_own_zones():
    books = allocator(*(machine(f"n{number}") for number in range(10)))
    for number in range(9):
        hold(books, *(f"n{number}-g{card}" for card in (0, 1, 4, 5)))
    hold(books, *(f"n9-g{card}" for card in range(4)))
    request = asked(f"gpu=4,{SINGLE}")
    found = find(books.fleet, books.rules, request)
    assert found.by_node == {"n9": tuple(f"n9-g{card}" for card in range(4, 8))}
    assert select(books.fleet, books.rules, request, found.by_node) == place(books.fleet, books.rules, request)
    refused = select(books.fleet, books.rules, request, {"n0": ("n0-g2", "n0-g3", "n0-g6", "n0-g7")})
    assert isinstance(refused, Refusal)
    assert [(each.of_zones, each.node) for each in refused.rejections] == [(True, "n0")]


@pytest.mark.parametrize("seed", range(6))
def test_the_stages_find_what_is_chosen(seed):
    chance = random.Random(seed)
    books = allocator(*(machine(f"n{number}", cpus=(4, 4), threads=2) for number in range(10)))
    texts = "gpu=1", "gpu=2", f"cpu=1,gpu=1,{SINGLE}", f"cpu=3,gpu=2,{SINGLE}", "gpu=4,numa=restricted"
    for number in range(40):
        text = chance.choice(texts)
        request = asked(text, str(number))
        candidates = find(books.fleet, books.rules, request)
        chosen = place(books.fleet, books.rules, request)
        assert bool(candidates.by_node) == isinstance(chosen, Choice)
        if isinstance(chosen, Choice):
            assert set(chosen.gpus) <= set(candidates.by_node[chosen.node])
            simulated = books.simulate(request).outcome
            placed = alloc(books, text, request.uid)
            assert placed.gpus == simulated.gpus == chosen.gpus
            assert placed.placement == simulated.placement == chosen.placement
    assert_books_are_true(books)


# --- parts of cards ---


def test_parts_lie_with_the_cpus_of_their_own_container():
    containers = ContainerNeeds("work", cpus=2, devices=(("gpu", 1),)), ContainerNeeds("log", cpus=2)
    part = ResourceRequirement.from_string("cpu=4,gpu=0.5")
    request = replace(part, alignment=Alignment(ZonePolicy.SINGLE_ZONE, containers))
    books = allocator(machine(cpus=(2, 8)))
    hold(books, "n-g0", "n-g1", "n-g2")  # zone 0 is broken already, and has CPUs for one container alone
    found = books.alloc(Request("r", request), 0.0)
    assert (found.gpus, found.placement.cpus) == (("n-g3",), (0, 1, 2, 3))


def test_room_for_parts_is_bounded_by_the_cpus_of_zones():
    fleet = Fleet([machine(cpus=(3, 1))])
    placer, part = Placer(fleet, Policy()), ResourceRequirement.from_string(f"cpu=2,gpu=0.25,{SINGLE}")
    assert placer.room(part).tolist() == [1]
    assert [placer.place(uid, part) is not None for uid in "ab"] == [True, False]


# --- gangs ---


@pytest.mark.parametrize("text", [f"cpu=2,gpu=2,{SINGLE}", f"cpu=3,gpu=1,{SINGLE}", "cpu=5,gpu=3,numa=restricted"])
def test_a_gang_is_as_large_as_the_zones_hold(text):
    nodes = machine("a", cpus=(4, 8)), machine("b", cpus=(6, 6), threads=2)
    single = allocator(*nodes)
    for number in itertools.count():
        if isinstance(single.alloc(asked(text, str(number)), 0.0), Refusal):
            break
    policy = Policy(strategy=single.rules.strategy_of(asked(text)).name)
    assert Placer(Fleet(nodes), policy).room(asked(text).requirement).sum() == number
    for size in (number, number + 1):
        books, gangs = allocator(*nodes), Gangs()
        for member in range(size):
            gangs.add(asked(text, str(member), gang=GangClaim("g", size, size)), 0.0)
        (outcome,) = gangs.tick(books, 0.0)
        assert len(outcome.placed) == (size if size == number else 0)
        assert_books_are_true(books)
        cpus = asked(text).requirement.cpu_milli // 1000
        assert all(len(placed.placement.cpus) == cpus for placed in outcome.placed)


def test_members_of_different_sizes_get_what_was_drafted_for_them():
    nodes = (machine(name, cards=(0, 0, 0, 0, 1), cpus=(4, 4)) for name in "ab")
    books, gangs = allocator(*nodes), Gangs()
    texts = ["cpu=5,gpu=1,numa=best-effort"] * 2 + [f"cpu=2,gpu=4,{SINGLE}"] * 2
    for number, text in enumerate(texts):
        gangs.add(asked(text, str(number), gang=GangClaim("g", 4, 4)), 0.0)
    (outcome,) = gangs.tick(books, 0.0)
    assert [len(placed.placement.cpus) for placed in outcome.placed] == [5, 5, 2, 2]
    assert [len(placed.placement.zones) for placed in outcome.placed] == [2, 2, 1, 1]
    assert_books_are_true(books)


# --- others give way ---


def fewest_victims(books: FleetAllocator, request: Request) -> int | None:
    """The size of the smallest set on one node without whom the request fits, by trying them all."""
    fleet, found = books.fleet, []
    for node in fleet.nodes:
        here = [uid for uid, held in fleet.ledger.items() if held.node == node.name]
        for size in range(len(here) + 1):
            for gone in itertools.combinations(here, size):
                with trial(fleet):
                    for uid in gone:
                        fleet.release(uid)
                    fits = find(fleet, books.rules, request, fleet.cards_on(fleet.row_of[node.name])).by_node
                if fits:
                    found.append(size)
                    break
            if found and found[-1] == size:
                break
    return min(found, default=None)


def assert_no_part_would_do(books: FleetAllocator, request: Request, found: Preemption) -> None:
    """All of the victims are needed."""
    fleet, row = books.fleet, books.fleet.row_of[found.choice.node]
    for stays in found.uids:
        with trial(fleet):
            for uid in found.uids:
                if uid != stays:
                    fleet.release(uid)
            assert not find(fleet, books.rules, request, fleet.cards_on(row)).by_node


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("promised", [False, True], ids=["by sums", "one by one"])
def test_the_victims_are_those_of_a_zone_and_as_few_as_can_be(seed, promised):
    chance = random.Random(seed)
    compared = 0
    for _ in range(8):
        owner = chance.choice([None, kubelet("single-numa-node"), kubelet("restricted")])
        nodes = [machine(name, cards=(0, 0, 0, 1, 1, 1), cpus=(4, 4), kubelet=owner) for name in "ab"]
        books = allocator(*nodes)
        for number in range(20):
            text = chance.choice(["gpu=1", "cpu=1,gpu=1", "cpu=2,gpu=1", "cpu=1,gpu=2"])
            request = asked(f"{text},numa=best-effort", str(number), namespace="low")
            cards = chance.sample(
                [f"{name}-g{card}" for name in chance.choice("ab") for card in range(6)], request.requirement.gpu_count
            )
            with_cards = books.bind(request, cards, 0.0) if chance.random() < 0.8 else books.alloc(request, 0.0)
            assert isinstance(with_cards, Allocation | Refusal)
        if promised:
            books.rules = replace(books.rules, oversubscription={"": Oversubscription()})
        text = chance.choice(
            [f"cpu=3,gpu=1,{SINGLE}", f"cpu=1,gpu=3,{SINGLE}", f"cpu=4,gpu=2,{SINGLE}", "cpu=5,gpu=4,numa=restricted"]
        )
        wanted = asked(text, "wanted", namespace="high", priority=5)
        found, least = books.preempt(wanted, 0.0), fewest_victims(books, wanted)
        if least is None:
            assert isinstance(found, NoPreemption)
            continue
        assert isinstance(found, Preemption), (text, found)
        assert len(found.victims) == least or promised
        assert_no_part_would_do(books, wanted, found)
        compared += least > 0
        for uid in found.uids:
            books.dealloc(uid, 1.0)
        placed = books.alloc(wanted, 1.0)
        assert isinstance(placed, Allocation)
        assert_books_are_true(books)
    assert compared > 1


def test_what_a_nominated_request_is_to_have_in_a_zone_is_kept_until_all_have_left():
    books = allocator(replace(machine(cpus=(4, 4)), cpu_milli=64_000))
    for number in range(4):
        hold(books, f"n-g{number}", text=f",cpu=1,{SINGLE}", uid=str(number))
    hold(books, "n-g4", "n-g5", uid="other", text=f",cpu=4,{SINGLE}", priority=9)
    wanted = asked(f"cpu=4,gpu=2,{SINGLE}", "wanted", priority=5)
    found = books.preempt(wanted, 0.0)
    assert isinstance(found, Preemption)
    assert sorted(found.uids) == ["0", "1", "2", "3"]
    books.nominate(found.nomination(wanted, 0.0))
    for uid in found.uids:
        books.release(uid)
    for uid in sorted(set(found.uids) - {f"{gpu[-1]}" for gpu in found.choice.gpus}):
        books.dealloc(uid, 1.0)  # whose cards it does not need, but their CPUs
    assert isinstance(books.alloc(asked(f"cpu=1,gpu=1,{SINGLE}", "thief"), 1.0), Refusal)
    for uid in found.uids:
        books.dealloc(uid, 2.0)
    assert books.alloc(wanted, 3.0).placement.zones == (0,)
    assert_books_are_true(books)


# --- moves ---


@pytest.mark.parametrize("text", [f"gpu=4,{SINGLE}", f"cpu=4,gpu=2,{SINGLE}"])
def test_moves_open_a_zone_and_can_be_carried_out(text):
    books = allocator(*(machine(name, cpus=(4, 4)) for name in "abc"))
    for name in "ab":
        for card in (0, 1, 4, 5):
            hold(books, f"{name}-g{card}", text=f",cpu=1,{SINGLE}")
    hold(books, *(f"c-g{card}" for card in range(5)))
    hold(books, "c-g5", text=f",cpu=4,{SINGLE}")
    request = asked(text, "wanted")
    assert books.alloc(request, 0.0).code is Code.NOT_ALIGNED
    plan = books.consolidate(request, 1, 1.0)
    assert isinstance(plan, Consolidation)
    assert plan.least
    assert len(plan.moves) == 2
    assert len({move.allocation.node for move in plan.moves}) == 1
    for move in plan.moves:
        assert not move.gap
        books.dealloc(move.allocation.id, 2.0)
        back = books.bind(Request(f"{move.allocation.id} again", move.allocation.requirement), move.to.gpus, 2.0)
        assert isinstance(back, Allocation), back
        assert back.placement.cpus == move.to.placement.cpus
    assert books.alloc(request, 3.0).node == plan.units[0].node
    assert_books_are_true(books)


def test_moves_where_zones_have_more_cpus_than_there_are_cards():
    books = allocator(
        machine("a", cards=(0, 0), cpus=(8,), zones=(0,)), machine("b", cards=(0,), cpus=(8,), zones=(0,))
    )
    for uid, gpu in (("last", "a-g1"), ("first", "a-g0")):
        hold(books, gpu, uid=uid, text=f",cpu=4,{SINGLE}")
    books.dealloc("first", 0.0)
    plan = books.consolidate(asked("gpu=2"), 1, 1.0)
    assert isinstance(plan, Consolidation)
    assert [(move.allocation.id, move.to.gpus) for move in plan.moves] == [("last", ("b-g0",))]
    assert plan.moves[0].to.placement.cpus == (0, 1, 2, 3)


# --- sessions ---


def test_executors_of_a_session_lie_in_a_zone_each():
    fleet = Fleet([machine(cpus=(4, 4))])
    demand = Demand("s", 0, ResourceRequirement.from_string(f"cpu=2,gpu=2,{SINGLE}"), pending=9)
    plan = schedule(World(fleet, (demand,), (), (Queue("default"),)), Policy(), 0.0)
    started = [action.allocation for action in plan.actions if isinstance(action, Start)]
    assert sorted((a.placement.zones, len(a.placement.cpus)) for a in started) == [((0,), 2)] * 2 + [((1,), 2)] * 2
    assert len({cpu for a in started for cpu in a.placement.cpus}) == 8


def test_a_session_reclaims_one_zone():
    fleet, views = Fleet([machine(cpus=(4, 4))]), []
    one = ResourceRequirement.from_string(f"cpu=1,gpu=1,{SINGLE}")
    placer = Placer(fleet, Policy())
    for number in range(8):
        assert placer.place(f"low/{number}", one) is not None
        views.append(ExecutorView(f"low/{number}", ExecutorPhase.BUSY, one, "low", bound_at=(number * 3) % 8))
    low = Demand("low", 0, one, running=8)
    high = Demand("high", 1, ResourceRequirement.from_string(f"cpu=2,gpu=2,{SINGLE}"), pending=2, priority=5)
    plan = schedule(World(fleet, (low, high), tuple(views), (Queue("default"),)), Policy(reclaim_grace_s=None), 100.0)
    gone = [action.executor for action in plan.actions if isinstance(action, Unbind) and action.eviction]
    assert gone == ["low/5", "low/7"]  # low/2, who is newer than the last, lies in the other zone
    assert {fleet.ledger[uid].placement.zones for uid in gone} == {(1,)}


def test_a_zone_that_is_promised_is_not_given_to_somebody_else():
    now = Fleet([machine(cpus=(4, 4))])
    four = ResourceRequirement.from_string(f"cpu=4,gpu=1,{SINGLE}")
    placer, outlook = Placer(now, Policy()), Placer(now.copy(), Policy())
    first = outlook.place("promised", four)
    leaves = replace(
        first, id="leaves", gpus=("n-g7",), placement=replace(first.placement, cpus=(4, 5, 6, 7), devices=())
    )
    now.charge(leaves)
    assert first.placement.zones == (0,)
    assert placer.place("r", four, outlook) is None  # where it fits now somebody is promised the CPUs
    now.release("leaves")
    assert placer.place("r", four, outlook).placement.zones == (1,)
    assert (now.board.supplies >= outlook.fleet.board.supplies).all()
