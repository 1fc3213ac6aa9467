"""The overview of a cluster: copied from a front in one step, and written as a body in a thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import ceil
from typing import NamedTuple

import msgspec

from ullage import __version__
from ullage.bootstrap.cluster_page.settings import ClusterSettings
from ullage.bootstrap.cluster_page.tagged_page import TaggedPage
from ullage.bootstrap.pod_why import condition_of
from ullage.core.admitting.turns import Held
from ullage.core.books.fleet import Fleet
from ullage.core.books.usage import CardHolding
from ullage.core.explaining.nowhere_text import asked_text
from ullage.core.sharing.shares import dominant_share
from ullage.kube.bindings.compute_resources import device_of
from ullage.kube.client.objects import Pod
from ullage.kube.events import PodEvent
from ullage.kube.front import Front
from ullage.model.error import UllageError
from ullage.model.family_ids import uid_of
from ullage.model.queue import ROOT
from ullage.server.snapshot import ExecutorSession, gpu_body, held_cards_milli, limit_text
from ullage.service.bindings_snapshot import BindingsSnapshot, Caller
from ullage.service.gated import QueueFigures, Standing
from ullage.service.pages import written
from ullage.wire import cluster_view as wire
from ullage.wire.amount import AmountBody
from ullage.wire.body import body_of
from ullage.wire.compute_resources import ComputeDeviceBody
from ullage.wire.dialect import PodReader
from ullage.wire.node import GpuBody, NodeBody
from ullage.wire.pod.gate import gate_of, reason_of
from ullage.wire.pod.owner import moment

MOST_WAITING = 500
"""Waiting pods of an overview. Each is parsed, which takes 50 us."""

_NEW = "its scheduler has not asked about it yet"


class _Pods(NamedTuple):
    """Pods at one time, and what is known of those that wait, by uid."""

    all: Sequence[Pod]
    events: Mapping[str, PodEvent]
    standings: Mapping[str, Standing]
    read: PodReader
    is_own: Callable[[Pod], bool]
    is_direct: Callable[[Pod], bool]


@dataclass(frozen=True, slots=True)
class OverviewFacts:
    """Facts and a copy of the books at one time. They are immutable."""

    at: float
    front: wire.FrontBody
    settings: ClusterSettings
    fleet: Fleet
    held: Held
    figures: Mapping[str, QueueFigures]
    pods: _Pods
    bindings: BindingsSnapshot | None

    def body(self) -> wire.ClusterOverview:
        """Return the overview. This takes long on many nodes."""
        waiting, count = _waiting(self.pods, self.fleet.ledger)
        return wire.ClusterOverview(
            at=self.at,
            front=self.front,
            nodes=_nodes(self.fleet),
            gpus=_gpus(self.fleet),
            queues=_Queues(self).bodies(),
            waiting=waiting,
            waiting_count=count,
            bindings=[] if self.bindings is None else list(_bound(self.bindings)),
        )

    @classmethod
    async def of(cls, front: Front, settings: ClusterSettings, now: float) -> OverviewFacts:
        """Return the facts now. Bindings that are not read yet are left out."""
        bindings = None
        if front.bindings is not None and not front.bindings.store.unready:
            bindings = await front.bindings.use.snapshot_now()
        gates, candidate = front.admission.gates, front.candidate
        return cls(
            at=now,
            front=wire.FrontBody(
                version=__version__,
                identity=candidate.identity,
                leads=candidate.epoch is not None,
                unready=front.extender.unready,
                errors=front.errors(),
            ),
            settings=settings,
            fleet=front.cluster.allocator.fleet.copy(apart=True),
            held=gates.held(),
            figures={name: replace(each) for name, each in gates.figures().items()},
            pods=_Pods(
                list(front.pods.objects.values()),
                front.events.latest(),
                dict(gates.standings()),
                PodReader(front.context.pod_settings),
                is_own=front.context.is_own,
                is_direct=front.context.is_direct,
            ),
            bindings=bindings,
        )


async def write_overview(front: Front, settings: ClusterSettings, now: Callable[[], float]) -> TaggedPage:
    """Return the overview as a page."""
    facts = await OverviewFacts.of(front, settings, now())
    return await written(lambda: TaggedPage.of(msgspec.json.encode(facts.body())))


# --- nodes and cards ---


def _nodes(fleet: Fleet) -> list[NodeBody]:
    pods = Counter(allocation.node for uid, allocation in fleet.ledger.items() if uid_of(uid) == uid)
    return [
        body_of(
            NodeBody,
            node,
            held=AmountBody(
                cpu_milli=int(fleet.cpu_total[row] - fleet.cpu_free[row]),
                memory_bytes=int(fleet.memory_total[row] - fleet.memory_free[row]),
                gpu_milli=held_cards_milli(fleet, row),
            ),
            executors=pods[node.name],
            note=node.topology_note,
        )
        for row, node in enumerate(fleet.nodes)
    ]


def _gpus(fleet: Fleet) -> list[GpuBody]:
    """Return cards by node and index. The session of a holder is its pod."""

    def holder(uid: str) -> ExecutorSession:
        allocation = fleet.ledger.get(uid)
        claim = None if allocation is None else allocation.claim
        return ExecutorSession(f"{claim.namespace}/{claim.pod}") if claim is not None and claim.pod else _UNKNOWN

    return [
        gpu_body(fleet, card, holder)
        for row in range(len(fleet.nodes))
        for card in sorted(fleet.cards_on(row), key=lambda card: fleet.cards[card].index)
    ]


_UNKNOWN = ExecutorSession()


_OPERATOR = Caller("", is_admin=True)
"""The page shows the applications of all owners."""


def _bound(snapshot: BindingsSnapshot) -> Iterator[ComputeDeviceBody]:
    for node in snapshot.nodes():
        for card in node.cards:
            if (found := device_of(snapshot, card, _OPERATOR)).bindings:
                yield found


# --- queues ---


class _Queues:
    """The tree of the settings, and below its root every other queue that holds cards or has waiting pods."""

    def __init__(self, facts: OverviewFacts) -> None:
        self._figures, self._total = facts.figures, facts.fleet.total
        self._queue_of = {queue.name: queue for queue in facts.settings.queues}
        self._held: dict[str, CardHolding] = {}
        self._holders: Counter[str] = Counter()
        for (queue, amount), count in facts.held.items():
            whole = CardHolding(
                amount.cpu_milli * count, amount.memory_bytes * count, gpu_milli=Fraction(amount.gpu_milli * count)
            )
            for name in self._up(queue):
                self._held[name] = self._held.get(name, CardHolding()).plus(whole)
                self._holders[name] += count
        self._waiting: dict[str, list[QueueFigures]] = {}
        for queue, figures in facts.figures.items():
            for name in self._up(queue):
                self._waiting.setdefault(name, []).append(figures)

    def _up(self, name: str) -> Iterator[str]:
        """Yield a queue and those above it."""
        while name != ROOT:
            yield name
            queue = self._queue_of.get(name)
            name = ROOT if queue is None else queue.parent

    def bodies(self) -> list[wire.PodQueueBody]:
        """Return the queues by name. A queue includes the queues below it."""
        names = sorted({*self._queue_of, *self._held, *self._waiting})
        return [self._body(name) for name in names]

    def _body(self, name: str) -> wire.PodQueueBody:
        queue, held, figures = (
            self._queue_of.get(name),
            self._held.get(name, CardHolding()),
            self._waiting.get(name, ()),
        )
        pending = sum(each.waiting for each in figures)
        admitted = sum(each.opened for each in figures)
        return wire.PodQueueBody(
            name=name,
            parent=ROOT if queue is None else queue.parent,
            weight=1 if queue is None else queue.weight,
            guarantee=str(queue.guarantee) if queue is not None and queue.guarantee else None,
            limit=None if queue is None else limit_text(queue.limit),
            held=body_of(AmountBody, held, gpu_milli=ceil(held.gpu_milli)),
            share=dominant_share(held, self._total),
            sessions=self._holders[name] + pending,
            pending=pending,
            running=self._holders[name],
            oldest_at=min((each.oldest for each in figures if each.oldest is not None), default=None),
            admitted=admitted,
            waited_s=sum(each.waited_s for each in figures) / admitted if admitted else None,
        )


# --- pods that wait ---


def _waiting(pods: _Pods, placed: Container[str]) -> tuple[list[wire.WaitingPodBody], int]:
    """Return the first pods that wait, by priority and age, and the number of all. Those `placed` are being bound."""
    gate = gate_of(pods.read.settings.domain)

    def waits(pod: Pod) -> bool:
        uid, spec = pod.metadata.uid, pod.spec
        if spec.node_name or pod.finished or pod.terminating or uid in placed:
            return False
        gated = any(each.name == gate for each in spec.scheduling_gates or ())
        return gated or pods.is_own(pod) or uid in pods.events

    waiting = list(filter(waits, pods.all))
    waiting.sort(key=lambda pod: (-(pod.spec.priority or 0), pod.metadata.creation_timestamp or "", pod.key))
    return [_waiting_pod(pod, pods) for pod in waiting[:MOST_WAITING]], len(waiting)


def _waiting_pod(pod: Pod, pods: _Pods) -> wire.WaitingPodBody:
    namespace, name = pod.key
    standing = pods.standings.get(pod.metadata.uid)
    try:
        asked = pods.read(pod.document)
        by_family = () if asked is None else asked.by_family
        request = " and ".join(asked_text(each.requirement) for each in by_family) or "no card"
    except UllageError:
        request = ""
    reason, message = _reason(pod, pods)
    return wire.WaitingPodBody(
        namespace=namespace,
        pod=name,
        queue="" if standing is None else standing.queue,
        priority=pod.spec.priority or 0,
        request=request,
        created_at=moment(pod.metadata.creation_timestamp, 0.0),
        reason=reason,
        message=message,
        position=None if standing is None else standing.position,
    )


def _reason(pod: Pod, pods: _Pods) -> tuple[str, str]:
    """Return why a pod waits: its annotation while it waits in a queue, else its last event, else its condition."""
    noted = reason_of(pod.metadata.annotations or {}, pods.read.settings.domain)
    if noted and (pod.spec.scheduling_gates or pods.is_direct(pod)):
        code, _, text = noted.partition(": ")
        return code, text
    event = pods.events.get(pod.metadata.uid)
    if event is not None:
        return event.reason.value, event.message
    return condition_of(pod.document) or ("new", _NEW)
