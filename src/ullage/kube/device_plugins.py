"""Device plugins, as HAMi's, that hand out the cards that a scheduler chose: node locks and pod annotations.

Two writes are needed, in this order. The lock goes on the node first: a plugin reads the lock before it looks at any
pod, and a kubelet may call the plugin as soon as the pod is bound. All other annotations are written on the pod by the
binding itself, so no pod is bound without them. The plugin removes the lock when it has answered.

The next pod takes over a stale lock, so nothing has to clean up after a process that was killed.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from typing import Any

from ullage.kube.client.changes import Patch, PatchType
from ullage.kube.client.errors import VersionConflict, is_refusal
from ullage.kube.client.informer import Changed, Delta, Removed
from ullage.kube.client.kinds import NODES, PODS
from ullage.kube.client.lease import TERMS
from ullage.kube.client.objects import KubeNode, Pod
from ullage.kube.context import KubeContext
from ullage.kube.controller import Controller
from ullage.kube.events import PodEvent, Reason
from ullage.kube.mirror.cards import node_facts
from ullage.model.allocation import Allocation
from ullage.model.error import Conflict, InvalidRequest, NotFound, UllageError
from ullage.model.family_ids import family_ids, uid_of
from ullage.model.gpu import Gpu
from ullage.wire.document import section
from ullage.wire.hami.lock import LOCK_EXPIRES_S, LOCK_WAIT_S, NodeLock, read_lock
from ullage.wire.hami.mig import encode_reservations, reservations_of
from ullage.wire.hami.node import RESPONSE_S, Handshake, read_handshake
from ullage.wire.hami.results import (
    BindPhase,
    GivenCards,
    decode_devices,
    devices_of,
    grant_of,
    phase_in,
    to_allocate,
)
from ullage.wire.pod import PodRequest
from ullage.wire.vendors.container_request import FamilyRequest
from ullage.wire.vendors.family import Family, LockRule
from ullage.wire.vendors.registers import RegisteredCard, registered_cards, serves

_AGAIN_S = 0.1
_CAUGHT_UP_S = 2.0
"""Seconds to retry a lock that was refused because the cached node is stale, even if `retry_s` is shorter."""

_IN_FLIGHT_S = float(TERMS.lease_s)
"""Seconds after which no write of an ended term can still be in flight. A longer lease duration takes precedence."""


@dataclass(frozen=True, slots=True)
class PluginTerms:
    """In seconds: how long a lock is valid, how long a pod waits for a lock, and the interval between plugin checks."""

    expires_s: float = LOCK_EXPIRES_S
    retry_s: float = LOCK_WAIT_S
    check_s: float = 5.0


PLAIN_TERMS = PluginTerms()


class NodeLocked(Conflict):
    """A lock of a node was not free for as long as a pod waits for it."""

    code = "node-locked"


class DevicePlugins:
    """Lock nodes for binds, and watch how device plugins answer. Plugins that are silent are pinged."""

    def __init__(
        self,
        context: KubeContext,
        terms: PluginTerms = PLAIN_TERMS,
        look_again: Callable[[str], None] = lambda _node: None,
    ) -> None:
        """`look_again` is called with the name of each node whose plugin may have been silent for too long."""
        self._api, self._candidate = context.api, context.candidate
        self._nodes, self._pods = context.followed.nodes, context.followed.pods
        self._families, self._terms, self._look_again = context.pod_settings.families, terms, look_again
        self._record_event, self._is_own = context.record_event, context.is_own
        self._clock, self._now, self._pause = context.clock, context.now, context.pause
        self._queues: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._cluster = context.cluster
        self._masked: dict[str, tuple[str, dict[str, int]]] = {}
        """By pod, its node and the cores of each card that it was given, until the watch reports it."""
        self._one_lock: dict[str, tuple[tuple[str, str], float]] = {}
        """By node, the last pod there that several plugins with one lock serve, and when it was bound."""
        self.waiting: set[tuple[str, str]] = set()
        """Pods, by namespace and name, that wait for a node lock or are being bound under one."""
        self.controller = Controller("Node", self.reconcile, on_error=context.on_error)
        self._pods.subscribe(self._on_pod)
        self._nodes.subscribe(self._on_node)

    # --- node locks ---

    def asked(self, asked: PodRequest, node: str) -> FamilyRequest | None:
        """Return what the device plugin of a node will be asked for; None if that plugin needs no annotations."""
        found, devices = self._nodes.objects.get(("", node)), asked.devices
        if found is None or devices is None or not devices.counted:
            return None
        return devices if serves(devices.family, node_facts(found)) else None

    def is_busy(self, node: str) -> bool:
        """Return whether a pod is bound to a node under its locks, or waits for them."""
        return node in self._queues and self._queues[node].locked()

    @asynccontextmanager
    async def node_lock(self, epoch: int, pod: Pod, node: str, *rules: LockRule) -> AsyncIterator[None]:
        """Hold the locks of a node while the caller binds a pod to it. Release them if the bind is refused.

        Devices of a family without a lock need none. Several locks are taken in the order of their names, and released
        in reverse.

        Raises:
            NodeLocked: another pod held a lock all the time. NotLeading: another process leads.

        """
        named = [rule for rule in rules if rule.annotation]
        ordered = sorted({rule.annotation: rule for rule in named}.items())
        if not ordered:
            yield
            return
        self.waiting.add(pod.key)
        taken: list[tuple[LockRule, str]] = []
        try:
            async with self._queued(node):
                try:
                    for _, rule in ordered:
                        taken.append((rule, await self._acquire(epoch, pod, node, rule)))
                    yield
                except UllageError as error:
                    # Else the pod may be bound, and the plugins need the locks.
                    if is_refusal(error) or len(taken) < len(ordered):
                        for rule, lock in reversed(taken):
                            await self._release(epoch, node, rule, lock)
                        named.clear()
                    raise
                finally:
                    if len(named) > len(ordered):
                        self._one_lock[node] = pod.key, self._now()
        finally:
            self.waiting.discard(pod.key)

    @asynccontextmanager
    async def _queued(self, node: str) -> AsyncIterator[None]:
        """Wait for the node in first-in, first-out order among the pods of this process."""
        queue = self._queues[node]
        try:
            async with asyncio.timeout(max(self._terms.retry_s, _CAUGHT_UP_S)):
                await queue.acquire()
        except TimeoutError:
            raise _locked(node, "other pods wait for their devices there") from None
        try:
            yield
        finally:
            queue.release()

    async def _acquire(self, epoch: int, pod: Pod, node: str, rule: LockRule) -> str:
        """Write the lock on a node as soon as no other lock is valid there. Return the value written."""
        began = self._clock()
        while True:
            found = self._nodes.objects.get(("", node))
            if found is None:
                raise NotFound(f"node {node} does not exist", code="node-gone")
            holder = _lock_on(found, rule)
            if (served := self._served(node, pod)) is not None:
                last, why = self._terms.retry_s, f"several plugins serve pod {'/'.join(served)}"
            elif holder is None or await self._is_stale(holder, pod, node, rule):
                try:
                    return await self._put(epoch, found, rule, NodeLock(self._now(), *pod.key).encode(rule))
                except VersionConflict as error:
                    last, why = max(self._terms.retry_s, _CAUGHT_UP_S), error.message  # the cached node is stale
            else:
                last, why = self._terms.retry_s, f"pod {'/'.join(holder.key)} holds the lock"
            if self._clock() - began >= last:
                raise _locked(node, why)
            await self._pause(_AGAIN_S)

    def _served(self, node: str, pod: Pod) -> tuple[str, str] | None:
        """Return the other pod on a node that several plugins with one lock still serve; None if there is none.

        The first of them to finish removes the lock. The others would then serve the next pod that holds it.
        """
        key, since = self._one_lock.get(node, (pod.key, 0.0))
        seen = self._pods.objects.get(key)
        is_over = key == pod.key or self._now() - since > self._terms.expires_s
        if is_over or seen is None or seen.finished or _has_containers(seen):
            self._one_lock.pop(node, None)
            return None
        return key

    async def _put(self, epoch: int, node: KubeNode, rule: LockRule, text: str) -> str:
        """Write the lock if the node has not changed since it was read."""
        metadata = {"resourceVersion": node.metadata.resource_version, "annotations": {rule.annotation: text}}
        await self._candidate.write(epoch, Patch(NODES, node.metadata.name, {"metadata": metadata}))
        return text

    async def _release(self, epoch: int, node: str, rule: LockRule, text: str) -> None:
        """Remove the lock. A failure is harmless: the pod is not bound, so the lock counts as stale."""
        path = f"/metadata/annotations/{rule.annotation.replace('/', '~1')}"
        remove: list[Mapping[str, Any]] = [{"op": "test", "path": path, "value": text}, {"op": "remove", "path": path}]
        with suppress(UllageError):
            await self._candidate.write(epoch, Patch(NODES, node, remove, type=PatchType.JSON))

    async def _is_stale(self, lock: NodeLock, pod: Pod, node: str, rule: LockRule) -> bool:
        """Return whether a lock is stale though nothing removed it. Confirm what the cache says with the API."""
        if lock.expired(self._now(), rule.expires_s or self._terms.expires_s) or lock.key == pod.key:
            return True
        if not lock.pod:
            return False
        seen = self._pods.objects.get(lock.key)
        if seen is not None and not self._is_done(seen, lock, pod, node):
            return False
        try:
            holder = await self._api.get(PODS, lock.pod, lock.namespace)
        except NotFound:
            return True
        return self._is_done(holder, lock, pod, node)

    def _is_done(self, holder: Pod, lock: NodeLock, pod: Pod, node: str) -> bool:
        """Return whether a pod will not, or no longer, be handed devices on this node.

        A pod that is not bound still waits for its binding. If our scheduler owns the pod and this process does not
        bind it, the process that locked the node is gone.
        """
        if not holder.spec.node_name:
            same = self._is_own(holder) or holder.spec.scheduler_name == pod.spec.scheduler_name
            ours = same and holder.key not in self.waiting
            left_s = max(_IN_FLIGHT_S, self._candidate.lease_s)
            return holder.finished or (ours and lock.expired(self._now(), left_s))
        return (
            holder.finished
            or holder.spec.node_name != node
            or self._phase(holder) in (BindPhase.SUCCESS, BindPhase.FAILED)
        )

    # --- annotations for plugins, and their answers ---

    def annotations(
        self, ask: FamilyRequest, allocation: Allocation, cards: Sequence[Gpu], *, bound: bool
    ) -> dict[str, str]:
        """Return the annotations that make the plugin hand out exactly these cards.

        `bound`: the amounts are those of bindings, not of the pod.

        Raises:
            InvalidRequest: the containers request other cards than the pod was given.

        """
        node, family = self._nodes.objects.get(("", allocation.node)), ask.family
        there = () if node is None else registered_cards(family, node_facts(node)) or ()
        known = {card.uuid: RegisteredCard(card, family.cores.per_card) for card in cards}
        known |= {
            each.gpu.uuid: replace(each, gpu=known[each.gpu.uuid].gpu, index=each.gpu.index)
            for each in there
            if each.gpu.uuid in known
        }
        charges = dict(zip(allocation.gpus, allocation.charges, strict=False))
        given = GivenCards(known, charges, self._masks(family, allocation))
        containers = [each.all_of_it() if bound else each for each in ask.containers]
        devices = devices_of(containers, allocation.gpus, given, family)
        if family.results.cores == "mask":
            masks: dict[str, int] = {}
            for each in (device for devices_of_one in devices for device in devices_of_one):
                masks[each.uuid] = masks.get(each.uuid, 0) | each.cores
            self._masked[allocation.id] = allocation.node, masks
        slices = encode_reservations(reservations_of(ask.containers, allocation))
        return to_allocate(grant_of(ask, devices, allocation.node, self._now(), slices=slices))

    def _masks(self, family: Family, allocation: Allocation) -> dict[str, int]:
        """Return the cores of each card of a node that other pods have, as bits, for a family that numbers them."""
        found: dict[str, int] = {}
        if family.results.cores != "mask":
            return found
        for pod in self._pods.objects.values():
            written = (pod.metadata.annotations or {}).get(family.results.allocated)
            if not written or not pod.spec.node_name:
                continue
            for id_ in family_ids(pod.metadata.uid):
                self._masked.pop(id_, None)
            if pod.finished or pod.spec.node_name != allocation.node or pod.metadata.uid == uid_of(allocation.id):
                continue
            with suppress(InvalidRequest):
                for device in (each for devices in decode_devices(written, family.results) for each in devices):
                    found[device.uuid] = found.get(device.uuid, 0) | device.cores
        self._masked = {uid: given for uid, given in self._masked.items() if self._cluster.held(uid) is not None}
        for uid, (node, masks) in self._masked.items():  # binds that the watch has not reported yet
            for uuid, mask in masks.items() if node == allocation.node and uid != allocation.id else ():
                found[uuid] = found.get(uuid, 0) | mask
        return found

    def _on_pod(self, delta: Delta[Pod]) -> None:
        """Record an event if a pod got no devices. It keeps its cards until deleted, as its kubelet fails it."""
        match delta:
            case Changed(old, new) if self._phase(new) is BindPhase.FAILED and self._phase(old) is not BindPhase.FAILED:
                message = f"the device plugin of {new.spec.node_name} handed out none of its cards (bind-phase: failed)"
                self._record_event(PodEvent.on(new, Reason.ALLOCATION_FAILED, message))

    def _phase(self, pod: Pod) -> BindPhase | None:
        return phase_in(pod.metadata.annotations or {}, self._families)

    def _on_node(self, delta: Delta[KubeNode]) -> None:
        if not isinstance(delta, Removed) and any(self._silent(delta.new)):
            self.controller.add(delta.new.metadata.name, self._terms.check_s)

    async def reconcile(self, name: str) -> float | None:
        """Ping the plugins of a node while they are silent, and check again when their time to answer has passed."""
        node, epoch = self._nodes.objects.get(("", name)), self._candidate.epoch
        if node is None or not (silent := list(self._silent(node))):
            return None
        annotations, keys = node.metadata.annotations or {}, {each.register.handshake for each in silent}
        said = {key: read_handshake(annotations.get(key, "")) for key in keys}
        if any(each.overdue(self._now(), RESPONSE_S) for each in said.values()):
            self._look_again(name)
        asking = {key: Handshake.request(self._now()).encode() for key, each in said.items() if not each.pending}
        if asking and epoch is not None:
            await self._candidate.write(epoch, Patch(NODES, name, {"metadata": {"annotations": asking}}))
        return self._terms.check_s

    def _silent(self, node: KubeNode) -> Iterator[Family]:
        """Yield the families with registered cards on the node of which the kubelet offers none."""
        annotations, offered = node.metadata.annotations or {}, node.status.allocatable or {}
        for family in self._families:
            rule, asked = family.register, family.resources.count
            if rule.handshake and rule.annotation in annotations and offered.get(asked, "0") == "0":
                yield family


def _lock_on(node: KubeNode, rule: LockRule) -> NodeLock | None:
    text = (node.metadata.annotations or {}).get(rule.annotation)
    return None if text is None else read_lock(text)


def _has_containers(pod: Pod) -> bool:
    """Return whether the kubelet reports containers of a pod: then all plugins have handed out its devices."""
    status = section(pod.document, "status")
    return bool(status.get("containerStatuses") or status.get("initContainerStatuses"))


def _locked(node: str, why: str) -> NodeLocked:
    return NodeLocked(f"node {node} is locked: {why}")
