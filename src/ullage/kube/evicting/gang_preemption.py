"""Preemption for gangs in queues: room for as many members as start together, or no eviction at all.

kube-scheduler makes room for one pod after the other, so it may evict for a gang that then does not fit. Here victims
are found for all members at once (`core/evicting/gang_eviction.py`), each eviction is tried with a dry run, and the
room is reserved for the members. The gates give it to them together, as soon as the last victim has left.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ullage.core.admitting.turns import Unit
from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.victims import NO_BUDGETS, Budgets
from ullage.kube.client.changes import Evict
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.evicting.disruption import budgets_of
from ullage.kube.evicting.preemption import AGAIN_S, PATIENCE_S, RESERVED_S, Preemptor
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.claim import Request
from ullage.model.error import UllageError
from ullage.model.family_ids import uid_of
from ullage.service.gates import Gates

ROUND_S = 1.0
"""Seconds between two looks at gangs that wait."""

_AT_A_TIME = 8
"""Gangs for which room is looked for in one round, the first by priority and age."""


class GangPreemption:
    """Makes room for gangs whose members have a priority of the cluster, and that the gates refuse for lack of room."""

    def __init__(self, context: KubeContext, term: ReadyTerm, gates: Gates, preemptor: Preemptor) -> None:
        self._cluster, self._budgets, self._clock = context.cluster, context.followed.budgets, context.clock
        self._record_event, self._on_error, self._now = context.record_event, context.on_error, context.now
        self._term, self._gates, self._preemptor = term, gates, preemptor
        self._not_before: dict[str, float] = {}
        """When room may be looked for, by the key of the unit (seconds): a while after it was first refused."""
        term.subscribe(self._not_before.clear)
        self.controller = Controller("PodGroup", self.reconcile, on_error=context.on_error, guard=term.begun)
        self.controller.add(ALL)

    async def reconcile(self, _key: str) -> float:
        """Make room for gangs, those of the highest priority first."""
        epoch, now, short = self._term.check(), self._clock(), self._gates.short_gangs()
        known = {unit.key: self._not_before.get(unit.key, now + PATIENCE_S) for unit in short}
        self._not_before.clear()
        self._not_before.update(known)
        due = [unit for unit in short if known[unit.key] <= now and self._may_preempt(unit)]
        for unit in due[:_AT_A_TIME]:
            self._not_before[unit.key] = self._clock() + AGAIN_S
            try:
                await self._make_room(epoch, unit)
            except UllageError as error:
                self._on_error("PodGroup", unit.key, error)
        return ROUND_S

    def _may_preempt(self, unit: Unit) -> bool:
        """Return whether all members may preempt, request cards of one family, and have no room that is being made."""
        lowest = self._cluster.holders.lowest_priority
        return all(
            request.uid == uid_of(request.uid)
            and request.claim.priority > lowest
            and self._preemptor.may_preempt(request.claim)
            and not self._preemptor.has_room(request.uid)
            for request in unit.requests
        )

    async def _make_room(self, epoch: int, unit: Unit) -> None:
        members = {request.uid: request for request in unit.requests}
        rooms = self._cluster.victims_of_gang(unit.requests, self._left())
        leaving = {uid: self._preemptor.evictions_of([uid_of(each) for each in rooms[uid].uids]) for uid in rooms}
        evictions = {uid: found for uid, found in leaving.items() if found is not None}
        everybody = [each for found in evictions.values() for each in found]
        if not everybody or len(evictions) < len(rooms) or any(map(_breaks_budgets, rooms.values())):
            return
        if not await self._preemptor.may_leave(epoch, everybody) or not self._may_preempt(unit):
            return
        nodes = frozenset(room.choice.node for room in rooms.values())
        for uid, room in rooms.items():
            until = self._clock() + RESERVED_S
            await self._preemptor.reserve(epoch, members[uid].claim, room.choice.node, until=until, others=nodes)
        if not all(self._preemptor.may_preempt(request.claim) for request in unit.requests):
            for uid in rooms:
                self._preemptor.keep_for(uid, 0)
            return
        self._reserve(rooms, members)
        for uid, found in evictions.items():
            await self._evict(epoch, members[uid], rooms[uid].choice.node, found)
            self._preemptor.keep_for(uid, RESERVED_S)

    def _left(self) -> Budgets:
        found = self._budgets.objects.values()
        return budgets_of(found, self._cluster.allocator.fleet.ledger.values()) if found else NO_BUDGETS

    def _reserve(self, rooms: Mapping[str, Preemption], members: Mapping[str, Request]) -> None:
        """Reserve the place of each member, also where nobody leaves for it: others leave for its gang."""
        for uid, room in rooms.items():
            kept = room.nomination(members[uid], self._now())
            self._cluster.promise(replace(kept, first_come=True, owed=True))

    async def _evict(self, epoch: int, request: Request, node: str, evictions: list[Evict]) -> None:
        claim = request.claim
        if evictions:
            names = ", ".join(f"{each.namespace}/{each.name}" for each in evictions)
            self._record_event(PodEvent.of(claim, Reason.MAKES_ROOM, f"{names} are evicted for its gang on {node}"))
        for each in evictions:
            message = f"by the gang of pod {claim.namespace}/{claim.pod} on node {node}"
            await self._preemptor.evict(epoch, each, message)


def _breaks_budgets(room: Preemption) -> bool:
    return room.cost is not None and bool(room.cost.violations)
