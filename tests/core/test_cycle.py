"""One pass: who gives way, who waits, what is held, and that it comes to rest."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab import a_node

from ullage.core.books.fleet import Fleet
from ullage.core.cycle import schedule
from ullage.core.explaining.explain import explain
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.plan import EvictExecutor, Plan, Release, Reuse, Start, Unbind
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.rejection import Code, Cure
from ullage.model.request import ResourceRequirement
from ullage.model.resources import Resources

ONE = ResourceRequirement.of(cpu=1)
DEFAULT = (Queue("default"),)
PATIENT = Policy(reclaim_grace_s=None)


def work(
    session: str, *phases: ExecutorPhase, node: str = "n1", since: float = 0.0, **facts: object
) -> list[ExecutorView]:
    """Executors `session/0`, `session/1`, ... bound one second after the other, placed on `node` by `world`."""
    requirement = facts.pop("requirement", ONE)
    return [
        ExecutorView(
            f"{session}/{i}@{node}",
            phase,
            requirement,
            None if phase is ExecutorPhase.IDLE else session,
            since=since,
            bound_at=since + i,
            **facts,
        )
        for i, phase in enumerate(phases)
    ]


def world(nodes: list[Node], demands: list[Demand], executors: list[ExecutorView], queues=DEFAULT) -> World:
    fleet = Fleet(nodes)
    for executor in executors:
        node = executor.id.partition("@")[2]
        row = fleet.row_of[node]
        free = [card for card in fleet.cards_on(row) if not fleet.card_users[card]]
        cards = free[: executor.requirement.gpu_count]
        fleet.charge(Allocation(executor.id, node, executor.requirement, fleet.uuids(cards)))
    return World(fleet, tuple(demands), tuple(executors), queues)


def victims(plan: Plan) -> list[str]:
    return [a.executor for a in plan.actions if isinstance(a, Release) or (isinstance(a, Unbind) and a.eviction)]


def started(plan: Plan) -> Counter[str]:
    return Counter(a.session for a in plan.actions if isinstance(a, Start | Reuse))


B, V, I = ExecutorPhase.BUSY, ExecutorPhase.VACANT, ExecutorPhase.IDLE  # noqa: E741 - the letters of the tables
FOR_CLAIM = Eviction("claim", Cause.SHARE, 100.0)
CLAIM = Demand("claim", 9, ResourceRequirement.of(cpu=1, memory=1), pending=1, priority=5)


# --- who gives way --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("executors", "demands", "expected"),
    [
        pytest.param(
            [*work("idle", I), *work("v", V), *work("b", B, B)],
            [Demand("v", 1, ONE), Demand("b", 2, ONE, running=2)],
            ["idle/0@n1"],
            id="who works for nobody, first",
        ),
        pytest.param(
            [*work("v", V), *work("b", B, B, B)],
            [Demand("v", 1, ONE), Demand("b", 2, ONE, running=3)],
            ["v/0@n1"],
            id="then who has no task",
        ),
        pytest.param(
            [*work("low", B), *work("mid", B, B, B)],
            [Demand("low", 1, ONE, running=1), Demand("mid", 2, ONE, running=3, priority=3)],
            ["low/0@n1"],
            id="then the lowest priority, also if another holds more",
        ),
        pytest.param(
            [*work("less", B), *work("more", B, B, B)],
            [Demand("less", 1, ONE, running=1), Demand("more", 2, ONE, running=3)],
            ["more/2@n1"],
            id="of equal priority who is furthest above its share, and there the newest",
        ),
    ],
)
def test_the_one_who_gives_way_is(executors, demands, expected):
    plan = schedule(world([a_node("n1", 4)], [*demands, CLAIM], executors), PATIENT, 100.0)
    assert victims(plan) == expected
    assert plan.waiting["claim"] is Code.RECLAIMING


def test_nobody_gives_way_while_there_is_room():
    plan = schedule(
        world([a_node("n1", 4)], [Demand("b", 1, ONE, running=3), CLAIM], work("b", B, B, B)), PATIENT, 100.0
    )
    assert (victims(plan), started(plan)) == ([], Counter(claim=1))


def test_no_victim_is_taken_that_is_not_needed():
    """The lowest priority is asked first, and spared when only the other node can be cleared."""
    nodes = [a_node("n1", 4), a_node("n2", 4)]
    executors = [*work("keeper", B, B), *work("low", B, B), *work("mid", B, B, B, B, node="n2")]
    demands = [
        Demand("keeper", 1, ONE, running=2, priority=9),
        Demand("low", 2, ONE, running=2, held_back=Code.BIND_FAILURES),
        Demand("mid", 3, ONE, running=4, held_back=Code.BIND_FAILURES, priority=1),
        Demand("claim", 4, ResourceRequirement.of(cpu=4), pending=1, priority=5),
    ]
    plan = schedule(world(nodes, demands, executors), PATIENT, 100.0)
    assert sorted(victims(plan)) == [f"mid/{i}@n2" for i in range(4)]


def test_nobody_leaves_for_a_limit_that_it_takes_nothing_of():
    """The queue has all the cards it may have; the lowest priority, which is asked first, has none."""
    card = ResourceRequirement.of(cpu=1, gpu=1)
    queues = (Queue("q", limit=Limit(gpu_milli=2000)),)
    demands = [
        Demand("cards", 1, card, running=2, queue="q", priority=5),
        Demand("cpus", 2, ONE, running=3, queue="q"),
        Demand("claim", 3, card, pending=1, queue="q", priority=5),
    ]
    executors = [*work("cards", B, B, requirement=card), *work("cpus", B, B, B)]
    deserved = {"cards": 1, "cpus": 1, "claim": 1}
    given = world([a_node("n1", 8, gpus=4)], demands, executors, queues)
    plan = schedule(given, PATIENT, 100.0, deserved=deserved)
    assert victims(plan) == ["cards/1@n1"]


def test_nobody_gives_way_for_what_would_not_fit_anyway():
    executors = work("b", B, B, B, B)
    for asked in (ResourceRequirement.of(cpu=5), ResourceRequirement.of(gpu=1)):
        demands = [Demand("b", 1, ONE, running=4), replace(CLAIM, requirement=asked)]
        plan = schedule(world([a_node("n1", 4)], demands, executors), PATIENT, 100.0)
        assert (victims(plan), plan.waiting["claim"]) == ([], Code.TOO_LARGE)


@pytest.mark.parametrize("phase", [B, V], ids=["busy", "vacant"])
def test_a_minimum_is_not_touched(phase):
    held = Demand("b", 1, ONE, running=4 if phase is B else 0, min_instances=3)
    many = replace(CLAIM, pending=9)
    plan = schedule(world([a_node("n1", 4)], [held, many], work("b", *(phase,) * 4)), PATIENT, 100.0)
    assert len(victims(plan)) == 1


def test_a_guarantee_is_not_touched():
    queues = (Queue("safe", guarantee=Resources(cpu_milli=3000)), Queue("other", weight=100))
    held = Demand("b", 1, ONE, running=4, queue="safe")
    many = replace(CLAIM, pending=9, queue="other")
    plan = schedule(world([a_node("n1", 4)], [held, many], work("b", B, B, B, B), queues), PATIENT, 100.0)
    assert len(victims(plan)) == 1


def test_a_guarantee_is_not_touched_by_a_claim_that_needs_several_victims():
    queues = (Queue("safe", guarantee=Resources(cpu_milli=6000)), Queue("other"), Queue("third"))
    demands = [
        Demand("next", 1, ONE, pending=6, queue="safe", priority=5),
        Demand("b", 2, ONE, pending=5, running=7, queue="safe"),
        Demand("claim", 3, ResourceRequirement.of(cpu=4), pending=1, queue="other"),
        Demand("third", 4, ONE, running=5, queue="third"),
    ]
    executors = [*work("b", *(B,) * 7), *work("third", *(B,) * 5, protected_until=1e9)]
    plan = schedule(world([a_node("n1", 12)], demands, executors, queues), PATIENT, 100.0)
    lost = sum(isinstance(a, Unbind) and a.eviction.winner == "claim" for a in plan.actions)
    assert 7 - lost >= 6


@pytest.mark.parametrize(("until", "taken"), [(100.1, 0), (100.0, 1)], ids=["before", "after"])
def test_the_end_of_a_protection_is_respected(until, taken):
    executors = work("b", B, B, B, B, protected_until=until)
    plan = schedule(world([a_node("n1", 4)], [Demand("b", 1, ONE, running=4), CLAIM], executors), PATIENT, 100.0)
    assert len(victims(plan)) == taken


def test_protection_is_for_work_not_for_waiting():
    executors = work("b", V, V, V, V, protected_until=1e9)
    plan = schedule(world([a_node("n1", 4)], [Demand("b", 1, ONE), CLAIM], executors), PATIENT, 100.0)
    assert len(victims(plan)) == 1


@pytest.mark.parametrize(
    ("grace", "now", "evicted"), [(30.0, 129.0, 0), (30.0, 130.0, 1), (None, 1e9, 0)], ids=["in time", "due", "never"]
)
def test_who_was_asked_to_leave_has_a_grace(grace, now, evicted):
    leaving = work("b", ExecutorPhase.LEAVING, since=100.0, eviction=FOR_CLAIM)
    plan = schedule(
        world([a_node("n1", 1)], [Demand("b", 1, ONE, running=1), CLAIM], leaving), Policy(reclaim_grace_s=grace), now
    )
    assert sum(isinstance(a, EvictExecutor) for a in plan.actions) == evicted
    assert plan.wake_at == (130.0 if grace and now < 130 else None)


def test_room_made_for_one_is_not_taken_by_another():
    executors = [*work("b", ExecutorPhase.LEAVING, since=100.0, eviction=FOR_CLAIM), *work("c", B)]
    demands = [CLAIM, Demand("c", 1, ONE, pending=5, running=1)]
    plan = schedule(world([a_node("n1", 3)], demands, executors), PATIENT, 100.0)
    assert started(plan) == Counter(claim=1)
    held_for = replace(CLAIM, requirement=ResourceRequirement.of(cpu=2))
    plan = schedule(world([a_node("n1", 3)], [held_for, demands[1]], executors), PATIENT, 100.0)
    assert started(plan) == Counter()
    assert plan.waiting == {"claim": Code.RECLAIMING, "c": Code.RESERVED}


# --- gangs and reservations -----------------------------------------------------------------------


@pytest.mark.parametrize(("third", "expected"), [(2, 6), (1, 0)], ids=["room for all", "room for all but one"])
def test_a_gang_starts_whole_over_several_nodes_or_not_at_all(third, expected):
    nodes = [a_node("n1", 2), a_node("n2", 2), a_node("n3", third)]
    plan = schedule(world(nodes, [Demand("g", 1, ONE, pending=6, batch_size=6)], []), PATIENT, 0.0)
    assert started(plan)["g"] == expected
    assert {a.gang for a in plan.actions} <= {0}
    assert sorted(a.rank for a in plan.actions) == list(range(expected))


def test_a_gang_uses_idle_executors_and_new_ones_together():
    plan = schedule(
        world([a_node("n1", 4)], [Demand("g", 1, ONE, pending=4, batch_size=4)], work("x", I, I)), PATIENT, 0.0
    )
    assert [type(a) for a in plan.actions] == [Reuse, Reuse, Start, Start]
    assert [(a.gang, a.rank) for a in plan.actions] == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_two_gangs_do_not_hold_half_of_the_cluster_each():
    nodes = [a_node("n1", 2), a_node("n2", 2)]
    gangs = [Demand(f"g{i}", i, ONE, pending=4, batch_size=4, waiting_since=0.0) for i in (1, 2)]
    busy = Demand("busy", 0, ONE, running=2)
    plan = schedule(world(nodes, [busy, *gangs], work("busy", B, B)), PATIENT, 1000.0)
    assert started(plan) == Counter()
    assert list(plan.reserved) == ["g1"]
    assert len(plan.reserved["g1"]) == 4
    plan = schedule(world(nodes, gangs, []), PATIENT, 1000.0)
    assert started(plan) == Counter(g1=4)


def test_an_overdue_request_is_served_around():
    nodes = [a_node("n1", 4), a_node("n2", 2)]
    demands = [
        Demand("small", 1, ONE, pending=20, running=3),
        Demand("big", 2, ResourceRequirement.of(cpu=4), pending=1, waiting_since=0.0),
    ]
    busy = work("small", B, B, B, protected_until=1e9)
    before = schedule(world(nodes, demands, busy), Policy(reserve_after_s=300), 299.0)
    assert before.wake_at == 300.0
    after = schedule(world(nodes, demands, busy), Policy(reserve_after_s=300), 300.0)
    assert [allocation.node for allocation in after.reserved["big"]] == ["n1"]
    assert {a.allocation.node for a in after.actions if isinstance(a, Start)} == {"n2"}
    assert started(after)["small"] == 2


def test_an_overdue_request_does_not_exceed_a_maximum_with_what_is_leaving():
    demand = Demand("s", 1, ONE, pending=1, running=1, max_instances=1, waiting_since=0.0)
    leaving = work("s", ExecutorPhase.LEAVING, eviction=FOR_CLAIM)
    assert started(schedule(world([a_node("n1", 2)], [demand], leaving), PATIENT, 1.0)) == Counter()
    assert started(schedule(world([a_node("n1", 2)], [demand], leaving), PATIENT, 1000.0)) == Counter()


def test_an_executor_that_leaves_by_itself_is_not_hurried_for_a_session_that_waits_its_turn():
    demands = [
        Demand("b", 1, ONE, running=1),
        Demand("big", 2, ResourceRequirement.of(cpu=2), pending=1, waiting_since=0.0),
    ]
    executors = [*work("gone", ExecutorPhase.LEAVING), *work("b", V)]
    plan = schedule(world([a_node("n1", 2)], demands, executors), Policy(reserve_after_s=300), 1000.0)
    assert plan.actions == (Unbind("b/0@n1"),)
    assert list(plan.reserved) == ["big"]


# --- letting go -----------------------------------------------------------------------------------


@pytest.mark.parametrize(("pausing", "kept"), [(True, 4), (False, 0)])
def test_a_session_that_pauses_deserves_what_it_did_and_gets_nothing_new(pausing, kept):
    held = Demand("b", 1, ONE, running=2, pending=9, held_back=Code.BIND_FAILURES, pausing=pausing)
    other = Demand("a", 2, ONE, pending=9)
    plan = schedule(world([a_node("n1", 8)], [held, other], work("b", B, B)), PATIENT, 100.0)
    assert (plan.deserved["b"], started(plan)["b"]) == (kept, 0)


def test_a_session_that_is_gone_leaves_nothing_behind():
    plan = schedule(world([a_node("n1", 4)], [], work("closed", B, V)), PATIENT, 0.0)
    assert {a.executor for a in plan.actions} == {"closed/0@n1", "closed/1@n1"}
    assert all(isinstance(a, Unbind) and not a.eviction for a in plan.actions)


def test_a_retry_limit_takes_nothing_away_and_gives_nothing():
    demand = Demand("s", 1, ONE, pending=4, running=1, held_back=Code.BIND_FAILURES)
    plan = schedule(world([a_node("n1", 4)], [demand], work("s", B)), PATIENT, 0.0)
    assert (plan.actions, plan.waiting) == ((), {"s": Code.BIND_FAILURES})


# --- rest and purity ------------------------------------------------------------------------------


@st.composite
def busy_worlds(draw):
    nodes = [a_node(f"n{i}", draw(st.integers(1, 6)), gpus=draw(st.integers(0, 3))) for i in range(2)]
    demands = [
        Demand(
            f"s{i}",
            i,
            draw(st.sampled_from([ONE, ResourceRequirement.of(cpu=2), ResourceRequirement.of(cpu=1, gpu=1)])),
            pending=draw(st.integers(0, 8)),
            priority=draw(st.sampled_from([0, 0, 5])),
            weight=draw(st.integers(1, 3)),
            batch_size=draw(st.sampled_from([1, 1, 2])),
            min_instances=draw(st.sampled_from([0, 0, 2])),
            queue=draw(st.sampled_from(["a", "b"])),
        )
        for i in range(draw(st.integers(1, 4)))
    ]
    return nodes, demands, (Queue("a", weight=2), Queue("b"))


def carry_out(now: World, plan: Plan, turn: int) -> World:
    """Everything the plan says has happened at once; every executor has a task as long as there is one."""
    executors = {executor.id: executor for executor in now.executors}
    fleet = now.fleet
    for number, action in enumerate(plan.actions):
        if isinstance(action, Start):
            name = f"e{turn}-{number}"
            gang = None if action.gang is None else f"g{turn}-{action.gang}"
            asked = action.allocation.requirement
            executors[name] = ExecutorView(name, V, asked, action.session, gang, since=turn, bound_at=turn)
            fleet.charge(replace(action.allocation, id=name))
        elif isinstance(action, Reuse):
            gang = None if action.gang is None else f"g{turn}-{action.gang}"
            executors[action.executor] = replace(
                executors[action.executor], phase=V, session=action.session, gang=gang, bound_at=turn
            )
        else:
            del executors[action.executor]
            fleet.release(action.executor)
    demands, at_work = [], {}
    for demand in now.demands:
        tasks = demand.pending + demand.running
        mine = [e for e in executors.values() if e.session == demand.session][:tasks]
        at_work.update((e.id, replace(e, phase=B)) for e in mine)
        demands.append(replace(demand, pending=tasks - len(mine), running=len(mine)))
    views = tuple(at_work.get(name, executor) for name, executor in executors.items())
    return World(fleet, tuple(demands), views, now.queues)


@pytest.mark.long
@settings(max_examples=150)
@given(busy_worlds(), busy_worlds())
def test_constant_demand_comes_to_rest(first, then):
    """No ping-pong: also when the demand that made the present holdings was another one."""
    nodes, demands, queues = first
    now = World(Fleet(nodes), tuple(demands), (), queues)
    now = carry_out(now, schedule(now, Policy(), 0.0), 0)
    known = {demand.session: demand for demand in now.demands}
    later = [
        replace(
            known.get(d.session, d), pending=d.pending, running=known[d.session].running if d.session in known else 0
        )
        for d in then[1]
    ]
    now = World(now.fleet, tuple(later), now.executors, queues)
    for turn in range(1, 12):
        plan = schedule(now, Policy(), float(turn))
        if not plan.actions:
            return
        now = carry_out(now, plan, turn)
    raise AssertionError(f"still at it: {plan.actions}")


@pytest.mark.long
@settings(max_examples=100)
@given(busy_worlds(), st.integers(0, 2))
def test_deciding_changes_nothing_and_is_the_same_twice(given_world, turns):
    nodes, demands, queues = given_world
    now = World(Fleet(nodes), tuple(demands), (), queues)
    for turn in range(turns):
        now = carry_out(now, schedule(now, Policy(), float(turn)), turn)
    columns = ("cpu_free", "memory_free", "gpu_free", "slots_free", "card_users")
    before = [getattr(now.fleet, name).tolist() for name in columns], dict(now.fleet.ledger)
    plan = schedule(now, Policy(), 5.0)
    assert plan == schedule(now, Policy(), 5.0) == schedule(now, Policy(), 5.0, deserved=dict(plan.deserved))
    assert before == ([getattr(now.fleet, name).tolist() for name in columns], dict(now.fleet.ledger))


# --- why ------------------------------------------------------------------------------------------

G = a_node("n1", 4, "8g", gpus=2)


@pytest.mark.parametrize(
    ("nodes", "demand", "executors", "code", "cure", "numbers"),
    [
        pytest.param([], Demand("s", 1, ONE, 1), [], Code.NO_NODES, Cure.NODE_CHANGE, "", id="no nodes"),
        pytest.param(
            [replace(G, cordoned=True)], Demand("s", 1, ONE, 1), [], Code.NO_NODES, Cure.NODE_CHANGE, "", id="cordoned"
        ),
        pytest.param(
            [G],
            Demand("s", 1, ResourceRequirement.of(gpu=3), 1),
            [],
            Code.TOO_LARGE,
            Cure.NODE_CHANGE,
            "it needs 3 GPUs, the best node (n1) has 2",
            id="too large",
        ),
        pytest.param(
            [G],
            Demand("s", 1, ONE, 9, 4, min_instances=1),
            work("s", B, B, B, B),
            Code.SHARE,
            Cure.CAPACITY,
            "it holds 4 executors, deserves 4, wants 13",
            id="its share",
        ),
        pytest.param(
            [G],
            Demand("s", 1, ONE, 3, batch_size=4),
            [],
            Code.GANG_INCOMPLETE,
            Cure.OWNER,
            "3 of 4",
            id="part of a batch",
        ),
        pytest.param(
            [G],
            Demand("s", 1, ONE, 4, 2, max_instances=2),
            work("s", B, B),
            Code.MAX_INSTANCES,
            Cure.OWNER,
            ": 2",
            id="max",
        ),
        pytest.param(
            [G],
            Demand("s", 1, ONE, 1, held_back=Code.BIND_FAILURES),
            [],
            Code.BIND_FAILURES,
            Cure.OWNER,
            "",
            id="failures",
        ),
        pytest.param([G], Demand("s", 1, ONE), [], Code.NOTHING_PENDING, None, "", id="no tasks"),
        pytest.param(
            [G],
            Demand("s", 1, ResourceRequirement.of(gpu=3)),
            [],
            Code.TOO_LARGE,
            Cure.NODE_CHANGE,
            "it needs 3 GPUs, the best node (n1) has 2",
            id="too large, no tasks",
        ),
        pytest.param(
            [G], Demand("s", 1, ONE, 1), work("s", ExecutorPhase.STARTING), Code.STARTING, None, "", id="starting"
        ),
        pytest.param([G], Demand("s", 1, ONE, 0, 1), work("s", B), Code.RUNNING, None, ": 1 executor", id="running"),
    ],
)
def test_a_session_is_told(nodes, demand, executors, code, cure, numbers):
    reasons = explain(world(nodes, [demand], executors), PATIENT, 0.0, "s")
    assert (reasons.code, reasons.cure) == (code, cure)
    assert numbers in reasons.summary
    assert reasons.want == demand.want
    assert reasons.held == len(executors)


def test_a_request_that_fits_is_suggested_before_there_are_tasks():
    reasons = explain(world([G], [Demand("s", 1, ResourceRequirement.of(gpu=3))], []), PATIENT, 0.0, "s")
    (suggestion,) = reasons.suggestions
    assert "gpu=2" in suggestion
    assert suggestion.endswith("can run here")


def test_nothing_is_suggested_that_would_change_nothing():
    """A request that fits now is not the obstacle; what is, only its owner or time can change."""
    one_at_most = Demand("s", 1, ONE, pending=3, running=1, max_instances=1)
    incomplete = Demand("s", 1, ONE, pending=1, batch_size=2)
    for demand, executors in ((one_at_most, work("s", B)), (incomplete, [])):
        reasons = explain(world([G], [demand], executors), PATIENT, 0.0, "s")
        assert (reasons.cure, reasons.suggestions, reasons.holders) == (Cure.OWNER, (), ())


def test_the_share_is_a_fraction_also_when_no_node_takes_work():
    nodes = [a_node("n1", 4, cordoned=True)]
    reasons = explain(world(nodes, [Demand("s", 1, ONE, 1, 1)], work("s", B)), PATIENT, 0.0, "s")
    assert (reasons.code, reasons.share) == (Code.NO_NODES, 0.0)


def test_a_session_at_its_maximum_while_its_old_gang_leaves_is_told_so():
    demand = Demand("s", 1, ONE, pending=2, running=0, batch_size=2, max_instances=2)
    gang = [replace(e, gang="g") for e in work("s", ExecutorPhase.LEAVING, ExecutorPhase.LEAVING)]
    assert explain(world([a_node("n1", 4)], [demand], gang), PATIENT, 0.0, "s").code is Code.MAX_INSTANCES


def test_a_closed_or_unknown_session_is_told_so():
    one = world([G], [Demand("s", 1, ONE, 1)], [])
    assert explain(one, PATIENT, 0.0, "t").code is Code.CLOSED
    assert explain(one, PATIENT, 0.0, "s", open_=False).code is Code.CLOSED


def test_who_waits_is_told_its_place_who_holds_and_what_each_node_lacks():
    nodes = [a_node("n1", 4), a_node("n2", 2), a_node("n3", 4, cordoned=True)]
    asked = ResourceRequirement.of(cpu=3)
    demands = [
        Demand("busy", 1, ONE, running=4, priority=9),
        Demand("small", 2, ONE, running=1, priority=9),
        Demand("first", 3, asked, pending=1, priority=1),
        Demand("s", 4, asked, pending=1),
    ]
    now = world(nodes, demands, [*work("busy", B, B, B), *work("small", B), *work("busy", B, node="n2")])
    reasons = explain(now, PATIENT, 0.0, "s")
    assert reasons.position == 2
    assert [(h.session, h.executors) for h in reasons.holders] == [("busy", 4), ("small", 1)] or [
        (h.session, h.executors) for h in reasons.holders
    ] == [("busy", 3), ("small", 1)]
    reported = {(r.node, r.code, r.cure, r.needed, r.had) for r in reasons.rejections}
    assert reported == {
        ("n1", Code.CPU, Cure.CAPACITY, 3000, 0),
        ("n2", Code.CPU, Cure.NODE_CHANGE, 3000, 2000),
        ("n3", Code.CORDONED, Cure.NODE_CHANGE, 0, 0),
    }


def test_a_queue_at_its_limit_is_told_as_a_quota():
    queues = (Queue("q", limit=Limit(cpu_milli=1000)),)
    now = world([G], [Demand("s", 1, ONE, 3, 1, queue="q")], work("s", B), queues)
    reasons = explain(now, PATIENT, 0.0, "s")
    assert (reasons.code, reasons.cure, reasons.suggestions) == (Code.QUEUE_LIMIT, Cure.QUOTA, ())
    assert reasons.summary.endswith(": q may hold cpu=1 and holds 1 (s 1); it needs 1 more")


@settings(max_examples=150)
@given(busy_worlds(), st.integers(1, 8), st.integers(0, 3), st.booleans())
def test_a_suggested_request_really_fits(given_world, cpu, gpu, full):
    nodes, demands, queues = given_world
    now = World(Fleet(nodes), tuple(demands), (), queues)
    if full:
        now = carry_out(now, schedule(now, Policy(), 0.0), 0)
    asked = Demand("asks", 99, ResourceRequirement.of(cpu, "1g", gpu), pending=1, queue="a")
    now = replace(now, demands=(*now.demands, asked))
    for text in explain(now, Policy(), 1.0, "asks").suggestions:
        smaller, _, claim = text.partition(" ")
        if smaller.startswith("cpu="):
            fleet = now.fleet if claim == "would fit now" else now.fleet.emptied()
            changed = replace(asked, requirement=ResourceRequirement.from_string(smaller))
            assert changed.requirement.resources <= asked.requirement.resources
            trial = fleet.checkpoint()
            assert place_unit(Placer(fleet, Policy()), changed, "x", 1) is not None
            fleet.rollback(trial)


@pytest.mark.parametrize(
    ("held", "text"),
    [
        ("gpu=1", "cpu=1,mem=1g,gpu=1"),
        ("gpu=1", "mem=1g,gpu=0.5"),
        ("mem=8g", "cpu=1,mem=1g"),
        ("cpu=4", "cpu=1,mem=1g"),
    ],
)
def test_a_suggestion_leaves_out_nothing_that_was_asked(held, text):
    """A job for a GPU has no use for a request without one."""
    now = World(Fleet([a_node("n1", 4, "8g", gpus=1)]), (Demand("a", 1, ResourceRequirement.from_string(held), 1),))
    now = carry_out(now, schedule(now, Policy(), 0.0), 0)
    asked = Demand("asks", 99, ResourceRequirement.from_string(text), pending=1)
    reasons = explain(replace(now, demands=(*now.demands, asked)), Policy(), 1.0, "asks")
    assert [each for each in reasons.suggestions if "would fit" in each] == []


def test_a_suggested_priority_really_gives_more():
    demands = [Demand("a", 1, ONE, pending=8), Demand("s", 2, ONE, pending=8)]
    now = World(Fleet([a_node("n1", 4)]), tuple(demands))
    now = carry_out(now, schedule(now, Policy(), 0.0), 0)
    (suggestion,) = explain(now, Policy(), 1.0, "s").suggestions
    assert suggestion == "with priority 1 it would deserve 4 executors"
    raised = replace(now, demands=(now.demands[0], replace(now.demands[1], priority=1)))
    assert schedule(raised, Policy(), 1.0).deserved["s"] == 4
