"""The victims of a session that a limit stops, against slow code; and that nothing changes where that is of no use."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import event, example, given, settings
from hypothesis import strategies as st
from tests.books import GIB, frozen
from tests.core.slow_reclaim import SlowReclaim, release
from tests.core.test_reclaim_ways import Cycle, a_world

from ullage.core.books.fleet import Fleet
from ullage.core.books.trial import trial
from ullage.core.evicting.limit_claims import LimitClaims
from ullage.core.evicting.reclaim import Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.sharing.entitlement import place_unit
from ullage.core.sharing.world import Cause, Demand, Eviction, ExecutorPhase, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.node import Node
from ullage.model.queue import Limit, Queue
from ullage.model.request import ResourceRequirement

Victims = list[ExecutorVictim]


def a_limited_world(seed: int) -> tuple[World, dict[str, int]]:
    """Return a world in which the queue of the claimant, and of some others, has not enough left for a unit."""
    (world, deserved), rng = a_world(seed), Random(seed)
    *others, claimant = world.demands
    others = [replace(each, queue=rng.choice(["default", "limited", "limited"]), min_instances=0) for each in others]
    demands = (*others, replace(claimant, queue="limited", batch_size=rng.choice([1, 1, 1, 2])))
    limited = {each.session for each in demands if each.queue == "limited"}
    used = sum(each.requirement.cpu_milli for each in world.executors if each.session in limited)
    asked = demands[-1].requirement.cpu_milli * demands[-1].batch_size
    limit = Limit(cpu_milli=used + asked - 1000 * rng.randint(1, 2))
    deserved = {session: max(0, count - rng.randint(0, 3)) for session, count in deserved.items()}
    return replace(world, demands=demands, queues=(Queue("default"), Queue("limited", limit=limit))), deserved


class SlowLimits:
    """Who leaves for a limit, and for room: first what the limit needs, or else first what the room needs."""

    def __init__(self, slow: SlowReclaim, claim: RoomClaim) -> None:
        self.slow, self.claim, self.fleet, self.leaf = slow, claim, claim.outlook.fleet, slow.leaves["claim"]

    def victims(self) -> tuple[Victims, Victims] | None:
        """Return who leaves for room, and who for the limit; the share tree counts them out."""
        for_limit = self.for_limit()
        if not for_limit:
            return None
        with trial(self.fleet):
            release(self.fleet, for_limit)
            for_room = [] if self.fits() else self.slow.claim(self.claim)
        if for_room is not None:
            self.slow.count_out(for_room)
            return for_room, for_limit
        self.slow.count_out(for_limit, -1)
        for_room = self.slow.claim(self.claim)
        if for_room is None:
            return None
        self.slow.count_out(for_room)
        for_limit = self.for_limit()
        if self.stopped() is None:
            return for_room, for_limit
        self.slow.count_out(for_room, -1)
        return None

    def for_limit(self) -> Victims:
        """Return the first victims that the limit counts, without those that may stay; none if they are too few."""
        chosen: Victims = []
        while (code := self.stopped()) is not None:
            counts, leaves = self.slow.tree.within(self.leaf, code), self.slow.leaves
            able = [each for each in self.slow.in_order(self.claim) if each.session in leaves]
            one = next((each for each in able if counts(leaves[each.session])), None)
            if one is None:
                self.slow.count_out(chosen, -1)
                return []
            chosen.append(one)
            self.slow.count_out([one])
        for one in reversed(list(chosen)):
            self.slow.count_out([one], -1)
            if self.stopped() is None:
                chosen.remove(one)
            else:
                self.slow.count_out([one])
        return chosen

    def stopped(self) -> object:
        return self.slow.tree.over_limit(self.leaf, leaving=False)

    def fits(self) -> bool:
        with trial(self.fleet):
            return (
                place_unit(self.claim.outlook, self.claim.claimant, "trial", self.claim.claimant.batch_size) is not None
            )


@example(range(40))
@settings(max_examples=150)
@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=1))
def test_who_leaves_for_a_limit_and_for_room_is_whom_slow_code_finds(seeds):
    for seed in seeds:
        assert_victims_are_those_of_slow_code(*a_limited_world(seed))


def assert_victims_are_those_of_slow_code(world: World, deserved: dict[str, int]) -> None:
    fast, slow = Cycle(world), Cycle(world)
    claimant = next(demand for demand in world.demands if demand.session == "claim")
    wanted = SlowLimits(SlowReclaim(world, slow.tree, slow.leaves, deserved), slow.claim(claimant)).victims()
    reclaim, claim, fleet = Reclaim(world, fast.tree, fast.leaves, deserved), fast.claim(claimant), fast.outlook.fleet
    before, order = frozen(fleet), [victim.ids for victim in reclaim.in_order(claim)]
    found = LimitClaims(world.fleet, reclaim, fast.tree, fast.leaves).claim(claim)
    assert fast.tree.executors() == slow.tree.executors()
    if found is None:
        event("nobody")
        assert wanted is None
        assert frozen(fleet) == before
        assert [victim.ids for victim in reclaim.in_order(claim)] == order
        return
    for_room, for_limit = list(found.for_room), list(found.for_limit)
    event(f"{len(for_room)} for room, {len(for_limit)} for the limit")
    assert (for_room, for_limit) == wanted
    gone = {uid for victim in (*for_room, *for_limit) for uid in victim.ids}
    places = {place.id: place for place in found.places}
    assert len(places) == claimant.batch_size
    assert fleet.ledger == {uid: held for uid, held in world.fleet.ledger.items() if uid not in gone} | places
    assert all(reclaim.taken(uid) == (uid in gone) for uid in world.fleet.ledger)


def test_a_gang_that_stays_counts_as_one_unit_of_its_session_again():
    """It was to leave for the claim; an executor without a task leaves in its place."""
    one, goes = ResourceRequirement.of(cpu=1), {"eviction": Eviction("claim", Cause.SHARE), "may_stay": True}
    staying = [ExecutorView(f"e{n}", ExecutorPhase.LEAVING, one, "s", "g", **goes) for n in range(2)]
    views = (*staying, ExecutorView("vacant", ExecutorPhase.VACANT, one, "t"))
    demands = Demand("s", 1, one, batch_size=2), Demand("t", 2, one), Demand("claim", 3, one, 1)
    fleet = Fleet([Node("n", 3000, GIB)])
    for view in views:
        fleet.charge(Allocation(view.id, "n", one))
    world = World(fleet, demands, views)
    cycle = Cycle(world)
    reclaim, before = Reclaim(world, cycle.tree, cycle.leaves, {}), cycle.tree.executors()
    for view in staying:
        cycle.outlook.fleet.release(view.id)
    found = reclaim.claim_vacant(cycle.claim(demands[2]), [], staying)
    assert found is not None
    assert [victim.ids for victim in found[0]] == [{"vacant"}]
    assert before.get("s", 0) == 0
    assert cycle.tree.executors()["s"] == 2
