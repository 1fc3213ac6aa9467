"""Preemption where kube-scheduler does not see that it helps: for parts of cards, and cards of which parts are held.

kube-scheduler asks for victims only if its own filters need some, and those filters do not know parts of cards. So an
unschedulable pod waits for a short time. If its scheduler has offered no victims by then, the cheapest victims on one
of the nodes it was filtered for are evicted: all of them or none, as far as their PodDisruptionBudgets allow. Their
room is reserved for the pod. kube-scheduler observes the deletions and tries the pod again.
"""

from __future__ import annotations

import asyncio
import math
import sys
import time
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

from ullage.core.evicting.victims import Budgets
from ullage.kube.client.changes import Evict, Patch, PatchType
from ullage.kube.client.errors import Unreachable, VersionConflict
from ullage.kube.client.informer import Changed, Delta, Removed
from ullage.kube.client.kinds import PODS
from ullage.kube.client.lease import NotLeading
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import ALL, Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.evicting.disruption import budgets_of
from ullage.kube.evicting.rooms import RoomOnNode
from ullage.kube.leader.ready_term import ReadyTerm
from ullage.model.claim import Claim, Request
from ullage.model.error import NotFound, UllageError
from ullage.model.family_ids import family_ids
from ullage.wire.pod.gate import ROOM, place_of

ROUND_S = 0.5
"""Seconds between two checks of pending pods."""

PATIENCE_S = 2.0
"""Seconds in which the scheduler can offer victims itself, which it does right after a pod was refused."""

AGAIN_S = 30.0
"""Seconds before the next attempt for the same pod, or after its scheduler has offered victims."""

RESERVED_S = 120.0
"""Seconds for which room stays reserved for a pod after its last victim is gone."""

ASKED_S = 300.0
"""Seconds for which a request of a scheduler counts. After that it has asked again, or the pod is gone."""

LAG_S = 1.0
"""Seconds by which a scheduler may learn of a changed node before this process. It does not ask again for that."""

_TRIES = 3
"""Maximum number of nodes in one round on which evictions are tried with a dry run."""

NODES_AT_ONCE = 8
"""Number of nodes that are examined before other requests are served."""

MOST_NODES = 400
"""Maximum number of nodes examined in one attempt for a pod. The next attempt continues with other nodes."""

_MOST = 256
"""Maximum number of pods considered in a round, the first by priority and age."""

Wanted = Sequence[tuple[Request, Sequence[str]]]
"""What a pod requests on which nodes, as bindings allow it, in one or several ways."""


@dataclass(slots=True)
class _Waiting:
    """A pod that was refused on all nodes: when this was last reported, and when an attempt may start (seconds).

    `refused` are nodes where the API server refused to evict victims. If there are many nodes, the next attempt starts
    after the first `examined`.
    """

    wanted: Wanted
    refused_at: float
    not_before: float
    further: Sequence[Wanted] = ()
    """What it requests of further families."""
    refused: set[str] = field(default_factory=set)
    examined: int = 0

    @property
    def claim(self) -> Claim:
        return self.wanted[0][0].claim

    @property
    def equivalence_class(self) -> Hashable:
        """The equivalence class of pods with the same request on the same nodes and the same right to preempt."""
        claim = replace(self.claim, pod="", pod_uid="", created_at=0.0, labels={})
        return tuple(
            tuple((replace(request, uid="any", claim=claim), frozenset(nodes)) for request, nodes in wanted)
            for wanted in (self.wanted, *self.further)
        )

    @property
    def rank(self) -> tuple[int, float, str]:
        return -self.claim.priority, self.claim.created_at, self.claim.pod_uid


@dataclass(slots=True)
class _Reserved:
    """Room reserved for a pod on the node of its victims, and the earliest time (seconds) when it expires.

    `by_scheduler`: kube-scheduler evicted the victims, as the nominated node of the pod shows. It does not expire while
    pods leave its node, or one of `others`: nodes of its gang.
    """

    pod: tuple[str, str]
    node: str
    until: float
    by_scheduler: bool = False
    others: Collection[str] = ()


class Preemptor:
    """Preempts for pods that still wait, every `ROUND_S`. `refused` and `answered` take answers to kube-scheduler."""

    def __init__(self, context: KubeContext, term: ReadyTerm, most_nodes: int = MOST_NODES) -> None:
        self._cluster, self._mirror, self._candidate = context.cluster, term.mirror, context.candidate
        self._pods, self._budgets = context.followed.pods, context.followed.budgets
        self._read_pod, self._key, self._domain = context.read_pod, context.key(ROOM), context.domain
        self._record_event, self._on_error = context.record_event, context.on_error
        self._term, self._most_nodes = term, most_nodes
        self._clock, self._pause = context.clock, context.pause
        self.turn = asyncio.Lock()
        """Held from the search for victims to the last eviction, so that no two look at the same victims."""
        self._allows: Callable[[Request], bool] = lambda _: True
        self._waiting: dict[str, _Waiting] = {}
        self._reserved: dict[str, _Reserved] = {}
        self.evicted = 0
        """Pods evicted since the start."""
        self._without_victims: set[Hashable] = set()
        """Equivalence classes for which no victims were found in this round: one pod of each class is examined."""
        self._changed: dict[str, float] = {}
        """When each node last changed its taints or labels. An earlier verdict of a scheduler on it is outdated."""
        term.subscribe(self.begin)
        self._pods.subscribe(self._on_pod)
        context.followed.nodes.subscribe(self._on_node)
        self.controller = Controller("Pod", self.reconcile, on_error=context.on_error, guard=term.begun)
        self.controller.add(ALL)

    def restrict(self, allows: Callable[[Request], bool]) -> None:
        """Evict others only for requests that this allows, when it is asked right before."""
        self._allows = allows

    # --- answers to kube-scheduler ---

    def refused(self, wanted: Wanted, *further: Wanted) -> None:
        """Note that no node fits a pod, and on which nodes evictions could help; also for its `further` families."""
        if not all((wanted, *further)):
            return
        (request, _), *_ = wanted
        now, uid, known = self._clock(), request.uid, self._waiting.get(request.uid)
        more = tuple(map(self._shared, further))
        if known is None:
            self._waiting[uid] = _Waiting(self._shared(wanted), now, now + PATIENCE_S, more)
        else:
            known.wanted, known.further, known.refused_at = self._shared(wanted), more, now
        if len(self._waiting) > _MOST:
            del self._waiting[max(self._waiting, key=lambda each: self._waiting[each].rank)]

    def answered(self, uid: str, *, placed: bool) -> None:
        """Note that a pod was offered nodes (`placed`), or that its scheduler was offered victims and preempts."""
        if placed:
            self._waiting.pop(uid, None)
        elif uid in self._waiting:
            self._waiting[uid].not_before = self._clock() + AGAIN_S

    @staticmethod
    def _shared(wanted: Wanted) -> Wanted:
        """Return the same with interned node names: many pods name thousands of nodes."""
        return [(request, tuple(map(sys.intern, nodes))) for request, nodes in wanted]

    # --- preempting ---

    def begin(self) -> None:
        """Restore the reservations of earlier terms before any request is answered."""
        for uid in list(self._reserved):
            self._drop(uid)
        for pod in self._pods.objects.values():
            node = (pod.metadata.annotations or {}).get(self._key, "")
            if node and _is_unplaced(pod):
                self._restore_reservation(pod, node)
            self._follow_scheduler(pod)

    def _follow_scheduler(self, pod: Pod) -> None:
        """Reserve the room for which kube-scheduler evicted pods, for as long as it nominates the node.

        The node that is nominated when a queue admits the pod is not one of these: the pod is gated, or has its place
        there.
        """
        uid, node = pod.metadata.uid, pod.status.nominated_node_name if _is_unplaced(pod) else ""
        if pod.spec.scheduling_gates or node == place_of(pod.metadata.annotations or {}, self._domain):
            node = ""
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
            for each in asked.by_family:
                self._cluster.reserve_room_on(each.request, node)
            self._reserved[asked.uid] = _Reserved(pod.key, node, self._clock() + RESERVED_S, by_scheduler)

    async def reconcile(self, _key: str) -> float:
        """Preempt for pending pods in order of priority."""
        epoch = self._term.check()
        self._without_victims.clear()
        await self._expire_reservations(epoch)
        lowest = self._cluster.holders.lowest_priority
        for entry in sorted(self._waiting.values(), key=lambda each: each.rank):
            if entry.not_before > self._clock() or entry.claim.priority <= lowest:
                continue
            if entry.refused_at + ASKED_S < self._clock() or not self.may_preempt(entry.claim):
                self._waiting.pop(entry.claim.pod_uid, None)
                continue
            entry.not_before = self._clock() + AGAIN_S
            try:
                async with self.turn:
                    await self._preempt_for(epoch, entry)
            except UllageError as error:
                self._on_error("Pod", f"{entry.claim.namespace}/{entry.claim.pod}", error)
        return ROUND_S

    def may_preempt(self, claim: Claim) -> bool:
        """Return whether a pod is still pending and other pods may be evicted for it.

        Evictions need a priority that the cluster gave the pod. A quality of service is not enough: anybody may request
        it.
        """
        pod = self._pods.objects.get((claim.namespace, claim.pod))
        if pod is None or pod.metadata.uid != claim.pod_uid or not _is_unplaced(pod):
            return False
        return pod.spec.preemption_policy != "Never" and (pod.spec.priority or 0) >= claim.priority

    async def _preempt_for(self, epoch: int, entry: _Waiting) -> None:
        if entry.equivalence_class in self._without_victims:
            return
        for _ in range(_TRIES):
            found = await self._cheapest(entry)
            if found is None:
                if self._still(entry) and not entry.refused:
                    self._without_victims.add(entry.equivalence_class)
                entry.refused.clear()
                return
            evictions = self.evictions_of(found.uids)
            if evictions is None:
                return
            if await self.may_leave(epoch, evictions):
                await self._make_room(epoch, entry, found, evictions)
                return
            entry.refused.add(found.node)

    def evictions_of(self, uids: Collection[str]) -> list[Evict] | None:
        """Return the evictions of these pods; None if the books and the pod informer are out of step."""
        leaving = [self._pod_of(uid) for uid in uids]
        evictions = [Evict(*pod.key, pod.metadata.uid) for pod in leaving if pod is not None]
        return evictions if len(evictions) == len(leaving) else None

    async def may_leave(self, epoch: int, evictions: Iterable[Evict]) -> bool:
        """Return whether the API server allows the eviction of each of them. A pod that is gone counts as allowed."""
        for each in evictions:
            try:
                with suppress(NotFound, VersionConflict):  # it is deleted or replaced
                    await self._candidate.write(epoch, replace(each, dry_run=True))
            except (NotLeading, Unreachable):
                raise
            except UllageError as error:
                self._on_error("Pod", f"{each.namespace}/{each.name}", error)
                return False
        return True

    async def _make_room(self, epoch: int, entry: _Waiting, room: RoomOnNode, evictions: Sequence[Evict]) -> None:
        node, claim = room.node, entry.claim
        if not self._may_evict(entry):
            return
        # Given up at once unless a victim leaves.
        await self.reserve(epoch, claim, node, until=self._clock())
        if not self._may_evict(entry):
            return
        for request, preemption in room.places:
            self._cluster.reserve_room_of(request, preemption)
        if evictions:
            names = ", ".join(f"{each.namespace}/{each.name}" for each in evictions)
            self._record_event(PodEvent.of(claim, Reason.MAKES_ROOM, f"{names} are evicted for it on {node}"))
        for each in evictions:
            await self.evict(epoch, each, f"by pod {claim.namespace}/{claim.pod} on node {node}")
        self.keep_for(claim.pod_uid, RESERVED_S)

    async def reserve(self, epoch: int, claim: Claim, node: str, *, until: float, others: Collection[str] = ()) -> None:
        """Write on a pod that room on a node is made for it, beside that of its gang on `others`; see `_Reserved`."""
        await self._annotate(epoch, (claim.namespace, claim.pod), claim.pod_uid, node)
        pod = claim.namespace, claim.pod
        self._reserved[claim.pod_uid] = _Reserved(pod, node, until, others=others)

    def keep_for(self, uid: str, seconds: float) -> None:
        """Keep the room of a pod for so long after its last victim is gone; with 0 give it up as soon as possible."""
        if uid in self._reserved:
            self._reserved[uid].until = self._clock() + seconds

    def has_room(self, uid: str) -> bool:
        """Return whether room is made for a pod."""
        return uid in self._reserved or self._promised(uid)

    def _still(self, entry: _Waiting) -> bool:
        """Return whether the pod is still unplaced after an await."""
        claim, uid = entry.claim, entry.claim.pod_uid
        held = self._cluster.held(uid) is not None or self._promised(uid)
        return self._waiting.get(uid) is entry and self.may_preempt(claim) and not held

    def _may_evict(self, entry: _Waiting) -> bool:
        request, _ = next(iter(entry.wanted))
        return self._still(entry) and self._allows(request)

    async def evict(self, epoch: int, eviction: Evict, message: str) -> None:
        with suppress(NotFound, VersionConflict):
            await self._candidate.write(epoch, eviction)
            self.evicted += 1
            self._cluster.release(eviction.uid)
            self._record_event(
                PodEvent(eviction.namespace, eviction.name, eviction.uid, Reason.PREEMPTED, message=message)
            )

    async def _annotate(self, epoch: int, pod: tuple[str, str], uid: str, node: str | None) -> None:
        """Write on a pod where room is reserved for it, or remove that annotation."""
        body = {"metadata": {"uid": uid, "annotations": {self._key: node}}}
        namespace, name = pod
        await self._candidate.write(epoch, Patch(PODS, name, body, namespace=namespace, type=PatchType.MERGE))

    async def _cheapest(self, entry: _Waiting) -> RoomOnNode | None:
        """Return a node that fits once leaving pods are gone, else the cheapest victims on one node.

        Return None if no victims help, all exceed their disruption budgets, or the pod has a place by now.
        """
        if not self._still(entry):
            return None
        first, entry.examined = entry.examined, 0
        for anyway in (True, False):
            for request, nodes in entry.wanted:
                promising = self._promising(entry, request, nodes, first, anyway=anyway)
                for start in range(0, len(promising), NODES_AT_ONCE):
                    began = time.perf_counter()
                    few = promising[start : start + NODES_AT_ONCE]
                    best = self._cheapest_on(entry, request, few, anyway=anyway)
                    if best is not None:
                        return best if anyway or best.uids else None
                    await self._pause(time.perf_counter() - began)  # yield as much time to other tasks
                    if not self._still(entry):
                        return None
                    self._mirror.settle()
        return None

    def _promising(
        self, entry: _Waiting, request: Request, nodes: Sequence[str], first: int, *, anyway: bool
    ) -> Sequence[str]:
        """Return nodes that some pod is leaving anyway, or some of the nodes with pods of lower priority."""
        self._mirror.settle()
        promising = (
            self._cluster.holders.being_left(nodes)
            if anyway
            else self._cluster.holders.with_lower_priority(request, nodes)
        )
        promising = [node for node in promising if self._counts(entry, node)]
        if anyway:
            return promising
        after = first + self._most_nodes
        entry.examined = max(entry.examined, after if after < len(promising) else 0)
        return promising[first:after]

    def _counts(self, entry: _Waiting, node: str) -> bool:
        return node not in entry.refused and self._changed.get(node, -math.inf) <= entry.refused_at + LAG_S

    def _cheapest_on(
        self, entry: _Waiting, request: Request, nodes: Sequence[str], *, anyway: bool
    ) -> RoomOnNode | None:
        """Return a node that needs no further victims. Otherwise, unless `anyway`, return the cheapest victims."""
        left = budgets_of(self._budgets.objects.values(), self._cluster.holders.on(nodes))
        rooms = {
            node: RoomOnNode(((request, each),))
            for node, each in self._cluster.victims(request, dict.fromkeys(nodes, ()), left).items()
        }
        for wanted in entry.further:
            rooms = self._with_family(rooms, wanted, left)
        free = next((each for each in rooms.values() if not each.uids), None)
        if anyway or free is not None:
            return free
        costs = {cost: each for each in rooms.values() if (cost := each.cost) is not None and not cost.violations}
        return costs[min(costs)] if costs else None

    def _with_family(self, rooms: Mapping[str, RoomOnNode], wanted: Wanted, left: Budgets) -> dict[str, RoomOnNode]:
        """Return those of the rooms where cards of a further family have a place too; victims of a room count first."""
        found: dict[str, RoomOnNode] = {}
        for request, nodes in wanted:
            there = {node: rooms[node].uids for node in nodes if node in rooms and node not in found}
            for node, each in self._cluster.victims(request, there, left).items():
                found[node] = rooms[node].plus(request, each)
        return found

    def _promised(self, uid: str) -> bool:
        return self._cluster.allocator.nominations.of(uid) is not None

    def _pod_of(self, uid: str) -> Pod | None:
        held = next(iter(self._cluster.held_by_family(uid)), None)
        claim = None if held is None else held.claim
        pod = None if claim is None else self._pods.objects.get((claim.namespace, claim.pod))
        return pod if pod is not None and pod.metadata.uid == uid else None

    # --- reservations ---

    async def _expire_reservations(self, epoch: int) -> None:
        """Release unused reservations once all victims on the node are gone."""
        now = self._clock()
        for uid, kept in list(self._reserved.items()):
            if any(map(self._cluster.holders.any_leaves, (kept.node, *kept.others))):
                kept.until = now + RESERVED_S
            elif kept.until <= now:
                try:
                    with suppress(NotFound, VersionConflict):  # the pod is deleted, and its reservation with it
                        await self._annotate(epoch, kept.pod, uid, None)
                except UllageError as error:
                    self._on_error("Pod", "/".join(kept.pod), error)
                else:
                    self._drop(uid)

    def _on_pod(self, delta: Delta[Pod]) -> None:
        pod = delta.last if isinstance(delta, Removed) else delta.new
        if isinstance(delta, Removed) or not _is_unplaced(pod):
            self._waiting.pop(pod.metadata.uid, None)
            self._drop(pod.metadata.uid)
        else:
            self._follow_scheduler(pod)

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        match delta:
            case Removed(last):
                self._changed.pop(last.metadata.name, None)
            case Changed(last, new) if _kind_of(last) != _kind_of(new):
                self._changed[new.metadata.name] = self._clock()

    def _drop(self, uid: str) -> None:
        if self._reserved.pop(uid, None) is None:
            return
        for each in family_ids(uid):
            known = self._cluster.allocator.nominations.of(each)
            if known is not None and known.first_come:
                self._cluster.withdraw(each)


def _is_unplaced(pod: Pod) -> bool:
    return not (pod.spec.node_name or pod.finished or pod.terminating)


def _kind_of(node: KubeNode) -> tuple[object, object]:
    """Return the taints and labels of a node, which decide which pods it accepts."""
    return node.document.get("spec"), node.metadata.labels
