"""Whom reclaim chooses, against trying the claimant again after every victim."""

from __future__ import annotations

from unittest import mock

from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import GIB, frozen

from ullage.core import yielding
from ullage.core.entitlement import Leaves, application_limits, place_unit
from ullage.core.fleet import Fleet
from ullage.core.placement import Placer
from ullage.core.policy import Policy
from ullage.core.reclaim import Reclaim
from ullage.core.shares import ShareTree
from ullage.core.world import Demand, ExecutorView, Phase, World
from ullage.core.yielding import Victim
from ullage.model.allocation import Allocation
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import IsolationPolicy
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement

NOW = 1000.0
PARTS = ("cpu=1,gpu=0.5,isolation=soft", "cpu=1,gpu=0.5,isolation=hard", "cpu=1,gpu=0.3", "cpu=1,gpu=1")
TEXTS = ("cpu=1", "cpu=1,gpu=1", "cpu=1,gpu=2", "cpu=2,gpu=0.5", "cpu=1,gpu=2,tflops=40,vram=1g")


@st.composite
def worlds(draw: st.DrawFn, texts: tuple[str, ...] = TEXTS, **card: object) -> World:
    """Nodes that sessions fill as far as they can, and a session without anything."""
    sizes = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4))
    fleet = Fleet(
        Node(
            f"n{n}",
            8000,
            64 * GIB,
            tuple(Gpu(f"n{n}-{k}", k, vram_bytes=16 * GIB, compute_gflops=100_000, **card) for k in range(cards)),
        )
        for n, cards in enumerate(sizes)
    )
    placer, views, demands = Placer(fleet, Policy(strategy=draw(st.sampled_from(["best-fit", "spread"])))), [], []
    for number in range(draw(st.integers(1, 3))):
        asked, batch = ResourceRequirement.from_string(draw(st.sampled_from(texts))), draw(st.sampled_from([1, 1, 2]))
        demand = Demand(f"s{number}", number, asked, priority=draw(st.integers(0, 2)), batch_size=batch)
        held = 0
        for unit in range(draw(st.integers(0, 8))):
            placed = place_unit(placer, demand, f"s{number}/{unit}", batch)
            for rank, allocation in enumerate(placed or ()):
                phase = draw(st.sampled_from([Phase.BUSY, Phase.BUSY, Phase.VACANT]))
                gang = f"s{number}/{unit}" if batch > 1 else None
                until = draw(st.sampled_from([0.0, 0.0, 0.0, NOW + 1]))
                facts = {"bound_at": float(held + rank), "protected_until": until}
                views.append(ExecutorView(allocation.id, phase, asked, demand.session, gang, **facts))
            held += len(placed or ())
        demands.append(Demand(f"s{number}", number, asked, 0, held, priority=demand.priority, batch_size=batch))
    asked = ResourceRequirement.from_string(draw(st.sampled_from(texts)))
    demands.append(Demand("claim", 9, asked, 9, priority=5, batch_size=draw(st.integers(1, 3))))
    return World(fleet, tuple(demands), tuple(views), (Queue("default"),))


def reclaim_of(world: World) -> Reclaim:
    held, made = world.held(), Leaves(world.fleet)
    leaves = {
        demand.session: made.of(demand, held=len(held.get(demand.session, ())) // demand.batch_size)
        for demand in world.demands
    }
    tree = ShareTree(world.fleet.total, world.queues, leaves.values(), application_limits=application_limits(world))
    return Reclaim(world, tree, leaves, {})


def the_old_way(reclaim: Reclaim, claimant: Demand, outlook: Placer, vacant: Placer) -> list[Victim] | None:
    """Victims in order until a unit is placed, then without each of them that is not needed."""

    def fits(gone: list[Victim]) -> bool:
        mark = outlook.fleet.checkpoint()
        for victim in gone:
            for member in victim.members:
                outlook.fleet.release(member.id)
        placed = place_unit(outlook, claimant, "trial", claimant.batch_size)
        outlook.fleet.rollback(mark)
        return placed is not None

    useful, rows = vacant.room(claimant.requirement) > 0, outlook.fleet.row_of
    chosen: list[Victim] = []
    for victim in reclaim._in_order(claimant, NOW, overdue=True):
        nodes = [outlook.fleet.ledger[member.id].node for member in victim.members]
        if any(useful[rows[node]] for node in nodes):
            chosen.append(victim)
            if fits(chosen):
                break
    else:
        return None
    for victim in reversed(chosen):
        fewer = [other for other in chosen if other is not victim]
        if fits(fewer):
            chosen = fewer
    return chosen


@settings(max_examples=400)
@given(worlds())
def test_victims_are_those_of_trying_again_after_each(world):
    assert_as_the_old_way(world)


@settings(max_examples=200)
@given(worlds(PARTS, isolation_policy=IsolationPolicy.DYNAMIC), st.sampled_from([1, 2]))
def test_cards_that_keep_the_mode_of_their_users_and_many_rounds_change_nothing(world, few):
    with mock.patch.object(yielding, "_FEW", few):
        assert_as_the_old_way(world)


def assert_as_the_old_way(world: World) -> None:
    claimant, policy = world.demands[-1], Policy()
    books = Fleet(world.fleet.nodes, world.fleet.ledger.values())
    vacant = Placer(books.emptied(), policy)
    wanted = the_old_way(reclaim_of(world), claimant, Placer(books.copy(), policy), vacant)
    outlook = Placer(books, policy)
    before, untouched = dict(books.ledger), frozen(books)
    found = reclaim_of(world).claim(claimant, outlook, vacant, NOW, "new", overdue=True)
    if found is None:
        event("nobody")
        assert wanted is None
        assert frozen(books) == untouched
        return
    victims, placed = found
    event(f"{len(victims)} victims")
    assert list(victims) == wanted
    assert len(placed) == claimant.batch_size
    gone = {member.id for victim in victims for member in victim.members}
    assert books.ledger == {uid: a for uid, a in before.items() if uid not in gone} | {a.id: a for a in placed}
    assert isinstance(placed[0], Allocation)
    assert frozen(books) == frozen(Fleet(books.nodes, books.ledger.values()))
