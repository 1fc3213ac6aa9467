"""`bind`: reserve the best cards of the node, and write the pod's node and cards in one write.

A reservation becomes final only with that write. It states the resourceVersion of the pod that it was decided on, so
the API server refuses a late bind (`unconfirmed.py`). Whether a write without a response took effect is read from the
API, never guessed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import NamedTuple

from ullage.core.placing.decision import Refusal
from ullage.kube.bindings.filter import Admitted
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.changes import Bind
from ullage.kube.client.errors import VersionConflict, is_refusal
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.device_plugins import DevicePlugins
from ullage.kube.events import PodEvent, Reason
from ullage.kube.extender.leader_books import LeaderBooks
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.kube.other_schedulers import OtherSchedulers
from ullage.model.allocation import Allocation
from ullage.model.error import Conflict, NotFound, UllageError
from ullage.wire.dra.claim import extended_claim
from ullage.wire.extender import BindArgs
from ullage.wire.pod import PodRequest, bind_annotations
from ullage.wire.vendors.container_request import FamilyRequest


class _Given(NamedTuple):
    """What a pod requested of one family, as its node allows it, and what it was given."""

    asked: PodRequest
    admitted: Admitted
    allocation: Allocation


class PodBinder:
    """`claims` is None where the cluster has no ResourceClaims."""

    def __init__(
        self,
        context: KubeContext,
        books: LeaderBooks,
        unconfirmed: UnconfirmedBinds,
        plugins: DevicePlugins,
        *,
        claims: DeviceMirror | None,
    ) -> None:
        self._api, self._candidate, self._cluster = context.api, context.candidate, context.cluster
        self._domain, self._record_event = context.domain, context.record_event
        self._pods = context.followed.pods.objects
        self._books, self._unconfirmed, self._plugins, self._claims = books, unconfirmed, plugins, claims
        self._others = OtherSchedulers(context, unconfirmed.observe)

    async def bind(self, args: BindArgs) -> None:
        """Bind a pod to a node with the best cards there. A repeated call succeeds.

        Raises:
            Conflict: it is on another node, another pod has its name, or its cards are taken by now.
            NotFound: there is no such pod. NotLeading: another process leads.

        """
        try:
            await self._bind(args)
        except UllageError as error:
            self._record_bind(args, Reason.BINDING_FAILED, f"{error.code}: {error.message}")
            raise
        self._record_bind(args, Reason.BINDING_SUCCEED, f"bound to {args.node}")

    def _record_bind(self, args: BindArgs, reason: Reason, message: str) -> None:
        self._record_event(PodEvent(args.pod_namespace, args.pod_name, args.pod_uid, reason=reason, message=message))

    async def _bind(self, args: BindArgs) -> None:
        epoch = self._books.term()
        async with self._unconfirmed.exclusive(args.pod_uid):
            await self._unconfirmed.resolve(epoch, args.pod_uid)
            cached = self._cached(args)
            if cached is not None:
                with suppress(VersionConflict):  # the watch is behind: decide again on the current pod
                    await self._bind_pod(epoch, args, cached)
                    return
            pod = await self._unbound(args)
            if pod is not None:
                await self._bind_pod(epoch, args, pod)

    async def _bind_pod(self, epoch: int, args: BindArgs, pod: Pod) -> None:
        asked = self._books.read_pod(pod.document)
        if asked is None:
            await self._bind_without_cards(epoch, args, pod)
            return
        asks = {each.uid: ask for each in asked.by_family if (ask := self._plugins.asked(each, args.node))}
        if not asks:
            await self._bind_with_cards(epoch, args, pod, asked, asks=asks)
            return
        async with self._plugins.node_lock(epoch, pod, args.node, *(ask.family.lock for ask in asks.values())):
            await self._others.catch_up(args.node)
            await self._bind_with_cards(epoch, args, pod, asked, asks=asks)

    async def _bind_without_cards(self, epoch: int, args: BindArgs, pod: Pod) -> None:
        written = {f"{self._domain}/gpu-ids": ""}  # else later annotations would look like those of now
        request = self._books.aligned.read(pod.document)
        if request is None:
            await self._write(epoch, args, pod, written)
            return
        self._books.refresh()
        written |= self._books.aligned.place(request, args.node)
        with self._reserving(pod):
            await self._write(epoch, args, pod, written)

    async def _bind_with_cards(
        self, epoch: int, args: BindArgs, pod: Pod, asked: PodRequest, *, asks: Mapping[str, FamilyRequest]
    ) -> None:
        claimed = () if self._claims is None else await self._claims.claimed(pod)
        self._books.refresh()
        given = self._reserve(pod, asked, args.node, claimed)
        with self._reserving(pod):
            first, *further = given
            written = bind_annotations(
                first.allocation,
                self._domain,
                capacities=self._cluster.capacities(first.allocation),
                container_gpu_counts={} if further else first.asked.container_gpu_counts,
                further=[each.allocation for each in further],
            )
            for each in given:
                written |= self._annotations(pod, each, asks.get(each.asked.uid))
            self._unconfirmed.write(pod, args.node, written)
            await self._write(epoch, args, pod, written)

    def _reserve(self, pod: Pod, asked: PodRequest, node: str, claimed: tuple[str, ...]) -> list[_Given]:
        """Reserve cards of each family on a node; none where those of one family do not suffice.

        Raises:
            Conflict: they do not suffice by now. UllageError: as `CardOffers.reserve`.

        """
        try:
            return [self._reserve_one(pod, each, node, claimed) for each in asked.by_family]
        except UllageError:
            if asked.further and self._cluster.held(asked.uid) is not None:
                self._unconfirmed.release(asked.uid)
            raise

    def _reserve_one(self, pod: Pod, asked: PodRequest, node: str, claimed: tuple[str, ...]) -> _Given:
        admitted = self._books.admit(pod.document, asked, [node])
        if asked.one_of_several:
            fleet, vendors = self._cluster.allocator.fleet, asked.requirement.cards.vendors
            cards = fleet.gpus(uuid for uuid in claimed if uuid in fleet.card_of)
            claimed = tuple(card.uuid for card in cards if card.vendor in vendors)
        asked = _as_claimed(admitted.on(node), claimed)
        admitted.check_claimed(node, claimed)
        asked, allocation = self._books.offers.reserve(asked, admitted, node)
        if isinstance(allocation, Refusal):
            what = f"the pod's cards of {asked.family}" if asked.one_of_several else "the pod"
            raise Conflict(f"{node} has no room for {what} any more: {allocation.code}", code="bind-no-room")
        return _Given(asked, admitted, allocation)

    def _annotations(self, pod: Pod, given: _Given, ask: FamilyRequest | None) -> dict[str, str]:
        """Return what the device plugin of a family reads, and the bindings that gave the pod these cards."""
        asked, allocation, written = given.asked, given.allocation, dict[str, str]()
        bindings = given.admitted.bindings(allocation.node, allocation.gpus)
        if ask is not None:
            written |= self._plugins.annotations(
                asked.devices or ask, allocation, self._cluster.cards(allocation), bound=bool(bindings)
            )
        if self._books.binding_filter is not None:
            written |= self._books.binding_filter.hold(pod, allocation.node, bindings, allocation.gpus)
        return written

    @contextmanager
    def _reserving(self, pod: Pod) -> Iterator[None]:
        """Keep the place that is reserved for a pod while it is bound, unless the bind cannot take effect."""
        try:
            yield
        except BaseException as error:
            if is_refusal(error):
                self._unconfirmed.release(pod.metadata.uid)
            else:
                self._unconfirmed.add(pod)  # it may still take effect, so the place stays reserved
            raise
        self._unconfirmed.confirmed(pod)

    async def _write(self, epoch: int, args: BindArgs, pod: Pod, annotations: Mapping[str, str]) -> None:
        """Bind. If the pod changed since it was read, bind again if its labels, request and claim are unchanged."""
        bind = Bind(
            args.pod_namespace,
            args.pod_name,
            args.pod_uid,
            args.node,
            annotations=annotations,
            version=pod.metadata.resource_version,
        )
        try:
            await self._candidate.write(epoch, bind)
        except VersionConflict:
            now = await self._unbound(args)
            if now is None:
                return
            if now.metadata.labels != pod.metadata.labels or not self._asks_same(now, pod):
                raise
            await self._candidate.write(epoch, replace(bind, version=now.metadata.resource_version))

    def _asks_same(self, one: Pod, other: Pod) -> bool:
        if extended_claim(one.document) != extended_claim(other.document):
            return False
        asked, before = self._books.read_pod(one.document), self._books.read_pod(other.document)
        if asked is None and before is None:
            now, then = self._books.aligned.read(one.document), self._books.aligned.read(other.document)
            return (now and now.requirement) == (then and then.requirement)
        if asked is None or before is None:
            return False
        return [each.requirement for each in asked.by_family] == [each.requirement for each in before.by_family]

    def _cached(self, args: BindArgs) -> Pod | None:
        """Return the pod without a node as the watch has it; None if the API has to be asked.

        If it has changed since, the write conflicts, and the bind is decided on the current pod.
        """
        pod = self._pods.get((args.pod_namespace, args.pod_name))
        return pod if pod is not None and pod.metadata.uid == args.pod_uid and not pod.spec.node_name else None

    async def _unbound(self, args: BindArgs) -> Pod | None:
        """Return the current pod; None if it is already on its node, where it holds what its annotations say.

        Raises:
            NotFound: another pod has its name by now. Conflict: it is on another node.

        """
        who = f"pod {args.pod_namespace}/{args.pod_name}"
        pod = await self._api.get(PODS, args.pod_name, args.pod_namespace)
        if pod.metadata.uid != args.pod_uid:
            raise NotFound(f"{who} was replaced by another pod", code="pod-replaced")
        if not pod.spec.node_name:
            return pod
        self._unconfirmed.observe(pod)
        if pod.spec.node_name != args.node:
            raise Conflict(
                f"pod {args.pod_namespace}/{args.pod_name} is on {pod.spec.node_name}", code="bound-elsewhere"
            )
        return None


def _as_claimed(asked: PodRequest, cards: tuple[str, ...]) -> PodRequest:
    """Return the request of a pod, restricted to exactly the cards that were claimed for it."""
    if cards:
        asked = replace(asked, together=())
    if len(cards) != asked.requirement.gpu_count:
        return asked
    selector = replace(asked.requirement.cards, uuids=cards)
    return replace(asked, requirement=replace(asked.requirement, cards=selector))
