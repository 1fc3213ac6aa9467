"""One pass over the world: who gets what now, who gives way, who waits and why.

Two sets of books are looked at. `now` is what is free this moment. The outlook is what will be free
once executors that are already leaving have left; capacity held for somebody is charged there. Work
may start where both have room, so room that was made for one session is never lent to another, and
everything else is.

Order of decisions:
1. the longest overdue request of each priority that can be helped is served, or room is held for it;
2. sessions below what they deserve are served, smallest dominant share first; where nothing is free
   they wait for what is leaving, or others give way;
3. what is left is lent to whoever wants it (work-conserving);
4. executors nobody needs any more are let go.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable

from ullage.core.entitlement import (
    Leaves,
    application_limits,
    entitlement,
    has_room,
    place_unit,
    shortage,
    wanted_units,
)
from ullage.core.placement import Placer
from ullage.core.plan import Action, Evict, Plan, Release, Reuse, Start, Unbind
from ullage.core.policy import Policy
from ullage.core.reclaim import Reclaim
from ullage.core.shares import Leaf, ShareTree
from ullage.core.world import Demand, ExecutorView, Phase, World
from ullage.core.yielding import Victim
from ullage.model.allocation import Allocation
from ullage.model.rejection import Code
from ullage.model.request import ResourceRequirement


def schedule(world: World, policy: Policy, now: float, seed: int = 0, deserved: dict[str, int] | None = None) -> Plan:
    """Decide one cycle. Pure: `world` is as before, and equal arguments give the equal plan.

    `now` is in seconds of any clock the world's times are in. `seed` is for strategies that sample;
    none of the built-in ones does. `deserved` spares the entitlement where the caller has it already.
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
        self._time = now
        self._deserved = deserved
        self._now = Placer(world.fleet, policy)
        self._empty = Placer(world.fleet.emptied(), policy)
        self._outlook: Placer | None = None
        self._demands = {demand.session: demand for demand in world.demands}
        self._held = world.held()
        self._leaving = world.leaving()
        self._idle = self._idle_by_kind()
        self._leaves = self._leaves_of(world.demands)
        self._tree = ShareTree(
            self._empty.fleet.total, world.queues, self._leaves.values(), policy.order, application_limits(world)
        )
        self._reclaim = Reclaim(world, self._tree, self._leaves, deserved)
        self._full: dict[tuple[ResourceRequirement, int], Code] = {}
        self._actions: list[Action] = []
        self._waiting: dict[str, Code] = {}
        self._reserved: dict[str, tuple[Allocation, ...]] = {}
        self._wake_at: list[float] = []
        self._gangs = 0
        self._placed = 0

    def run(self) -> Plan:
        if any(self._world.on_their_way()):
            self._open_outlook()
        self._serve_overdue()
        self._serve_entitled()
        self._lend_the_rest()
        self._let_go()
        self._explain_stops()
        self._wake_when_protection_ends()
        return Plan(
            tuple(self._actions),
            self._deserved,
            self._waiting,
            self._reserved,
            min(self._wake_at, default=None),
        )

    def _leaves_of(self, demands: Iterable[Demand]) -> dict[str, Leaf]:
        leaves, found = Leaves(self._world.fleet), {}
        for demand in demands:
            held = len(self._held.get(demand.session, ())) // demand.batch_size
            leaving = -(-self._leaving.get(demand.session, 0) // demand.batch_size)
            kind = (demand.application, demand.setup, demand.requirement) if self._idle else None
            reuses = kind if kind in self._idle else None
            found[demand.session] = leaves.of(demand, held=held, leaving=leaving, reuses=reuses)
        return found

    def _ceiling(self, demand: Demand) -> int:
        """Units a session may hold while others of its units are still leaving."""
        wanted = wanted_units(demand)
        if demand.max_instances is None:
            return wanted
        return min(wanted, demand.max_instances // demand.batch_size - self._leaves[demand.session].leaving)

    def _idle_by_kind(self) -> dict[tuple[object, ...], list[ExecutorView]]:
        """Idle executors by what makes them interchangeable, warmest last."""
        idle: dict[tuple[object, ...], list[ExecutorView]] = {}
        rows = self._world.fleet.row_of
        for executor in sorted(self._world.executors, key=lambda e: (e.since, e.id)):
            allocation = self._world.fleet.ledger.get(executor.id)
            if executor.phase is not Phase.IDLE or allocation is None or allocation.node not in rows:
                continue
            if self._world.fleet.schedulable[rows[allocation.node]]:
                idle.setdefault((executor.application, executor.setup, executor.requirement), []).append(executor)
        return idle

    def _open_outlook(self) -> Placer:
        if self._outlook is None:
            later = self._world.fleet.copy()
            for executor in self._world.on_their_way():
                if executor.id in later.ledger:
                    later.release(executor.id)
            self._outlook = Placer(later, self._policy)
        return self._outlook

    # --- the steps ---

    def _serve_overdue(self) -> None:
        """Hold room, or take it, for the request of each priority that has waited too long."""
        overdue: list[Demand] = []
        for demand in sorted(self._world.demands, key=_longest_waiting):
            leaf = self._leaves[demand.session]
            if demand.waiting_since is None or not wanted_units(demand) or not has_room(self._empty, demand):
                continue
            served = leaf.held and leaf.held * demand.batch_size >= self._deserved.get(demand.session, 0)
            if served or leaf.held >= self._ceiling(demand):
                continue
            due = demand.waiting_since + self._policy.reserve_after_s
            if due > self._time:
                self._wake_at.append(due)
            else:
                overdue.append(demand)
        done: set[int] = set()
        for demand in overdue:
            leaf = self._leaves[demand.session]
            if demand.priority not in done and self._tree.give(leaf, self._grant_overdue) is None:
                done.add(demand.priority)

    def _serve_entitled(self) -> None:
        for demand in self._world.demands:
            leaf = self._leaves[demand.session]
            leaf.target = min(self._deserved.get(demand.session, 0) // demand.batch_size, self._ceiling(demand))
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
        self._tree.fill(self._grant_free, alike=True)

    def _let_go(self) -> None:
        """Executors that nobody needs: idle or vacant long enough, of closed sessions, above a maximum."""
        grace = self._policy.reclaim_grace_s
        for executor in self._world.executors:
            idle = executor.phase is Phase.IDLE and not self._reclaim.taken(executor.id)
            awaited = executor.phase is Phase.LEAVING and executor.reclaimed and not executor.spared
            if idle and self._due(executor.since + executor.delay_release_s):
                self._actions.append(Release(executor.id))
            elif awaited and grace is not None and self._due(executor.since + grace):
                self._actions.append(Evict(executor.id))
        for session, executors in sorted(self._held.items()):
            self._thin_out(self._demands.get(session), executors)

    def _thin_out(self, demand: Demand | None, executors: list[ExecutorView]) -> None:
        gangs: dict[str, list[ExecutorView]] = {}
        for executor in sorted(executors, key=lambda e: (e.phase is Phase.BUSY, -e.bound_at, e.id)):
            gangs.setdefault(executor.gang or executor.id, []).append(executor)
        left = len(executors)
        for members in gangs.values():
            if any(self._reclaim.taken(member.id) for member in members):
                left -= len(members)
                continue
            if demand is None or (demand.max_instances is not None and left > demand.max_instances):
                leave = True
            else:
                leave = left - len(members) >= demand.floor and self._unneeded(demand, members)
            if leave:
                left -= len(members)
                self._actions.extend(Unbind(member.id) for member in members)

    def _unneeded(self, demand: Demand, members: list[ExecutorView]) -> bool:
        if demand.pending >= demand.batch_size or any(member.phase is not Phase.VACANT for member in members):
            return False
        return self._due(max(member.since for member in members) + demand.delay_release_s)

    def _due(self, at: float) -> bool:
        if at > self._time:
            self._wake_at.append(at)
        return at <= self._time

    def _wake_when_protection_ends(self) -> None:
        """Somebody waits, and time alone may make the one it waits for give way."""
        if self._waiting:
            ends = (executor.protected_until for executor in self._world.executors if executor.phase is Phase.BUSY)
            self._wake_at.extend(at for at in ends if at > self._time)

    def _explain_stops(self) -> None:
        fits_at_all: dict[Hashable, bool] = {}
        for demand in self._world.demands:
            leaf = self._leaves[demand.session]
            if leaf.shape not in fits_at_all:
                fits_at_all[leaf.shape] = has_room(self._empty, demand)
            held = leaf.held * demand.batch_size
            if held >= demand.want or demand.session in self._waiting:
                continue
            if demand.held_back is not None:
                self._waiting[demand.session] = demand.held_back
            elif not fits_at_all[leaf.shape]:
                self._waiting[demand.session] = Code.TOO_LARGE if self._world.fleet.schedulable.any() else Code.NO_NODES
            elif leaf.stopped in (Code.QUEUE_LIMIT, Code.APPLICATION_LIMIT, Code.RESERVED):
                self._waiting[demand.session] = leaf.stopped
            elif leaf.leaving and leaf.held >= self._ceiling(demand):
                self._waiting[demand.session] = Code.MAX_INSTANCES
            elif held and held >= self._deserved.get(demand.session, 0):
                self._waiting[demand.session] = Code.SHARE
            else:
                self._waiting[demand.session] = leaf.stopped or shortage(self._world.fleet, demand)

    # --- one unit ---

    def _grant_overdue(self, leaf: Leaf) -> Code | None:
        demand = self._demands[leaf.session]
        if self._start(demand, overdue=True) or self._hold(demand):
            return None
        entitled = leaf.held * demand.batch_size < self._deserved.get(demand.session, 0)
        if self._hold(demand, overdue=True, spare=not entitled):
            return None
        outlook = self._open_outlook()
        name = self._name(demand)
        awaited = self._reclaim.claim(demand, outlook, self._empty, self._time, name, overdue=True, patient=True)
        if awaited is None:
            return self._why_full(demand)  # only minima or higher priorities leaving could help: hold nothing idle
        self._note_held(demand, awaited[1])
        return None

    def _grant_entitled(self, leaf: Leaf) -> Code | None:
        demand = self._demands[leaf.session]
        if self._start(demand) or self._hold(demand):
            return None
        return self._why_full(demand)

    def _grant_free(self, leaf: Leaf) -> Code | None:
        demand = self._demands[leaf.session]
        if self._start(demand):
            return None
        return self._why_full(demand)

    def _why_full(self, demand: Demand) -> Code:
        return self._full.get((demand.requirement, demand.batch_size), Code.GANG_ROOM)

    def _start(self, demand: Demand, *, overdue: bool = False) -> bool:
        """Give one unit now: idle executors that match, new ones for the rest; all or nothing."""
        idle = self._idle.get((demand.application, demand.setup, demand.requirement), [])
        reuse = min(len(idle), demand.batch_size)
        missing = demand.batch_size - reuse
        shape = (demand.requirement, missing)
        if missing and shape in self._full:
            return False
        placed = place_unit(self._now, demand, self._name(demand), missing, self._outlook)
        if placed is None:
            self._full[shape] = self._full[demand.requirement, demand.batch_size] = self._shortage(demand)
            return False
        gang = None
        if demand.batch_size > 1:
            gang = self._gangs
            self._gangs += 1
        for rank in range(reuse):
            executor = idle.pop()
            self._reclaim.reused(executor.id)
            self._actions.append(Reuse(demand.session, executor.id, gang, rank))
        for rank, allocation in enumerate(placed, start=reuse):
            self._actions.append(Start(demand.session, allocation, gang, rank, overdue))
        return True

    def _grant_beyond_limit(self, leaf: Leaf, code: Code) -> Code | None:
        """The queue or the application is at its limit: wait for what leaves it, or make others of it leave."""
        demand = self._demands[leaf.session]
        if self._tree.over_limit(leaf, leaving=False) is not None:
            victims = self._reclaim.claim_within(demand, self._tree, self._open_outlook(), self._time)
            if not victims:
                return code
            for victim in victims:
                self._dismiss(victim, demand.session, counted=True)
        return None if self._hold(demand) else code

    def _hold(self, demand: Demand, *, overdue: bool = False, spare: bool = False) -> bool:
        """Keep room for one unit that others are leaving, or make them leave; `spare` lets them end their task."""
        outlook = self._open_outlook()
        name = self._name(demand)
        placed = place_unit(outlook, demand, name, demand.batch_size)
        if placed is None:
            claimed = self._reclaim.claim(demand, outlook, self._empty, self._time, name, overdue=overdue)
            if claimed is None:
                return False
            victims, placed = claimed
            for victim in victims:
                self._dismiss(victim, demand.session, spare=spare)
        self._note_held(demand, placed)
        return True

    def _dismiss(self, victim: Victim, claimant: str, *, spare: bool = False, counted: bool = False) -> None:
        """Tell a victim to go; `counted`: the tree knows already."""
        if victim.session is None and victim.members[0].phase is Phase.IDLE:
            self._actions.extend(Release(member.id) for member in victim.members)
            gone = {member.id for member in victim.members}
            for idle in self._idle.values():
                idle[:] = [executor for executor in idle if executor.id not in gone]
            return
        self._actions.extend(
            Unbind(member.id, reclaimed=True, spared=spare, claimant=claimant) for member in victim.members
        )
        if self._policy.reclaim_grace_s is not None and not spare:
            self._wake_at.append(self._time + self._policy.reclaim_grace_s)
        if victim.session in self._leaves and not counted:
            self._tree.take(self._leaves[victim.session], victim.units(self._demands[victim.session]))

    def _note_held(self, demand: Demand, placed: tuple[Allocation, ...]) -> None:
        self._waiting[demand.session] = Code.RECLAIMING
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
