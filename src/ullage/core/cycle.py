"""One scheduling cycle: which sessions get executors now, which executors are evicted, and why sessions wait.

There are two sets of books. `now` is what is free at this moment. The *outlook* is what will be free once leaving and
idle executors are gone; reserved room is charged there. Work may start where both have room. So room that was freed
for one session is never lent to another, and all other room is.

Order of decisions:
1. promised places are taken, or stay reserved;
2. of each priority, the longest overdue session below its entitlement is served, or others are evicted for it;
3. sessions below their entitlement are served, smallest dominant share first; where nothing is free they wait for
   leaving executors, or others are evicted;
4. evictions whose room no session needs any more are cancelled;
5. of each other priority, the longest overdue session is served, or waits for tasks to end;
6. what is left is lent to any session that wants it (work-conserving);
7. executors that no session needs are released.

Room for which executors are evicted is a promise: the next cycle reserves the same place for the session before it
serves others. So each eviction has a winner, and ends no task once the winner is gone.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from math import inf

from ullage.core.evicting.idle import Idle
from ullage.core.evicting.limit_claims import LimitClaims
from ullage.core.evicting.pending_evictions import PendingEvictions
from ullage.core.evicting.reclaim import Claimed, Reclaim
from ullage.core.evicting.reclaim_search import RoomClaim
from ullage.core.evicting.reclaim_victims import ExecutorVictim
from ullage.core.evicting.surplus import surplus
from ullage.core.placing.placement import Placer
from ullage.core.placing.policy import Policy
from ullage.core.sharing.due import DueTimes
from ullage.core.sharing.entitlement import (
    Leaves,
    entitlement,
    place_unit,
    share_tree,
    shortage,
    wanted_units,
)
from ullage.core.sharing.plan import Action, Plan, Release, Reuse, Start, Unbind
from ullage.core.sharing.promise import Promises, Unit, charge_back, places_of
from ullage.core.sharing.reach import Reach
from ullage.core.sharing.shares import Leaf
from ullage.core.sharing.waiting import why_waits
from ullage.core.sharing.world import WORKING, Cause, Demand, Eviction, ExecutorView, World
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


def schedule(world: World, policy: Policy, now: float, seed: int = 0, deserved: dict[str, int] | None = None) -> Plan:
    """Decide one cycle. Pure: `world` is unchanged, and equal arguments give equal plans.

    `now` is in seconds of the clock of the world's times. `seed` is for strategies that sample; no built-in one does.
    `deserved` is the entitlement, if the caller has it already.
    """
    del seed
    trial = world.fleet.checkpoint()
    try:
        return _Cycle(world, policy, now, entitlement(world, policy) if deserved is None else deserved).run()
    finally:
        world.fleet.rollback(trial)


class _Cycle:
    def __init__(self, world: World, policy: Policy, now: float, deserved: dict[str, int]) -> None:
        self._world = world
        self._policy = policy
        self._times = DueTimes(now)
        self._deserved = deserved
        self._now = Placer(world.fleet, policy)
        self._empty, self._reach = Placer(world.fleet.emptied(), policy), Reach(world.fleet, policy, world.queues)
        self._outlook: Placer | None = None
        self._demands = {demand.session: demand for demand in world.demands}
        self._held = world.held()
        self._leaving = world.leaving()
        self._idle = Idle(world)
        self._leaves = self._leaves_of(world.demands)
        self._tree = share_tree(world, policy, self._leaves.values())
        self._reclaim = Reclaim(world, self._tree, self._leaves, deserved)
        self._limits = LimitClaims(world.fleet, self._reclaim, self._tree, self._leaves)
        self._full: dict[tuple[ResourceRequirement, int], Code] = {}
        self._actions: list[Action] = []
        self._waiting: dict[str, Code] = {}
        self._reserved: dict[str, tuple[Allocation, ...]] = {}
        self._promises = Promises(world, self._times.has_come)
        self._evictions = PendingEvictions(world, self._promises, policy.reclaim_grace_s)
        self._yielding: set[str] = set()
        self._served_overdue: set[int] = set()
        self._gangs = 0
        self._placed = 0

    def run(self) -> Plan:
        if self._world.promises or any(self._world.on_their_way()):
            self._open_outlook()
        self._take_up_promises()
        self._serve_overdue(entitled=True)
        self._serve_entitled()
        self._cancel_needless_evictions()
        self._serve_overdue(entitled=False)
        self._lend_the_rest()
        self._release_unneeded()
        self._explain_waiting()
        self._wake_when_protection_ends()
        return Plan(
            actions=tuple(self._actions),
            deserved=self._deserved,
            waiting=self._waiting,
            reserved=self._reserved,
            promised=dict(self._promises.items()),
            yielding=frozenset(self._yielding),
            wake_at=self._times.next,
        )

    def _leaves_of(self, demands: Iterable[Demand]) -> dict[str, Leaf]:
        leaves, found = Leaves(self._world.fleet), {}
        for demand in demands:
            held = len(self._held.get(demand.session, ())) // demand.batch_size
            leaving = -(-self._leaving.get(demand.session, 0) // demand.batch_size)
            reuses = self._idle.kind_of(demand)
            found[demand.session] = leaves.of(demand, held=held, leaving=leaving, reuses=reuses)
        return found

    def _ceiling(self, demand: Demand) -> int:
        """Return the units that a session may hold while others of its units are leaving."""
        units, most = wanted_units(demand), demand.max_instances
        return units if most is None else min(units, most // demand.batch_size - self._leaves[demand.session].leaving)

    def _open_outlook(self) -> Placer:
        if self._outlook is None:
            later = self._world.fleet.copy()
            for executor in (*self._world.on_their_way(), *self._idle):
                if executor.id in later.ledger:
                    later.release(executor.id)
            self._outlook = Placer(later, self._policy)
        return self._outlook

    # --- the steps ---

    def _take_up_promises(self) -> None:
        """Reserve all promised places that still exist; then serve their sessions, each at the first free place.

        A paid promise is valid; any other one as long as its session is entitled to it. Promises wait while it pauses.
        """
        for session, promise in self._world.promises.items():
            demand = self._demands.get(session)
            if demand is not None and demand.competes:
                most = demand.want // demand.batch_size
                if not promise.paid:
                    most = min(most, self._deserved.get(session, 0) // demand.batch_size)
                units = places_of(session, promise.places, demand.batch_size)
                self._promises.expect(session)
                for unit in units[: max(0, most - self._leaves[session].held)]:
                    self._promises.hold(session, unit, self._open_outlook().fleet)
        for session, places in list(self._promises.items()):
            demand = self._demands[session]
            if demand.ready:
                self._redeem(demand)
                continue
            for _ in range(len(places) // demand.batch_size):  # counts below limits, as a unit that starts does
                self._tree.give(self._leaves[session], lambda _leaf: None)
            self._record_reserved(demand, places)
        self._full.clear()

    def _redeem(self, demand: Demand) -> None:
        """Start units at their promised places or at better ones; the others keep waiting."""
        leaf, fleet = self._leaves[demand.session], self._open_outlook().fleet
        waiting: list[Unit] = []
        for unit in self._promises.take_out(demand.session, fleet):
            grant, beyond = partial(self._start_or_wait, unit, waiting), partial(self._await_limit, unit, waiting)
            if self._tree.give(leaf, grant, beyond) is None and self._is_overdue(demand):
                self._served_overdue.add(demand.priority)
        if waiting and self._evict_vacant_instead(demand, len(waiting)):
            return
        for unit in waiting:
            if self._promises.hold(demand.session, unit, fleet):
                self._record_reserved(demand, unit)
            else:
                self._wait(demand)

    def _evict_vacant_instead(self, demand: Demand, units: int) -> bool:
        """Evict executors without a task instead of one that runs a task, if that is enough."""
        outlook = self._open_outlook()
        for gang in self._evictions.at_work_for(demand.session) if self._reclaim.some_vacant else ():
            mark = outlook.fleet.checkpoint()
            names = [self._name(demand) for _ in range(units - 1)]
            found = self._reclaim.claim_vacant(self._claim(demand), names, gang)
            if found is None:
                outlook.fleet.rollback(mark)
                continue
            outlook.fleet.keep(mark)
            victims, placed = found
            self._actions.extend(self._evictions.stay(gang))
            self._evict(victims, demand, Cause.SHARE)
            for unit in placed:
                self._promise(demand, unit)
            return True
        return False

    def _start_or_wait(self, unit: Unit, waiting: list[Unit], leaf: Leaf) -> None:
        self._full.clear()
        if not self._start(self._demands[leaf.session], won=True, promised=True):
            waiting.append(unit)

    def _await_limit(self, unit: Unit, waiting: list[Unit], leaf: Leaf, code: Code) -> Code | None:
        """Wait at a limit until leaving units of the session are gone."""
        if self._tree.over_limit(leaf, leaving=False) is not None:
            return code
        waiting.append(unit)
        return None

    def _is_overdue(self, demand: Demand) -> bool:
        """Return whether a session waits too long; if not, wake when it does."""
        since, patience_s = demand.waiting_since, self._policy.reserve_after_s
        return since is not None and self._times.has_come(since + patience_s)

    def _serve_overdue(self, *, entitled: bool) -> None:
        """Serve the longest waiting session of each priority: of those below their entitlement, or of the others."""
        for demand in sorted(self._world.demands, key=_longest_waiting):
            leaf = self._leaves[demand.session]
            if demand.waiting_since is None or not wanted_units(demand) or self._reach.room(demand) < demand.batch_size:
                continue
            short = leaf.held * demand.batch_size < self._deserved.get(demand.session, 0)
            if short is not entitled or (leaf.held and not short) or self._at_maximum(demand):
                continue
            if not self._is_overdue(demand) or demand.priority in self._served_overdue:
                continue
            grant = self._grant_overdue if entitled else self._grant_turn
            if self._tree.give(leaf, grant) is None:
                self._served_overdue.add(demand.priority)

    def _serve_entitled(self) -> None:
        for demand in self._world.demands:
            leaf = self._leaves[demand.session]
            leaf.target = min(self._deserved.get(demand.session, 0) // demand.batch_size, wanted_units(demand))
        self._tree.renew()
        beyond = self._grant_beyond_limit
        self._tree.fill_floors(self._grant_entitled, beyond)
        self._tree.fill_guarantees(self._grant_entitled, beyond=beyond)
        self._tree.fill(self._grant_entitled, beyond=beyond)

    def _lend_the_rest(self) -> None:
        self._full.clear()
        for demand in self._world.demands:
            self._leaves[demand.session].target = self._ceiling(demand)
        self._tree.renew()
        self._tree.fill(self._grant_free, same_shape=True)

    def _cancel_needless_evictions(self) -> None:
        """Cancel evictions whose room no session needs; executors like the remaining ones get no further task."""
        if self._outlook is not None:
            self._actions.extend(self._evictions.settle(self._outlook.fleet, self._times.has_come))
            self._yielding.update(self._evictions.siblings(self._times.now))

    def _release_unneeded(self) -> None:
        """Release executors that are idle or vacant long enough, of closed sessions, or above a maximum."""
        for executor in reversed(list(self._idle)):
            due = self._times.has_come(executor.since + executor.delay_release_s)
            claimed = self._outlook and not charge_back(self._outlook.fleet, self._world.fleet, (executor.id,))
            if due or claimed:
                self._actions.append(Release(executor.id))
        for session, executors in sorted(self._held.items()):
            leaving = surplus(self._demands.get(session), executors, self._reclaim.taken, self._times.has_come)
            self._actions.extend(Unbind(executor.id) for executor in leaving)

    def _wake_when_protection_ends(self) -> None:
        """Wake when protection ends, if a session waits: time alone may allow an eviction."""
        if self._waiting:
            working = (executor for executor in self._world.executors if executor.phase in WORKING)
            self._times.wake_at(executor.protected_until for executor in working)

    def _explain_waiting(self) -> None:
        for demand in self._world.demands:
            leaf, ceiling = self._leaves[demand.session], self._ceiling(demand)
            if demand.ready and leaf.leaving and leaf.held > ceiling:
                self._waiting[demand.session] = Code.MAX_INSTANCES  # what is promised to it waits for its own to leave
            if leaf.held * demand.batch_size < demand.want and demand.session not in self._waiting:
                self._waiting[demand.session] = why_waits(
                    demand,
                    leaf,
                    obstacle=self._reach.obstacle(demand),
                    deserved=self._deserved.get(demand.session, 0),
                    ceiling=ceiling,
                    fleet=self._world.fleet,
                )

    # --- one unit ---

    def _grant_overdue(self, leaf: Leaf) -> Code | None:
        """Serve a session below its entitlement; if all possible victims are protected, reserve their place."""
        demand = self._demands[leaf.session]
        if self._start(demand, won=True) or self._hold(demand) or self._hold(demand, displace=True):
            return None
        claimed = self._claim_later(demand)
        if claimed is None:
            return self._why_full(demand)
        self._hold_for_later(demand, claimed)
        return None

    def _grant_turn(self, leaf: Leaf) -> Code | None:
        """Serve a session at its entitlement: no task is ended for it, and executors in its way get no further task."""
        demand = self._demands[leaf.session]
        if self._start(demand, won=True) or self._wait(demand):
            return None
        claimed = self._claim_later(demand)
        if claimed is None:
            return self._why_full(demand)  # only minima or higher priorities could leave: reserve nothing
        victims, placed = claimed
        open_ = [victim for victim in victims if victim.protected_until <= self._times.now]
        if len(open_) == len(victims) and not any(victim.busy for victim in victims):
            self._evict(victims, demand, Cause.OVERDUE)
            self._promise(demand, placed)
        else:
            self._hold_for_later(demand, claimed)
            self._yielding.update(member.id for victim in open_ for member in victim.members)
        return None

    def _claim_later(self, demand: Demand) -> Claimed | None:
        """Charge the room of executors that could be evicted if they were not protected; they stay."""
        return self._reclaim.claim(replace(self._claim(demand, displace=True), now=inf))

    def _claim(self, demand: Demand, *, displace: bool = False) -> RoomClaim:
        return RoomClaim(
            demand, self._open_outlook(), self._empty, now=self._times.now, name=self._name(demand), displace=displace
        )

    def _hold_for_later(self, demand: Demand, claimed: Claimed) -> None:
        """Reserve what is free of a place, and what its present holders have."""
        victims, placed = claimed
        self._record_reserved(demand, placed)
        for member in (member for victim in victims for member in victim.members):
            self._open_outlook().fleet.charge(self._world.fleet.ledger[member.id], force=True)

    def _grant_entitled(self, leaf: Leaf) -> Code | None:
        demand = self._demands[leaf.session]
        return None if self._start(demand) or self._hold(demand) else self._why_full(demand)

    def _grant_free(self, leaf: Leaf) -> Code | None:
        demand = self._demands[leaf.session]
        return None if self._start(demand) else self._why_full(demand)

    def _at_maximum(self, demand: Demand) -> bool:
        """Return whether a session may start no unit before others of its own have left; it may get a promise."""
        return self._leaves[demand.session].held >= self._ceiling(demand)

    def _why_full(self, demand: Demand) -> Code:
        full = self._full.get((demand.requirement, demand.batch_size), Code.GANG_ROOM)
        return Code.MAX_INSTANCES if self._at_maximum(demand) else full

    def _start(self, demand: Demand, *, won: bool = False, promised: bool = False) -> bool:
        """Start one unit now: matching idle executors, new ones for the rest; all or nothing.

        With `promised` the session keeps its position among the promises.
        """
        if self._at_maximum(demand):
            return False
        turn = demand.session if promised else None
        warm = self._idle.warm(demand, partial(self._can_reuse, turn))
        missing = demand.batch_size - len(warm)
        shape = (demand.requirement, missing)
        placed = None
        if not missing or shape not in self._full:
            placed = self._place_now(demand, missing, turn)
        if placed is None:
            if self._outlook is not None:
                for executor in warm:
                    self._outlook.fleet.release(executor.id)
            if shape in self._full:
                return False
            self._full[shape] = self._full[demand.requirement, demand.batch_size] = self._shortage(demand)
            return False
        gang = None
        if demand.batch_size > 1:
            gang = self._gangs
            self._gangs += 1
        for rank, executor in enumerate(warm):
            self._idle.take(executor)
            self._actions.append(Reuse(demand.session, executor.id, gang, rank, won=won))
        for rank, allocation in enumerate(placed, start=len(warm)):
            self._actions.append(Start(demand.session, allocation, gang, rank, won=won))
        return True

    def _place_now(self, demand: Demand, count: int, turn: str | None) -> Unit | None:
        """Charge executors where there is room now and in the outlook, and where no earlier promise has to wait."""
        now, outlook = self._now, self._outlook
        closed = set[int]()
        while True:
            placed = place_unit(now, demand, self._name(demand), count, also=outlook, closed=closed)
            if not placed or outlook is None:
                return placed
            delayed = self._promises.delays(placed, outlook.fleet, turn)
            if not delayed:
                return placed
            for place in placed:
                now.fleet.release(place.id)
                outlook.fleet.release(place.id)
            closed.update(now.fleet.row_of[node] for node in delayed)

    def _can_reuse(self, turn: str | None, executor: ExecutorView) -> bool:
        """Return whether the room of an idle executor is not reserved; if so, charge it in the outlook."""
        if self._outlook is None:
            return True
        fleet = self._outlook.fleet
        if not charge_back(fleet, self._world.fleet, (executor.id,)):
            return False
        delayed = self._promises.delays((self._world.fleet.ledger[executor.id],), fleet, turn)
        if delayed:
            fleet.release(executor.id)
        return not delayed

    def _grant_beyond_limit(self, leaf: Leaf, code: Code) -> Code | None:
        """Handle a limit of the queue or the application: wait for what leaves it, or evict others of it."""
        demand = self._demands[leaf.session]
        if self._tree.over_limit(leaf, leaving=False) is None:
            return None if self._hold(demand) else code
        found = self._limits.claim(self._claim(demand))
        if found is None:
            return code
        self._report(found.for_room, demand, Cause.SHARE)
        self._report(found.for_limit, demand, Cause.LIMIT)
        self._promise(demand, found.places)
        return None

    def _hold(self, demand: Demand, *, displace: bool = False) -> bool:
        """Promise a place that others are leaving for one unit, or evict others."""
        if not displace and self._wait(demand):
            return True
        claimed = self._reclaim.claim(self._claim(demand, displace=displace))
        if claimed is None:
            return False
        victims, placed = claimed
        self._evict(victims, demand, Cause.OVERDUE if displace else Cause.SHARE)
        self._promise(demand, placed)
        return True

    def _wait(self, demand: Demand) -> bool:
        """Promise a place that others are leaving for one unit."""
        placed = place_unit(self._open_outlook(), demand, self._name(demand), demand.batch_size)
        if placed is not None:
            self._promise(demand, placed)
        return placed is not None

    def _evict(self, victims: Iterable[ExecutorVictim], claimant: Demand, cause: Cause) -> None:
        victims = tuple(victims)
        self._reclaim.count_out(victims)
        self._report(victims, claimant, cause)

    def _report(self, victims: Iterable[ExecutorVictim], claimant: Demand, cause: Cause) -> None:
        """Add the actions of evictions that are charged already."""
        eviction = Eviction(claimant.session, cause, self._times.now)
        for member in (member for victim in victims for member in victim.members):
            self._promises.gives_way(member.id, eviction)
            self._actions.append(Unbind(member.id, eviction))
        if self._policy.reclaim_grace_s is not None:
            self._times.wake_after(self._policy.reclaim_grace_s)

    def _promise(self, demand: Demand, placed: tuple[Allocation, ...]) -> None:
        self._record_reserved(demand, placed)
        self._promises.add(demand.session, placed)

    def _record_reserved(self, demand: Demand, placed: tuple[Allocation, ...]) -> None:
        self._waiting[demand.session] = demand.held_back or Code.RECLAIMING
        self._reserved[demand.session] = self._reserved.get(demand.session, ()) + placed

    def _shortage(self, demand: Demand) -> Code:
        if self._outlook is not None:
            trial = self._now.fleet.checkpoint()
            alone = place_unit(self._now, demand, "probe", demand.batch_size)
            self._now.fleet.rollback(trial)
            if alone is not None:
                return Code.RESERVED
        return shortage(self._now.fleet, demand)

    def _name(self, demand: Demand) -> str:
        self._placed += 1
        return f"plan/{demand.session}/{self._placed}"


def _longest_waiting(demand: Demand) -> tuple[int, float, int, str]:
    return (-demand.priority, demand.waiting_since or 0.0, demand.number, demand.session)
