"""Preemption for pods that wait in queues: kube-scheduler does not see them before they are admitted.

Pods that stand alone are reported to the preemptor, as those are that kube-scheduler asks about. Room for a gang is
made for as many members as start together, or nobody is evicted: victims are found for all members at once
(`core/evicting/gang_eviction.py`), each eviction is tried with a dry run, and the room is reserved for the members. The
gates give it to them together, as soon as the last victim has left. Nobody is evicted for pods that request cards of
several families, or that kube-scheduler may refuse where others have left (`wire/scheduler_fields.py`).
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import islice

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
from ullage.model.family_ids import further_ids, uid_of
from ullage.service.gates import Gates
from ullage.wire.scheduler_fields import fields_for_scheduler

ROUND_S = 1.0
"""Seconds between two looks at those who wait."""

_MOST_PODS = 64
_MOST_GANGS = 8
"""Pods and gangs for which room is looked for in one round, the first by priority and age."""


class QueuePreemption:
    """Makes room for pods and gangs with a priority of the cluster that the gates refuse for lack of room."""

    def __init__(self, context: KubeContext, term: ReadyTerm, gates: Gates, preemptor: Preemptor) -> None:
        self._cluster, self._budgets, self._clock = context.cluster, context.followed.budgets, context.clock
        self._record_event, self._on_error, self._now = context.record_event, context.on_error, context.now
        self._term, self._gates, self._preemptor = term, gates, preemptor
        self._pause, self._pods, self._settings = context.pause, context.followed.pods.objects, context.pod_settings
        self._reported: set[str] = set()
        """The pods that stand alone for which evictions help, as of the last look at each."""
        preemptor.restrict(self._allow)
        self._not_before: dict[str, float] = {}
        """When room may be looked for, by the key of the unit (seconds): a while after it was first refused."""
        term.subscribe(self._not_before.clear)
        self.controller = Controller("PodGroup", self.reconcile, on_error=context.on_error, guard=term.begun)
        self.controller.add(ALL)

    async def reconcile(self, _key: str) -> float:
        """Report single pods, and make room for gangs; those of the highest priority first."""
        epoch, lowest = self._term.check(), self._cluster.holders.lowest_priority
        short = [unit for unit in self._gates.short_of_room() if unit.priority > lowest]
        gangs = [unit for unit in short if unit.alone is None]
        await self._report([request for unit in short if (request := unit.alone) is not None])
        now = self._clock()
        known = {unit.key: self._not_before.get(unit.key, now + PATIENCE_S) for unit in gangs}
        self._not_before.clear()
        self._not_before.update(known)
        due = [unit for unit in gangs if known[unit.key] <= now and self._may_preempt(unit)]
        for unit in due[:_MOST_GANGS]:
            self._not_before[unit.key] = self._clock() + AGAIN_S
            try:
                async with self._preemptor.turn:
                    await self._make_room(epoch, unit)
            except UllageError as error:
                self._on_error("PodGroup", unit.key, error)
        return ROUND_S

    async def _report(self, alone: Iterable[Request]) -> None:
        """Tell the preemptor on which nodes evictions could help, as answers to kube-scheduler do."""
        due = list(islice(filter(self._is_decided_here, alone), _MOST_PODS))
        self._reported &= {request.uid for request in due}
        for request in due:
            began = time.perf_counter()
            self._reported.discard(request.uid)
            self._report_one(request)
            await self._pause(time.perf_counter() - began)

    def _report_one(self, request: Request) -> None:
        names = list(self._term.mirror.machines.by_name)
        offers = self._cluster.offers(request, names, expected=False)
        helps = [name for refusal, refused in offers.refused if refusal.helps for name in refused]
        if not offers.names and helps and self._gates.waiting(request.uid) is not None:
            self._reported.add(request.uid)
            self._preemptor.refused([(request, helps)])

    def _allow(self, request: Request) -> bool:
        """Return whether others may be evicted for a single pod: one that waits in no queue, or within its limits."""
        if self._gates.waiting(request.uid) is None:
            return True
        return request.uid in self._reported and self._gates.may_gain_room([request])

    def _may_preempt(self, unit: Unit) -> bool:
        """Return whether all members may preempt, and no room is being made for any."""
        lowest = self._cluster.holders.lowest_priority
        return all(
            self._is_decided_here(request)
            and request.claim.priority > lowest
            and self._preemptor.may_preempt(request.claim)
            and not self._preemptor.has_room(request.uid)
            for request in unit.requests
        ) and self._gates.may_gain_room(unit.requests)

    def _is_decided_here(self, request: Request) -> bool:
        """Return whether nothing but the room for cards of one family decides on the node of a pod."""
        uid, pod = request.claim.pod_uid, self._pods.get((request.claim.namespace, request.claim.pod))
        if request.uid != uid or pod is None or any(map(self._gates.waiting, further_ids(uid))):
            return False
        return not fields_for_scheduler(pod.document, self._settings)

    async def _make_room(self, epoch: int, unit: Unit) -> None:
        if not self._may_preempt(unit):
            return
        members, began = {request.uid: request for request in unit.requests}, time.perf_counter()
        rooms = self._cluster.victims_of_gang(unit.requests, self._left())
        await self._pause(time.perf_counter() - began)  # yield as much time to other tasks
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
        if not self._still(unit, rooms):
            for uid in rooms:
                self._preemptor.keep_for(uid, 0)
            return
        self._reserve(rooms, members)
        for uid, found in evictions.items():
            await self._evict(epoch, members[uid], rooms[uid].choice.node, found)
            self._preemptor.keep_for(uid, RESERVED_S)

    def _still(self, unit: Unit, rooms: Mapping[str, Preemption]) -> bool:
        """Return whether all members still wait after an await, and the same victims make room for them."""
        waiting = all(self._preemptor.may_preempt(request.claim) for request in unit.requests)
        if not waiting or not self._gates.may_gain_room(unit.requests):
            return False
        now = self._cluster.victims_of_gang(unit.requests, self._left())
        return {uid: (each.choice.node, each.uids) for uid, each in now.items()} == {
            uid: (each.choice.node, each.uids) for uid, each in rooms.items()
        }

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
