"""The cycle on the live state: it makes one plan of the present facts, and carries it out.

Changes request cycles. What each session deserves is computed again only after a change of demand or inventory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from ullage.core.cycle import schedule
from ullage.core.explaining.explain import Reasons, explain
from ullage.core.placing.reserving import reserving_requests
from ullage.core.sharing.entitlement import KnownEntitlement, entitlement
from ullage.core.sharing.plan import EvictExecutor, Keep, Plan, Release, Reuse, Start, Unbind
from ullage.core.sharing.world import WORKING, Demand, Promise, World
from ullage.core.verdict.sentences import CURES
from ullage.model.executor import ExecutorGang
from ullage.model.rejection import Code, Cure
from ullage.service.context import ServiceContext
from ullage.service.executors import Executors
from ullage.service.fair_share import FairShare, Weighed, as_they_are
from ullage.service.nodes import DRAIN_S
from ullage.service.waits import Waits

_NO_NODE = frozenset({Code.NO_NODES, Code.TOO_LARGE})
"""No node fits. A wait continues: a node that is lost or has not reported since the start may return."""


class Loop:
    """Runs cycles over the state and carries out their plans."""

    def __init__(
        self, context: ServiceContext, executors: Executors, waits: Waits, fair_share: FairShare | None
    ) -> None:
        self._state, self._executors, self._waits = context.state, executors, waits
        self._fair_share = fair_share
        self.policy, self._clock = context.policy, context.clock
        self._nodes_expected_until = self._clock() + DRAIN_S
        self._entitlement = KnownEntitlement()
        self._gangs = 0
        self.cycles = 0
        self.dirty = True

    def world(self) -> World:
        """Return the present facts, without sessions that neither request nor hold anything."""
        views = tuple(executor.view() for executor in self._state.executors.values())
        weighed = self._weigh()
        return World(
            self._state.fleet,
            self._demands(weighed),
            views,
            weighed.queues,
            promises=self._state.promises,
            nodes_expected_until=self._nodes_expected_until,
        )

    def _weigh(self, also: str | None = None) -> Weighed:
        return as_they_are(self._state) if self._fair_share is None else self._fair_share.weigh(also)

    def _demands(self, weighed: Weighed, also: str | None = None) -> tuple[Demand, ...]:
        now, weights = self._clock(), weighed.sessions
        records = (r for r in self._state.sessions.values() if r.open and (r.id == also or not r.at_rest))
        return tuple(self._state.demand(record, now, weights.get(record.id)) for record in records)

    def run(self) -> Plan:
        """Run one cycle: decide, carry the plan out, and note what each session waits for."""
        self.dirty = False
        self.cycles += 1
        world = self.world()
        deserved = self._entitlement.of(world, self.policy)
        allocator = self._state.allocator
        # Sessions do not get the room of nominated requests: these could not evict their executors.
        with reserving_requests(allocator.fleet, allocator.nominations, allocator.rules.cap):
            plan = schedule(world, self.policy, self._clock(), deserved=deserved)
        started = {action.session for action in plan.actions if isinstance(action, (Start, Reuse))}
        self._note_promises(plan, started)
        self._carry_out(plan)
        self._executors.forget_shields()
        self._state.keep_promises()
        self._executors.set_yielding(plan.yielding)
        self._note_waiting(plan, started)
        self._waits.save()
        return plan

    def _note_promises(self, plan: Plan, started: set[str]) -> None:
        before = self._state.promises
        self._state.promises = self._waits.of_unknown_nodes(before, started, plan.promised)
        for session, places in plan.promised.items():
            others = self._state.promises.get(session, Promise(())).places
            self._state.promises[session] = Promise((*places, *others), session in before and before[session].paid)

    def explaining(self, session: str, *, open_: bool) -> Callable[[], Reasons]:
        """Return a function that explains why a session has what it has, by the code of the cycle on copied facts."""
        allocator, policy, now = self._state.allocator, self.policy, self._clock()
        nominations, cap, fleet = allocator.nominations, allocator.rules.cap, allocator.fleet.copy(apart=True)
        cycle = replace(self.world(), fleet=fleet, promises=dict(self._state.promises))
        world = replace(cycle, demands=self._demands(self._weigh(session), session))

        def why() -> Reasons:
            deserved = entitlement(cycle, policy)
            with reserving_requests(fleet, nominations, cap):
                return explain(world, policy, now, session, open_=open_, deserved=deserved)

        return why

    def _carry_out(self, plan: Plan) -> None:
        gangs: dict[int, str] = {}
        for action in plan.actions:
            if isinstance(action, (Start, Reuse)):
                gang = self._gang_of(action, gangs)
                if isinstance(action, Start):
                    self._executors.start(action, gang)
                else:
                    self._executors.reuse(action, gang)
            elif isinstance(action, Unbind):
                self._executors.unbind(action)
            elif isinstance(action, Keep):
                self._executors.keep(action)
            elif isinstance(action, Release):
                self._executors.release(action)
            elif isinstance(action, EvictExecutor):
                self._executors.evict(action)

    def _gang_of(self, action: Start | Reuse, gangs: dict[int, str]) -> ExecutorGang | None:
        if action.gang is None:
            return None
        if action.gang not in gangs:
            self._gangs += 1
            gangs[action.gang] = f"g{self._state.epoch}-{self._gangs}"
        size = self._state.session(action.session).session.spec.batch_size
        return ExecutorGang(gangs[action.gang], action.rank, size)

    def overdue_at(self) -> float | None:
        """Return when the next session that waits for room becomes overdue."""
        now = self._clock()
        since = (record.waiting_since for record in self._state.sessions.values() if record.open)
        due = (at + self.policy.reserve_after_s for at in since if at is not None)
        return min((at for at in due if at > now), default=None)

    def _note_waiting(self, plan: Plan, started: set[str]) -> None:
        now = self._clock()
        for record in self._state.sessions.values():
            if not record.open:
                continue
            record.deserved = plan.deserved.get(record.id, 0)
            record.waiting_for = plan.waiting.get(record.id)
            short_of_room = record.waiting_for is not None and CURES.get(record.waiting_for) is Cure.CAPACITY
            held = sum(executor.phase in WORKING for executor in record.executors.values())
            starves = short_of_room and (not held or held < record.deserved)
            goes_on = starves or (record.waiting_for in _NO_NODE and not held)
            if not goes_on or record.id in started:
                record.waiting_since = None
            if starves and record.waiting_since is None:
                record.waiting_since = now
