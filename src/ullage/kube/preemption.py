"""Who gives way where kube-scheduler does not see that it would help: for parts of cards, and cards that parts hold.

kube-scheduler asks for victims only where its own filters want some, and those know no parts of cards. So a pod
that no node can take is given a moment; if its scheduler has offered nobody by then, the cheapest victims on one of
the nodes that it asked about are evicted, all or none, as far as their disruption budgets allow. Their room is kept
for the pod, and kube-scheduler, which hears that they are gone, asks about it again.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Awaitable, Callable, Hashable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ullage.core.evicting.preemption import Preemption
from ullage.kube.client.changes import Evict, Patch, PatchType
from ullage.kube.client.errors import Unreachable, VersionConflict
from ullage.kube.client.informer import Changed, Informer, News, Removed
from ullage.kube.client.kinds import PODS
from ullage.kube.client.lease import Candidate, NotLeading, clock_s
from ullage.kube.client.objects import Node, Pod, PodDisruptionBudget
from ullage.kube.disruption import budgets_of
from ullage.kube.events import PodEvent, Reason, RecordEvent
from ullage.kube.machines import OnError
from ullage.kube.mirror import Mirror
from ullage.model.claim import Claim, Request
from ullage.model.error import NotFound, UllageError
from ullage.service.cluster import Cluster
from ullage.wire.pod import DOMAIN, ReadPod
from ullage.wire.pod.gate import ROOM

ROUND_S = 0.5
"""Between two looks at who waits."""

PATIENCE_S = 2.0
"""So long the scheduler has time to offer victims itself, which it does right after a pod was refused."""

AGAIN_S = 30.0
"""Before the next try for the same pod, or after its scheduler has offered victims."""

RESERVED_S = 120.0
"""So long room is kept for a pod after the last of its victims is gone."""

ASKED_S = 300.0
"""So long what a scheduler asked counts: then it has asked again, or the pod is gone."""

NEWS_S = 1.0
"""So long before this process a scheduler may have heard that a node changed: it does not ask once more for that."""

_TRIES = 3
"""Nodes on which it is asked, in one round, whether those may leave who hold what a pod needs."""

_AT_ONCE = 25
"""Nodes that are looked at before anybody else is answered."""

MOST_NODES = 400
"""Nodes that are looked at in one try for a pod; the next try goes on with others."""

_MOST = 256
"""Pods that are seen to at a time, the first by their priority and age."""

Wanted = Sequence[tuple[Request, Sequence[str]]]
"""What a pod asks for, on which nodes: as bindings allow it, in one way or several."""


@dataclass(slots=True)
class _Waiting:
    """A pod that was refused on all nodes: when that was heard last, and when something may be done (seconds).

    `refused` are nodes where the API server did not let those leave who would have had to. Of many nodes the next try
    begins after the first `looked`.
    """

    wanted: Wanted
    heard: float
    not_before: float
    refused: set[str] = field(default_factory=set)
    looked: int = 0

    @property
    def claim(self) -> Claim:
        return self.wanted[0][0].claim

    @property
    def equivalence_class(self) -> Hashable:
        """The same for all that ask for the same on the same nodes, with the same right to it."""
        claim = replace(self.claim, pod="", pod_uid="", created_at=0.0, labels={})
        return tuple((replace(request, uid="any", claim=claim), frozenset(nodes)) for request, nodes in self.wanted)

    @property
    def rank(self) -> tuple[int, float, str]:
        return -self.claim.priority, self.claim.created_at, self.claim.pod_uid


@dataclass(slots=True)
class _Reserved:
    """Room that is kept for a pod on the node of its victims, and until when at the earliest (seconds).

    `by_scheduler` if kube-scheduler evicted them: it says so with the node that it nominates.
    """

    pod: tuple[str, str]
    node: str
    until: float
    by_scheduler: bool = False


class Preemptor:
    """`refused` and `answered` take what kube-scheduler was told; `run` sees to who still waits."""

    def __init__(
        self,
        cluster: Cluster,
        mirror: Mirror,
        candidate: Candidate,
        pods: Informer[Pod],
        nodes: Informer[Node],
        budgets: Callable[[], Iterable[PodDisruptionBudget]],
        read_pod: ReadPod,
        record_event: RecordEvent,
        *,
        domain: str = DOMAIN,
        most_nodes: int = MOST_NODES,
        clock: Callable[[], float] = clock_s,
        pause: Callable[[float], Awaitable[None]] = asyncio.sleep,
        on_error: OnError = lambda _kind, _name, _error: None,
    ) -> None:
        self._cluster, self._mirror, self._candidate, self._pods = cluster, mirror, candidate, pods
        self._budgets, self._read_pod, self._key = budgets, read_pod, f"{domain}/{ROOM}"
        self._record_event = record_event
        self._most_nodes = most_nodes
        self._clock, self._pause, self._on_error = clock, pause, on_error
        self._waiting: dict[str, _Waiting] = {}
        self._reserved: dict[str, _Reserved] = {}
        self.evicted = 0
        """Pods that gave way, since the start."""
        self._lowest = -math.inf
        self._in_vain: set[Hashable] = set()
        """What was asked in this round where nobody helps: of pods that ask alike one is looked at."""
        self._changed: dict[str, float] = {}
        """When nodes were told to be others than before: what a scheduler thought of them then no longer counts."""
        pods.subscribe(self._on_pod)
        nodes.subscribe(self._on_node)

    # --- what kube-scheduler was told ---

    def refused(self, wanted: Wanted) -> None:
        """No node can take a pod, and on these it could if others left."""
        if not wanted or wanted[0][0].claim.priority <= self._lowest:
            return
        now, uid, known = self._clock(), wanted[0][0].uid, self._waiting.get(wanted[0][0].uid)
        if known is None:
            self._waiting[uid] = _Waiting(self._shared(wanted), now, now + PATIENCE_S)
        else:
            known.wanted, known.heard = self._shared(wanted), now
        if len(self._waiting) > _MOST:
            del self._waiting[max(self._waiting, key=lambda each: self._waiting[each].rank)]

    def answered(self, uid: str, *, placed: bool) -> None:
        """A pod was offered nodes (`placed`), or its scheduler was told who may leave: that one sees to it."""
        if placed:
            self._waiting.pop(uid, None)
        elif uid in self._waiting:
            self._waiting[uid].not_before = self._clock() + AGAIN_S

    @staticmethod
    def _shared(wanted: Wanted) -> Wanted:
        """The same with names of which there is one each: many pods ask about thousands."""
        return [(request, tuple(map(sys.intern, nodes))) for request, nodes in wanted]

    # --- what is done about it ---

    def begin(self) -> None:
        """Keep the room again that others gave before this term, before anybody is answered."""
        for uid in list(self._reserved):
            self._drop(uid)
        for pod in self._pods.objects.values():
            node = (pod.metadata.annotations or {}).get(self._key, "")
            if node and _is_unplaced(pod):
                self._restore_reservation(pod, node)
            self._follow_scheduler(pod)

    def _follow_scheduler(self, pod: Pod) -> None:
        """Keep the room for which kube-scheduler evicted others, for as long as it nominates the node."""
        uid, node = pod.metadata.uid, _nominated_on(pod) if _is_unplaced(pod) else ""
        kept = self._reserved.get(uid)
        if kept is not None and kept.by_scheduler and kept.node != node:
            self._drop(uid)
        if node and uid not in self._reserved:
            self._restore_reservation(pod, node, by_scheduler=True)

    def _restore_reservation(self, pod: Pod, node: str, *, by_scheduler: bool = False) -> None:
        try:
            asked = self._read_pod(pod.document)
        except UllageError:
            return
        if asked is not None and asked.uid == pod.metadata.uid and not self._promised(asked.uid):
            self._cluster.keep_room(asked.request, node)
            self._reserved[asked.uid] = _Reserved(pod.key, node, self._clock() + RESERVED_S, by_scheduler)

    async def run(self) -> None:
        """Look every `ROUND_S`."""
        while True:
            await self.look()
            await self._pause(ROUND_S)

    async def look(self) -> None:
        """See to those who wait, in the order of their priority; evicts nobody while another process leads."""
        epoch = self._candidate.epoch
        if epoch is None or self._mirror.term != epoch:
            return
        self._in_vain.clear()
        self._lowest = self._cluster.lowest_priority
        await self._expire_reservations(epoch)
        for entry in sorted(self._waiting.values(), key=lambda each: each.rank):
            if entry.not_before > self._clock():
                continue
            if entry.heard + ASKED_S < self._clock() or not self._waits(entry.claim):
                self._waiting.pop(entry.claim.pod_uid, None)
                continue
            entry.not_before = self._clock() + AGAIN_S
            try:
                await self._preempt_for(epoch, entry)
            except UllageError as error:
                self._on_error("Pod", f"{entry.claim.namespace}/{entry.claim.pod}", error)

    def _waits(self, claim: Claim) -> bool:
        """Whether a pod is still to be placed, and others may be evicted for it.

        They may be for a priority that its cluster gave it, not for a quality of service: anybody may ask for that.
        """
        pod = self._pods.objects.get((claim.namespace, claim.pod))
        if pod is None or pod.metadata.uid != claim.pod_uid or not _is_unplaced(pod):
            return False
        return pod.spec.preemption_policy != "Never" and (pod.spec.priority or 0) >= claim.priority

    async def _preempt_for(self, epoch: int, entry: _Waiting) -> None:
        if entry.equivalence_class in self._in_vain:
            return
        for _ in range(_TRIES):
            found = await self._cheapest(entry)
            if found is None:
                if self._still(entry) and not entry.refused:
                    self._in_vain.add(entry.equivalence_class)
                entry.refused.clear()
                return
            request, preemption = found
            leaving = [self._pod_of(uid) for uid in preemption.uids]
            evictions = [Evict(*pod.key, pod.metadata.uid) for pod in leaving if pod is not None]
            if len(evictions) < len(leaving):
                return  # the books are ahead of what was heard of pods, or behind
            if await self._may_leave(epoch, evictions):
                await self._make_room(epoch, entry, request, preemption, evictions)
                return
            entry.refused.add(preemption.choice.node)

    async def _may_leave(self, epoch: int, evictions: Iterable[Evict]) -> bool:
        """Whether the API server lets all of them leave, each on its own; who is gone by now may."""
        for each in evictions:
            try:
                with suppress(NotFound, VersionConflict):  # it is gone
                    await self._candidate.write(epoch, replace(each, dry_run=True))
            except (NotLeading, Unreachable):
                raise
            except UllageError as error:
                self._on_error("Pod", f"{each.namespace}/{each.name}", error)
                return False
        return True

    async def _make_room(
        self, epoch: int, entry: _Waiting, request: Request, preemption: Preemption, evictions: Sequence[Evict]
    ) -> None:
        node, claim = preemption.choice.node, entry.claim
        pod = claim.namespace, claim.pod
        if not self._still(entry):
            return
        await self._annotate(epoch, pod, claim.pod_uid, node)
        # Given up at once unless a victim leaves.
        kept = self._reserved[request.uid] = _Reserved(pod, node, self._clock())
        if not self._still(entry):
            return
        self._cluster.give_way(request, preemption)
        if evictions:
            names = ", ".join(f"{each.namespace}/{each.name}" for each in evictions)
            self._record_event(PodEvent(*pod, claim.pod_uid, Reason.MAKES_ROOM, f"{names} give way to it on {node}"))
        for each in evictions:
            await self._evict(epoch, each, f"by pod {claim.namespace}/{claim.pod} on node {node}")
        kept.until = self._clock() + RESERVED_S

    def _still(self, entry: _Waiting) -> bool:
        """Whether nothing was found for a pod while something was awaited."""
        claim, uid = entry.claim, entry.claim.pod_uid
        held = self._cluster.held(uid) is not None or self._promised(uid)
        return self._waiting.get(uid) is entry and self._waits(claim) and not held

    async def _evict(self, epoch: int, eviction: Evict, message: str) -> None:
        with suppress(NotFound, VersionConflict):
            await self._candidate.write(epoch, eviction)
            self.evicted += 1
            self._cluster.leaving(eviction.uid)
            self._record_event(PodEvent(eviction.namespace, eviction.name, eviction.uid, Reason.PREEMPTED, message))

    async def _annotate(self, epoch: int, pod: tuple[str, str], uid: str, node: str | None) -> None:
        """Write on a pod where room is kept for it, or that none is any more."""
        body = {"metadata": {"uid": uid, "annotations": {self._key: node}}}
        await self._candidate.write(epoch, Patch(PODS, pod[1], body, pod[0], PatchType.MERGE))

    async def _cheapest(self, entry: _Waiting) -> tuple[Request, Preemption] | None:
        """Where it will fit when those are gone who leave anyway, else the cheapest victims on one node.

        None if nobody helps, none of them would keep within its budget, or it has a place by now.
        """
        if not self._still(entry):
            return None
        first, entry.looked = entry.looked, 0
        for anyway in (True, False):
            for request, nodes in entry.wanted:
                able = self._able(entry, request, nodes, first, anyway=anyway)
                for start in range(0, len(able), _AT_ONCE):
                    began = time.perf_counter()
                    best = self._cheapest_on(request, able[start : start + _AT_ONCE], anyway=anyway)
                    if best is not None:
                        return (request, best) if anyway or best.victims else None
                    await self._pause(time.perf_counter() - began)  # others get as much time
                    if not self._still(entry):
                        return None
                    self._mirror.settle()
        return None

    def _able(
        self, entry: _Waiting, request: Request, nodes: Sequence[str], first: int, *, anyway: bool
    ) -> Sequence[str]:
        """Nodes that somebody leaves anyway, or some of those where somebody of lower priority is."""
        self._mirror.settle()
        able = self._cluster.being_left(nodes) if anyway else self._cluster.with_lower_priority(request, nodes)
        able = [node for node in able if self._counts(entry, node)]
        if anyway:
            return able
        after = first + self._most_nodes
        entry.looked = max(entry.looked, after if after < len(able) else 0)
        return able[first:after]

    def _counts(self, entry: _Waiting, node: str) -> bool:
        return node not in entry.refused and self._changed.get(node, -math.inf) <= entry.heard + NEWS_S

    def _cheapest_on(self, request: Request, nodes: Sequence[str], *, anyway: bool) -> Preemption | None:
        """One where nobody need leave who does not anyway, else (but with `anyway`) the one where that costs least."""
        left = budgets_of(self._budgets(), self._cluster.holders_on(nodes))
        found = self._cluster.victims(request, dict.fromkeys(nodes, ()), left).values()
        room = next((each for each in found if not each.victims), None)
        if anyway or room is not None:
            return room
        costs = {each.cost: each for each in found if each.cost is not None and not each.cost.violations}
        return costs[min(costs)] if costs else None

    def _promised(self, uid: str) -> bool:
        return self._cluster.allocator.nominations.of(uid) is not None

    def _pod_of(self, uid: str) -> Pod | None:
        held = self._cluster.held(uid)
        claim = None if held is None else held.claim
        pod = None if claim is None else self._pods.objects.get((claim.namespace, claim.pod))
        return pod if pod is not None and pod.metadata.uid == uid else None

    # --- what is kept ---

    async def _expire_reservations(self, epoch: int) -> None:
        """Give up room that nobody has come for, once all who leave its node are gone."""
        now = self._clock()
        for uid, kept in list(self._reserved.items()):
            if self._cluster.leaves(kept.node):
                kept.until = now + RESERVED_S
            elif kept.until <= now:
                try:
                    with suppress(NotFound, VersionConflict):  # the pod is gone, and so is the room
                        await self._annotate(epoch, kept.pod, uid, None)
                except UllageError as error:
                    self._on_error("Pod", "/".join(kept.pod), error)
                else:
                    self._drop(uid)

    def _on_pod(self, news: News[Pod]) -> None:
        pod = news.last if isinstance(news, Removed) else news.new
        if isinstance(news, Removed) or not _is_unplaced(pod):
            self._waiting.pop(pod.metadata.uid, None)
            self._drop(pod.metadata.uid)
        else:
            self._follow_scheduler(pod)

    def _on_node(self, news: News[Node]) -> None:
        match news:
            case Removed(last):
                self._changed.pop(last.metadata.name, None)
            case Changed(last, new) if _kind_of(last) != _kind_of(new):
                self._changed[new.metadata.name] = self._clock()

    def _drop(self, uid: str) -> None:
        known = self._cluster.allocator.nominations.of(uid)
        if self._reserved.pop(uid, None) is not None and known is not None and known.first_come:
            self._cluster.withdraw(uid)


def _is_unplaced(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.finished or pod.terminating)


def _nominated_on(pod: Pod) -> str:
    status = pod.document.get("status")
    node = status.get("nominatedNodeName") if isinstance(status, dict) else None
    return node if isinstance(node, str) else ""


def _kind_of(node: Node) -> tuple[object, object]:
    """What of a node decides who may come: its taints and labels."""
    return node.document.get("spec"), node.metadata.labels
