"""Fair share over time: who used more than its part gets less, until use follows the weights; without flapping."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.lab import Lab, Machine, a_node

from ullage.core.placing.policy import Policy
from ullage.model.history import Stay
from ullage.model.node import Node
from ullage.model.past_use import KEPT, DecayedUse, HalfLife, ShareKey, used_by
from ullage.model.queue import Queue
from ullage.model.request import ResourceRequirement
from ullage.model.session import SessionInfo, SessionSpec
from ullage.service.fair_share import ONE, STEPS, UPDATE_S, FairShare
from ullage.service.past_use import PastUse
from ullage.service.state import SessionRecord, State
from ullage.service.store_port import Page

HOUR = 3600.0
HALF_LIFE = HalfLife(6 * HOUR)
TENANTS = (Queue("a"), Queue("b"))
TASK_S = 1800.0


@dataclass
class Days:
    """Sessions with endless tasks of half an hour each, in steps of the update of the factors."""

    lab: Lab
    held: Counter[str] = field(default_factory=Counter)
    """Core-seconds by session."""

    def live(self, seconds: float) -> dict[str, float]:
        """Let time pass. Return the core-seconds that each session had meanwhile."""
        lab, before = self.lab, Counter(self.held)
        for _ in range(round(seconds / UPDATE_S)):
            lab.pass_time(UPDATE_S)
            done = [
                executor.id
                for executor in lab.executors
                if any(task.handed_out_at <= lab.now - TASK_S for task in executor.tasks.values())
            ]
            for executor in done:
                worker = lab.engine.workers.get(executor)
                if worker is not None and worker.tasks:
                    lab.engine.finish(executor)
            lab.pump()
            for executor in lab.executors:
                if executor.session is not None:
                    self.held[executor.session] += UPDATE_S * executor.requirement.cpu_milli / 1000
        return {name: self.held[name] - before[name] for name in self.held}

    def steps(self) -> dict[tuple[str, str | None], int]:
        return {key: each.step for key, each in self.lab.service.fair_share.standings().items()}

    def evictions(self) -> int:
        return sum(event.kind == "executor.evicted" for event in self.lab.store.events(Page(0, 100_000)))


def tenants(*nodes: Node, queues: tuple[Queue, ...] = TENANTS, half_life: HalfLife | None = HALF_LIFE) -> Lab:
    return Lab(*(nodes or [a_node(cpu=12)]), queues=queues, half_life=half_life, policy=Policy(reclaim_grace_s=60))


def test_without_a_half_life_weights_are_those_that_are_set():
    with tenants(queues=(Queue("a", weight=3), Queue("b", weight=1000)), half_life=None) as lab:
        assert lab.service.fair_share is None
        lab.session("x", queue="a", tasks=5, weight=7)
        lab.pass_time(10 * HOUR)
        world = lab.service.loop.world()
        assert world.queues == tuple(lab.service.state.queues.values())
        assert [demand.weight for demand in world.demands] == [7]


def test_who_used_the_machine_alone_for_a_half_life_gets_less_until_both_are_even():
    with tenants() as lab:
        days = Days(lab)
        lab.session("first", queue="a", tasks=4000)
        days.live(HALF_LIFE.seconds)
        lab.session("second", queue="b", tasks=4000)
        assert (lab.deserved("first"), lab.deserved("second")) in ((2, 10), (3, 9)), "a fifth and four fifths"
        steps = [days.steps()]
        shares = []
        for _ in range(24):
            had = days.live(HALF_LIFE.seconds / 4)
            shares.append(had["second"] / (had["first"] + had["second"]))
            steps.append(days.steps())
        assert shares[0] > 0.7
        assert all(later <= earlier + 0.02 for earlier, later in itertools.pairwise(shares))
        assert shares[-1] == pytest.approx(0.5, abs=0.02)
        factors = [each["b", None] for each in steps]
        assert factors == sorted(factors, reverse=True), "the factor goes back without turning"
        assert factors[-1] == ONE
        standing = lab.service.fair_share.standings()
        assert standing["a", None].part == pytest.approx(0.5, abs=0.08)
        assert days.evictions() <= 12 + sum(abs(a - b) for a, b in itertools.pairwise(factors))
        settled = days.evictions()
        days.live(4 * HALF_LIFE.seconds)
        assert days.evictions() == settled, "nobody is evicted once it is even"


def test_minutes_on_an_idle_machine_cost_nothing():
    with tenants() as lab:
        days = Days(lab)
        lab.session("first", queue="a", tasks=400)
        days.live(2 * UPDATE_S)
        lab.session("second", queue="b", tasks=400)
        assert (lab.deserved("first"), lab.deserved("second")) == (6, 6)
        assert set(days.steps().values()) == {ONE}


def test_short_work_of_others_moves_no_factor_to_and_fro():
    with tenants(queues=(*TENANTS, Queue("c"))) as lab:
        days = Days(lab)
        for name in ("a", "b"):
            lab.session(name, queue=name, tasks=4000)
        days.live(3 * HALF_LIFE.seconds)
        seen = {name: [days.steps()[name, None]] for name in ("a", "b")}
        for turn in range(24):
            lab.session(f"short-{turn}", queue="c", tasks=1)
            days.live(2 * UPDATE_S)
            lab.service.sessions.cancel(f"short-{turn}", lambda: None)
            days.live(2 * UPDATE_S)
            for name, steps in seen.items():
                steps.append(days.steps()[name, None])
        assert {name: set(steps) for name, steps in seen.items()} == {"a": {ONE}, "b": {ONE}}


def test_owners_share_their_queue_whatever_the_number_of_their_sessions():
    with tenants(a_node(cpu=12)) as lab:
        days = Days(lab)
        for number in range(5):
            lab.session(f"many-{number}", queue="a", owner="ann", tasks=1000)
        lab.session("one", queue="a", owner="bob", tasks=4000)
        had = days.live(2 * HALF_LIFE.seconds)
        mine = had.pop("one")
        assert mine / (mine + sum(had.values())) == pytest.approx(0.5, abs=0.05)
        assert ("a", "ann") in lab.service.fair_share.standings()


def test_a_restart_has_the_same_sums_and_factors(tmp_path):
    class Timed(Machine):
        queues = TENANTS
        half_life = HALF_LIFE

    with Timed(str(tmp_path / "state.db"), a_node(cpu=12)) as lab:
        days = Days(lab)
        lab.session("first", queue="a", owner="ann", tasks=4000)
        lab.session("other", queue="a", owner="bob", tasks=2)
        days.live(HALF_LIFE.seconds)
        lab.session("second", queue="b", owner="eve", tasks=4000)
        days.live(HOUR)
        lab.service.accounting.heartbeat()
        lab.pump()
        before = lab.service.fair_share.standings()
        lab.restart()
        after = lab.service.fair_share.standings()
        assert after.keys() == before.keys()
        for key, standing in before.items():
            assert tuple(after[key].used) == pytest.approx(tuple(standing.used), rel=1e-9)
            assert (after[key].part, after[key].due) == (pytest.approx(standing.part), standing.due)
            places = [STEPS.index(each.step) for each in (after[key], standing)]
            assert max(places) - min(places) <= 1, "near two factors it is one of both"


def test_a_half_life_that_is_set_later_counts_what_was_used_before(tmp_path):
    with Machine(str(tmp_path / "state.db"), a_node(cpu=12)) as lab:
        lab.queues = TENANTS
        lab.restart()
        lab.session("first", queue="a", tasks=4000)
        Days(lab).live(HALF_LIFE.seconds)
        lab.service.accounting.heartbeat()
        lab.half_life = HALF_LIFE
        lab.restart()
        standing = lab.service.fair_share.standings()["a", None]
        assert standing.used.core_s == pytest.approx(12 * HALF_LIFE.steady_s / 2, rel=0.01)


def stay(number: int, owner: str, started_at: float, ended_at: float) -> Stay:
    return Stay(number, f"e{number}", 1, owner, "a", "function", "n", (), 1.0, 1.0, 8, started_at, ended_at)


def test_memory_is_bounded_by_owners_and_not_by_stays():
    past = PastUse(HALF_LIFE)
    for number in range(30_000):
        past.add(stay(number, f"user-{number % 10_000}", float(number), number + 60.0))
    sums = past.used((), 30_060.0)
    assert len(sums) == 10_001, "of each owner, and of the queue"
    assert all(0 < used.card_s <= 180 for key, used in sums.items() if key.owner is not None)
    past.forget(30_060.0 + (KEPT + 1) * HALF_LIFE.seconds)
    assert past.used((), 0.0) == {}, "nothing is kept of what is forgotten"


QUEUES = ("a", "a.x", "b")
OWNERS = ("ann", "bob", "")
_STAYS = st.lists(
    st.tuples(
        st.sampled_from(QUEUES), st.sampled_from(OWNERS), st.floats(0, 1e6), st.floats(0, 1e5), st.integers(0, 16)
    ),
    max_size=40,
)


@given(rows=_STAYS, asked=st.sets(st.tuples(st.sampled_from(QUEUES), st.sampled_from(OWNERS))))
def test_sums_are_those_of_all_stays_in_any_order_of_their_ends(rows, asked):
    now = 5e5
    past, going_on, direct = PastUse(HALF_LIFE), [], {}
    for number, (queue, owner, started_at, lasted_s, cores) in enumerate(rows):
        ended_at = started_at + lasted_s if started_at + lasted_s <= now else None
        begin = min(started_at, now)
        each = Stay(number, f"e{number}", 1, owner, queue, "f", "n", (), cores / 4, cores, 7, begin, ended_at)
        if ended_at is None:
            going_on.append(each)
        past.add(each)
        for key in (ShareKey(queue, owner), ShareKey(queue)):
            direct[key] = direct.get(key, DecayedUse()).plus(used_by(each, HALF_LIFE, now))
    for found in (past.used(going_on, now), past.copy().used(going_on, now)):
        assert found.keys() == direct.keys()
        for key, used in found.items():
            assert tuple(used) == pytest.approx(tuple(direct[key]), rel=1e-9, abs=1e-9)
    wanted = {ShareKey(*key) for key in asked}
    some = past.used(going_on, now, wanted)
    assert some.keys() == wanted | {key for key in direct if key.owner is None}
    for key, used in some.items():
        assert tuple(used) == pytest.approx(tuple(direct.get(key, DecayedUse())), rel=1e-9, abs=1e-9)


def test_factors_change_once_another_thread_has_computed_them():
    put_off, changes = [], []
    fluid = Fluid((1, 1), later=lambda work, take: put_off.append((work, take)), changed=changes.append)
    fluid.begin("q0")
    fluid.begin("q1")
    fluid.past.add(replace(stay(1, "x", 0.0, HALF_LIFE.seconds), queue="q0", cores=12.0))
    fluid.now = HALF_LIFE.seconds
    assert fluid.fair.expire(fluid.now) == fluid.now + fluid.fair.every_s
    fluid.fair.expire(fluid.now)
    assert len(put_off) == 1, "one update at a time"
    assert set(fluid.steps().values()) == {ONE}
    ((work, take),) = put_off
    found = work()
    assert set(fluid.steps().values()) == {ONE}
    assert changes == []
    take(found)
    assert fluid.steps()["q0"] < ONE < fluid.steps()["q1"]
    assert changes == [False], "a cycle follows"


class Fluid:
    """Queues that always want more, on a machine that is divided by the weights of the moment."""

    def __init__(self, weights: Sequence[int], **later: Any) -> None:
        self.now = 0.0
        self.state = State(queues={f"q{place}": Queue(f"q{place}", weight=n) for place, n in enumerate(weights)})
        self.state.allocator.set_nodes([a_node(cpu=12)])
        self.past, self.stays = PastUse(HALF_LIFE), 0
        none: Any = SimpleNamespace(stays=())
        self.fair = FairShare(self.past, self.state, none, lambda: self.now, **later)

    def begin(self, queue: str) -> None:
        if queue not in self.state.sessions:
            spec = SessionSpec("function", ResourceRequirement.of(cpu=1), queue=queue, min_instances=1)
            info = SessionInfo(queue, spec, self.now, len(self.state.sessions) + 1)
            self.state.sessions[queue] = SessionRecord(info)

    def live(self, seconds: float) -> None:
        """Let time pass, in which each queue uses what its weight gives."""
        self.fair.expire(self.now)
        weights = {queue.name: queue.weight for queue in self.fair.weigh().queues if queue.name in self.state.sessions}
        for queue, weight in weights.items():
            self.stays += 1
            cores = 12.0 * weight / sum(weights.values())
            span = {"started_at": self.now, "ended_at": self.now + seconds}
            self.past.add(Stay(self.stays, queue, 1, "", queue, "f", "n", (), 0.0, cores, 0, **span))
        self.now += seconds
        self.fair.expire(self.now)

    def steps(self) -> dict[str, int]:
        return {key[0]: each.step for key, each in self.fair.standings().items() if key[1] is None}


@settings(max_examples=20, deadline=None)
@given(weights=st.lists(st.integers(1, 8), min_size=2, max_size=4), begins=st.lists(st.integers(0, 3), min_size=4))
def test_use_over_many_half_lives_follows_the_weights(weights, begins):
    fluid = Fluid(weights)
    turns: dict[str, list[int]] = {name: [ONE] for name in fluid.state.queues}
    for period in range(25 * 10):
        for name, begin in zip(fluid.state.queues, begins, strict=False):
            if begin * 10 <= period:
                fluid.begin(name)
        if not fluid.state.sessions:
            continue
        fluid.live(HALF_LIFE.seconds / 10)
        for name, step in fluid.steps().items():
            if step != turns[name][-1]:
                turns[name].append(step)
    for queue in fluid.state.queues.values():
        standing = fluid.fair.standings()[queue.name, None]
        assert standing.step == ONE
        assert standing.part == pytest.approx(queue.weight / sum(weights), rel=0.03)
        ups = [later > earlier for earlier, later in zip(turns[queue.name], turns[queue.name][1:], strict=False)]
        assert sum(a != b for a, b in itertools.pairwise(ups)) <= 6, "a factor turns when others come, not else"
