"""The victims that reclaim chooses, against trying the claimant again after every victim."""

from __future__ import annotations

from dataclasses import replace
from unittest import mock

import pytest
from hypothesis import event, given, settings
from hypothesis import strategies as st
from tests.books import GIB, frozen

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.evicting import reclaim, reclaim_victims
from ullage.core.evicting.idle import Idle
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.evicting.surplus import surplus
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import Leaves, application_limits, place_unit
from ullage.core.sharing.plan import Keep, Unbind
from ullage.core.sharing.shares import ShareTree
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, Promise, World
from ullage.model.allocation import Allocation, Charge
from ullage.model.gpu import Gpu
from ullage.model.node import Node
from ullage.model.part import Isolation, IsolationPolicy
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code
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
                phase = draw(st.sampled_from([ExecutorPhase.BUSY, ExecutorPhase.BUSY, ExecutorPhase.VACANT]))
                gang = f"s{number}/{unit}" if batch > 1 else None
                until = draw(st.sampled_from([0.0, 0.0, 0.0, NOW + 1]))
                facts = {"bound_at": float(held + rank), "protected_until": until}
                views.append(ExecutorView(allocation.id, phase, asked, demand.session, gang, **facts))
            held += len(placed or ())
        demands.append(Demand(f"s{number}", number, asked, 0, held, priority=demand.priority, batch_size=batch))
    asked = ResourceRequirement.from_string(draw(st.sampled_from(texts)))
    demands.append(Demand("claim", 9, asked, 9, priority=5, batch_size=draw(st.integers(1, 3))))
    return World(fleet, tuple(demands), tuple(views), (Queue("default"),))


def reclaim_of(world: World, deserved: dict[str, int] | None = None) -> Reclaim:
    held, made = world.held(), Leaves(world.fleet)
    leaves = {
        demand.session: made.of(demand, held=len(held.get(demand.session, ())) // demand.batch_size)
        for demand in world.demands
    }
    tree = ShareTree(world.fleet.total, world.queues, leaves.values(), application_limits=application_limits(world))
    return Reclaim(world, tree, leaves, deserved or {})


def test_cards_with_few_holders_are_emptied_first():
    """Two cards are needed, and the session may lose two executors: a card that two share would cost it both."""
    half, cards = ResourceRequirement.from_string("cpu=1,gpu=0.5"), tuple(Gpu(f"g{n}", n) for n in range(3))
    fleet, views = Fleet([Node("n", 8000, 64 * GIB, cards)]), []
    for number, card in enumerate(("g0", "g1", "g2", "g2")):
        fleet.charge(Allocation(f"e{number}", "n", half, (card,), charges=(Charge(500, 0),)))
        views.append(ExecutorView(f"e{number}", ExecutorPhase.BUSY, half, "b", bound_at=float(number)))
    claimant = Demand("a", 2, ResourceRequirement.from_string("cpu=1,gpu=2"), 1)
    world = World(fleet, (Demand("b", 1, half, 0, 4), claimant), tuple(views))
    plan = schedule(world, Policy(), NOW, deserved={"a": 1, "b": 2})
    assert {action.executor for action in plan.actions if isinstance(action, Unbind)} == {"e0", "e1"}


def world_of(nodes: list[Node], demands: list[Demand], *held: tuple[ExecutorView, str, tuple[str, ...]]) -> World:
    """Executors on these nodes and cards."""
    fleet = Fleet(nodes)
    for view, node, cards in held:
        fleet.charge(Allocation(view.id, node, view.requirement, cards))
    return World(fleet, tuple(demands), tuple(view for view, _, _ in held))


def test_members_of_a_gang_find_victims_one_by_one_where_the_newest_do_not_help():
    """The newest victim is on a node whose cards somebody keeps; the session may lose two."""
    one, card = ResourceRequirement.of(cpu=1), ResourceRequirement.of(cpu=1, gpu=1)
    nodes = [
        Node(name, 2000, GIB, tuple(Gpu(f"{name}-{number}", number) for number in range(2))) for name in ("n0", "n1")
    ]
    both = ResourceRequirement.of(cpu=1, gpu=2)
    demands = [Demand("s", 1, one, 0, 3), Demand("k", 2, both, 0, 1), Demand("gang", 3, card, 2, batch_size=2)]
    world = world_of(
        nodes,
        demands,
        *((ExecutorView(f"e{n}", ExecutorPhase.BUSY, one, "s", bound_at=float(n)), f"n{n // 2}", ()) for n in range(3)),
        (ExecutorView("k0", ExecutorPhase.BUSY, both, "k"), "n1", ("n1-0", "n1-1")),
    )
    plan = schedule(world, Policy(), NOW, deserved={"s": 1, "k": 1, "gang": 2})
    assert {action.executor for action in plan.actions if isinstance(action, Unbind)} == {"e0", "e1"}


def test_a_gang_that_lies_on_the_node_goes_where_the_newest_lies_there_in_part():
    """The session may lose one gang, and the newest one frees a half of what is needed there."""
    one = ResourceRequirement.of(cpu=1)
    demands = [Demand("s", 1, one, 0, 4, batch_size=2), Demand("wide", 2, ResourceRequirement.of(cpu=2), 1)]
    views = [
        ExecutorView(f"e{n}", ExecutorPhase.BUSY, one, "s", f"g{n // 2}", bound_at=float(n // 2)) for n in range(4)
    ]
    held = [(view, "n1" if view.id == "e3" else "n0", ()) for view in views]
    world = world_of([Node("n0", 3000, GIB), Node("n1", 1000, GIB)], demands, *held)
    plan = schedule(world, Policy(), NOW, deserved={"s": 2, "wide": 1})
    assert {action.executor for action in plan.actions if isinstance(action, Unbind)} == {"e0", "e1"}


def test_an_executor_never_gives_way_to_its_own_session():
    one = ResourceRequirement.of(cpu=1)
    leaving = ExecutorView(
        "e0", ExecutorPhase.LEAVING, one, "a", eviction=Eviction("gone", Cause.SHARE, NOW), may_stay=True
    )
    world = world_of([Node("n", 1000, GIB)], [Demand("a", 1, one, 1, leaving=1)], (leaving, "n", ()))
    world = replace(world, promises={"a": Promise((Allocation("p", "n", one),))})
    plan = schedule(world, Policy(), NOW, deserved={"a": 1})
    assert plan.actions == (Keep("e0"),)


def test_an_executor_stays_on_a_card_that_was_given_twice_if_no_session_needs_it():
    card = ResourceRequirement.of(gpu=1)
    fleet = Fleet([Node("n", 1000, GIB, (Gpu("g", 0),))])
    for uid in ("e0", "e1"):
        fleet.charge(Allocation(uid, "n", card, ("g",)), force=True)
    goes = ExecutorView("e0", ExecutorPhase.LEAVING, card, "a", eviction=Eviction("gone", Cause.SHARE, NOW))
    views = replace(goes, may_stay=True), ExecutorView("e1", ExecutorPhase.BUSY, card, "b")
    world = World(fleet, (Demand("a", 1, card, 1, leaving=1), Demand("b", 2, card, 0, 1)), views)
    assert schedule(world, Policy(), NOW, deserved={"a": 1, "b": 1}).actions == (Keep("e0"),)


def test_a_partition_is_made_where_its_slots_are_freed_however_much_else_is():
    """The newest executors hold as much as is claimed, but their slots do not lie together."""
    card = Gpu("g", 0, "NVIDIA A100 80GB", "NVIDIA", 80 * GIB, 312_000, isolation=Isolation.PARTITIONED)
    small = ResourceRequirement.from_string("gpu=1,partition=1g.10gb")
    placer, views = Placer(Fleet([Node("n", 8000, 64 * GIB, (card,))]), Policy()), []
    for bound_at, unit in zip((6, 1, 5, 2, 4, 0, 3), range(7), strict=True):  # those of the slots 0, 2, 4, 6 came last
        placed = placer.place(f"e{unit}", small)
        assert placed is not None
        assert placed.charges[0].slot is not None
        assert placed.charges[0].slot.start == unit
        views.append(ExecutorView(placed.id, ExecutorPhase.BUSY, small, "s", bound_at=float(bound_at)))
    claimant = Demand("claim", 2, ResourceRequirement.from_string("gpu=1,partition=3g.40gb"), 1)
    world = World(placer.fleet, (Demand("s", 1, small, 0, 7), claimant), tuple(views))
    plan = schedule(world, Policy(), NOW, deserved={"s": 0, "claim": 1})
    gone = {action.executor for action in plan.actions if isinstance(action, Unbind)}
    assert gone in ({"e4", "e5", "e6"}, {"e0", "e1", "e2", "e3"})


def test_idle_executors_are_known_by_what_they_run_and_hold():
    one, two = ResourceRequirement.of(cpu=1), ResourceRequirement.of(cpu=2)
    idle = ExecutorView("e0", ExecutorPhase.IDLE, one, application="app", setup="s")
    busy = ExecutorView("e1", ExecutorPhase.BUSY, one, "a", application="other")
    known = Idle(world_of([Node("n", 4000, GIB)], [], (idle, "n", ()), (busy, "n", ())))
    same = Demand("b", 1, one, application="app", setup="s")
    assert known.kind_of(same) is not None
    for other in (replace(same, application="other"), replace(same, setup="t"), replace(same, requirement=two)):
        assert known.kind_of(other) is None
    assert known.warm(same, lambda _: True) == [idle]
    assert known.warm(same, lambda _: False) == []
    known.take(idle)
    assert list(known) == []


@pytest.mark.parametrize(
    ("facts", "taken", "leaves"),
    [
        pytest.param({"max_instances": 4, "pending": 1}, (), [], id="none at the maximum"),
        pytest.param(
            {"max_instances": 2, "pending": 1}, (), ["vacant", "new"], id="vacant ones above it, then the newest"
        ),
        pytest.param({"max_instances": 2, "pending": 1}, ("vacant",), ["new"], id="fewer if others leave already"),
        pytest.param({"max_instances": 2, "pending": 1}, ("vacant", "new"), [], id="none if enough leave"),
        pytest.param({"max_instances": 2, "pending": 1}, ("old",), ["vacant"], id="fewer if the oldest leaves already"),
        pytest.param({"max_instances": 2, "pending": 1}, ("old", "mid"), [], id="none if the oldest leave already"),
        pytest.param({"running": 3, "min_instances": 3}, ("old",), [], id="the minimum stays without those that leave"),
        pytest.param({"running": 3}, (), ["vacant"], id="those without a task for long enough"),
        pytest.param({"running": 3, "delay_release_s": 501.0}, (), [], id="not before"),
        pytest.param({"running": 3, "pending": 1}, (), [], id="not if there is a task for it"),
        pytest.param({"running": 3, "min_instances": 4}, (), [], id="not below the minimum"),
        pytest.param({"running": 3, "min_instances": 3}, (), ["vacant"], id="down to the minimum"),
        pytest.param(None, ("old",), ["vacant", "new", "mid"], id="all that do not leave yet of a closed session"),
    ],
)
def test_executors_that_their_session_does_not_need_leave(facts, taken, leaves):
    one = ResourceRequirement.of(cpu=1)
    ages = {"old": 1.0, "mid": 2.0, "vacant": 0.0, "new": 3.0}
    views = [
        ExecutorView(
            name,
            ExecutorPhase.VACANT if name == "vacant" else ExecutorPhase.BUSY,
            one,
            "s",
            since=NOW - 500,
            bound_at=bound_at,
        )
        for name, bound_at in ages.items()
    ]
    demand = None if facts is None else Demand("s", 1, one, **{"delay_release_s": 500.0, **facts})
    found = surplus(demand, views, lambda uid: uid in taken, lambda at: at <= NOW)
    assert [view.id for view in found] == leaves


def test_the_room_of_an_executor_that_stays_is_promised_to_nobody():
    one = ResourceRequirement.of(cpu=1)
    goes = ExecutorView("e0", ExecutorPhase.LEAVING, one, "a", eviction=Eviction("gone", Cause.SHARE, NOW))
    demands = [Demand("a", 1, one, leaving=1), Demand("b", 2, one, 1, waiting_since=0.0)]
    world = world_of([Node("n", 1000, GIB)], demands, (replace(goes, may_stay=True), "n", ()))
    plan = schedule(world, Policy(), NOW, deserved={"a": 0, "b": 0})
    assert (plan.actions, plan.reserved, plan.promised) == ((Keep("e0"),), {}, {})


def test_an_executor_leaves_for_a_session_that_is_promised_room_on_its_node_once_its_winner_is_gone():
    one, held, promises = ResourceRequirement.of(cpu=1), [], {}
    for node, winner, promised in (("m", "b", "b"), ("n", "gone", "c")):
        leaves = ExecutorView(
            f"on {node}", ExecutorPhase.LEAVING, one, "a", eviction=Eviction(winner, Cause.SHARE, NOW)
        )
        held.append((replace(leaves, may_stay=True), node, ()))
        promises[promised] = Promise((Allocation(f"of {promised}", node, one),))
    promises["c"] = Promise((Allocation("also of c", "o", one), *promises["c"].places))
    demands = [Demand("a", 1, one, leaving=2), Demand("b", 2, one, 1), Demand("c", 3, one, 2, batch_size=2)]
    world = world_of([Node(name, 1000, GIB) for name in "mno"], demands, *held)
    plan = schedule(replace(world, promises=promises), Policy(), NOW, deserved={"a": 0, "b": 1, "c": 2})
    assert plan.actions == (Unbind("on n", Eviction("c", Cause.SHARE, NOW)),)


@pytest.mark.parametrize("works", [True, False])
def test_executors_without_a_task_leave_only_in_the_place_of_one_that_has_one(works):
    one = ResourceRequirement.of(cpu=1)
    eviction = Eviction("b", Cause.SHARE, NOW)
    leaving = ExecutorView("e0", ExecutorPhase.LEAVING, one, "a", eviction=eviction, may_stay=works)
    vacant = ExecutorView("e1", ExecutorPhase.VACANT, one, "c", since=NOW, bound_at=NOW)
    demands = [Demand("a", 1, one, 0, 0, 1), Demand("b", 2, one, 1), Demand("c", 3, one)]
    world = world_of([Node("n", 2000, GIB)], demands, (leaving, "n", ()), (vacant, "n", ()))
    world = replace(world, promises={"b": Promise((Allocation("p", "n", one),))})
    plan = schedule(world, Policy(), NOW, deserved={"a": 0, "b": 1, "c": 0})
    assert plan.actions == ((Keep("e0"), Unbind("e1", eviction)) if works else ())


def test_executors_that_do_as_well_as_one_that_goes_get_no_further_task():
    """Those of its session and size at work on its node, but for one that is protected and one of a gang."""
    one, two = ResourceRequirement.of(cpu=1), ResourceRequirement.of(cpu=2)
    work, goes = ExecutorPhase.BUSY, Eviction("b", Cause.SHARE, NOW)
    views = [
        ExecutorView("goes", ExecutorPhase.LEAVING, one, "a", eviction=goes, may_stay=True),
        ExecutorView("as good", work, one, "a", protected_until=NOW),
        ExecutorView("protected", work, one, "a", protected_until=NOW + 1),
        ExecutorView("larger", work, two, "a"),
        ExecutorView("of a gang", work, one, "a", gang="g"),
        ExecutorView("elsewhere", work, one, "a"),
        ExecutorView("of another", work, one, "c"),
    ]
    demands = [Demand("a", 1, one, 0, 5, 1), Demand("b", 2, one, 1), Demand("c", 3, one, 0, 1)]
    held = [(view, "m" if view.id == "elsewhere" else "n", ()) for view in views]
    world = world_of([Node("n", 7000, GIB), Node("m", 1000, GIB)], demands, *held)
    world = replace(world, promises={"b": Promise((Allocation("p", "n", one),))})
    plan = schedule(world, Policy(), NOW, deserved={"a": 4, "b": 1, "c": 1})
    assert plan.yielding == {"as good"}


@pytest.mark.parametrize(
    ("first", "second", "deserved"),
    [
        pytest.param({"priority": 1}, {"priority": 0}, (0, 0), id="of lower priority"),
        pytest.param({}, {}, (1, 0), id="further above what it deserves"),
    ],
)
def test_the_first_to_lose_an_executor_is_not_the_first_by_name(first, second, deserved):
    """Two sessions with two executors each, on a machine that they fill; the second one loses its newest."""
    one = ResourceRequirement.of(cpu=1)
    facts = {"a": first, "b": second}
    demands = [Demand(name, 1, one, 0, 2, **more) for name, more in facts.items()]
    views = [
        ExecutorView(f"{name}{n}", ExecutorPhase.BUSY, one, name, bound_at=float(n)) for name in facts for n in (0, 1)
    ]
    demands.append(Demand("claim", 3, one, 1, priority=1))
    world = world_of([Node("n", 4000, GIB)], demands, *((view, "n", ()) for view in views))
    plan = schedule(world, Policy(), NOW, deserved=dict(zip("ab", deserved, strict=True)) | {"claim": 1})
    assert [action.executor for action in plan.actions if isinstance(action, Unbind)] == ["b1"]


def test_nobody_leaves_a_queue_at_its_limit_for_one_that_has_no_room_then():
    small, large = ResourceRequirement.from_string("cpu=2"), ResourceRequirement.from_string("cpu=3")
    fleet = Fleet([Node("n", 4000, 64 * GIB, ())])
    fleet.charge(Allocation("e0", "n", small))
    fleet.charge(Allocation("e1", "n", small))
    views = [ExecutorView("e0", ExecutorPhase.BUSY, small, "b"), ExecutorView("e1", ExecutorPhase.BUSY, small, "other")]
    demands = (
        Demand("b", 1, small, 0, 1, queue="q"),
        Demand("other", 2, small, 0, 1),
        Demand("a", 3, large, 1, queue="q"),
    )
    queues = Queue("default"), Queue("q", limit=Limit(cpu_milli=3000))
    plan = schedule(World(fleet, demands, tuple(views), queues), Policy(), NOW, deserved={"a": 1, "b": 0, "other": 1})
    assert plan.actions == ()
    assert plan.waiting["a"] is Code.QUEUE_LIMIT


def the_old_way(search: Reclaim, claimant: Demand, outlook: Placer, vacant: Placer) -> list[ExecutorVictim] | None:
    """Victims in order until a unit is placed, then without each of them that is not needed."""

    def fits(gone: list[ExecutorVictim]) -> bool:
        mark = outlook.fleet.checkpoint()
        for victim in gone:
            for member in victim.members:
                outlook.fleet.release(member.id)
        placed = place_unit(outlook, claimant, "trial", claimant.batch_size)
        outlook.fleet.rollback(mark)
        return placed is not None

    useful, rows = vacant.room(claimant.requirement) > 0, outlook.fleet.row_of
    chosen: list[ExecutorVictim] = []
    for victim in search.in_order(RoomClaim(claimant, outlook, vacant, now=NOW, name="trial", displace=True)):
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


@pytest.mark.long
@settings(max_examples=400)
@given(worlds())
def test_victims_are_those_of_trying_again_after_each(world):
    assert_as_the_old_way(world)


@pytest.mark.long
@settings(max_examples=200)
@given(worlds(PARTS, isolation_policy=IsolationPolicy.DYNAMIC), st.sampled_from([1, 2]))
def test_cards_that_keep_the_mode_of_their_users_and_many_rounds_change_nothing(world, few):
    with mock.patch.object(reclaim_victims, "_FEW", few):
        assert_as_the_old_way(world)


@pytest.mark.long
@settings(max_examples=200)
@given(worlds(PARTS, isolation_policy=IsolationPolicy.DYNAMIC), st.tuples(*[st.integers(0, 8)] * 3))
def test_nodes_and_cards_that_a_claim_passes_over_would_not_have_helped(world, deserved):
    claimant, policy = world.demands[-1], Policy()
    keeps = {f"s{number}": count for number, count in enumerate(deserved)}

    def victims() -> list[str] | None:
        outlook = Placer(Fleet(world.fleet.nodes, world.fleet.ledger.values()), policy)
        vacant = Placer(outlook.fleet.emptied(), policy)
        found = reclaim_of(world, keeps).claim(RoomClaim(claimant, outlook, vacant, now=NOW, name="new"))
        return None if found is None else [member.id for victim in found[0] for member in victim.members]

    chosen = victims()
    event("nobody" if chosen is None else "some")
    with (
        mock.patch.object(reclaim, "may_do", return_value=True),
        mock.patch.object(reclaim, "shared", return_value=True),
        mock.patch.object(reclaim, "cards_to_free", lambda claim, row, *_: claim.outlook.fleet.cards_on(row)),
    ):
        assert victims() == chosen


def assert_as_the_old_way(world: World) -> None:
    claimant, policy = world.demands[-1], Policy()
    books = Fleet(world.fleet.nodes, world.fleet.ledger.values())
    vacant = Placer(books.emptied(), policy)
    wanted = the_old_way(reclaim_of(world), claimant, Placer(books.copy(), policy), vacant)
    outlook = Placer(books, policy)
    before, untouched = dict(books.ledger), frozen(books)
    found = reclaim_of(world).claim(RoomClaim(claimant, outlook, vacant, now=NOW, name="new", displace=True))
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
