"""The scheduler extender: kube-scheduler asks it to filter and score nodes, to find victims, and to bind pods.

A reservation becomes final only at bind, and bind is one write: it gives the pod its node and, in annotations, its
cards. It states the resourceVersion of the pod that it was decided on, so the API server refuses a late bind
(`unconfirmed.py`). Whether a write without a response took effect is read from the API, never guessed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from typing import NamedTuple

from ullage.binding.room import BindingRejection
from ullage.core.evicting.preemption import Preemption
from ullage.core.placing.decision import Refusal
from ullage.kube.aligned_pods import AlignedPods, refusal_sentence
from ullage.kube.bindings.filter import Admitted, BindingFilter
from ullage.kube.card_offers import CardOffers, ranked, requests, sharing
from ullage.kube.card_sets import CardSets
from ullage.kube.claims.devices import DeviceMirror
from ullage.kube.client.changes import Bind
from ullage.kube.client.errors import VersionConflict, is_refusal
from ullage.kube.client.kinds import PODS
from ullage.kube.client.objects import Pod
from ullage.kube.context import KubeContext
from ullage.kube.device_plugins import DevicePlugins
from ullage.kube.disruption import budgets_of
from ullage.kube.events import PodEvent, Reason
from ullage.kube.explained import Explained, why_nowhere
from ullage.kube.preemption import NODES_AT_ONCE, Preemptor
from ullage.kube.ready_term import ReadyTerm
from ullage.kube.recent import Recent
from ullage.kube.templates import with_templates
from ullage.kube.unconfirmed import UnconfirmedBinds
from ullage.model.counted import counted
from ullage.model.error import Conflict, NotFound, UllageError, Unavailable
from ullage.model.rejection import Rejection
from ullage.service.node_offers import NodeOffers
from ullage.wire.document import Document
from ullage.wire.dra.claim import extended_claim
from ullage.wire.extender import BindArgs, ExtenderArgs, FilterResult, PreemptionArgs, PreemptionResult
from ullage.wire.hami.refusals import refusal_text
from ullage.wire.pod import PodRequest, bind_annotations
from ullage.wire.pod.affinity import prefers_nodes
from ullage.wire.vendors.container_request import FamilyRequest

OFFERED_NODES = 64
"""The most nodes that `filter` returns: the fewer, the less kube-scheduler has to score and to ask again."""

_NAMED = 256
"""Maximum number of pods whose proposed victims are remembered."""


class Examined(NamedTuple):
    """What a pod may request, the offers of the examined nodes, and the score of each node that fits."""

    admitted: Admitted
    offers: NodeOffers
    scores: dict[str, float]


class Extender:
    """The extender verbs of kube-scheduler. Every call raises `UllageError` if it cannot be answered."""

    def __init__(
        self,
        context: KubeContext,
        term: ReadyTerm,
        unconfirmed: UnconfirmedBinds,
        plugins: DevicePlugins,
        *,
        binding_filter: BindingFilter | None = None,
        claims: DeviceMirror | None = None,
        preemptor: Preemptor | None = None,
        offered_nodes: int = OFFERED_NODES,
    ) -> None:
        """Of `binding_filter`, `claims` and `preemptor` those that the cluster has or the settings want.

        `filter` returns the best `offered_nodes`, or with 0 all, of the nodes that fit.
        """
        self._api, self._candidate, self._cluster = context.api, context.candidate, context.cluster
        self._domain, self._record_event = context.domain, context.record_event
        self._pods, self._budgets = context.followed.pods.objects, context.followed.budgets
        self._read_pod, self._offers = context.read_pod, CardOffers(context.cluster)
        self._sets = CardSets(context)
        self._term, self._unconfirmed, self._plugins = term, unconfirmed, plugins
        self._binding_filter, self._claims, self._preemptor = binding_filter, claims, preemptor
        self._offered_nodes = offered_nodes
        self._explained, self._aligned = Explained(), AlignedPods(context)
        self._refused: dict[str, Mapping[str, str]] = {}
        """By uid, for the last pod asked about: nodes refused where evictions may help, and the reasons."""
        self._named: Recent[str, Mapping[str, Iterable[str]]] = Recent(_NAMED)
        """By pod uid, for the last `_NAMED` pods: the victims that were proposed on each node."""

    @property
    def unready(self) -> str:
        """The reason why no question can be answered now; "" if questions can be answered."""
        try:
            self._ready()
        except UllageError as error:
            return error.message
        return ""

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the best nodes that fit the pod, and for each node that does not fit the reason.

        A pod with preferences that kube-scheduler scores is offered all nodes that fit.
        """
        names = args.offered()
        asked = self._read_pod(args.pod)
        if asked is None:
            return self._filter_aligned(args, names)
        self._refresh()
        with with_templates(args, self._term.mirror.machines, self._cluster):
            comes = not (args.simulated or self._unconfirmed.is_gone(asked.uid))
            admitted = self._admit(args.pod, asked, names, note=comes)
            found = self._offers.of(asked, admitted, expected=comes)
            why, never = admitted.refused(helps=True), admitted.refused(helps=False)
            for refusal, refused in found.refused:
                count = min(each.gpu_count for each in (asked.requirement, *asked.together))
                text = refusal_text(refusal.rejections, refusal.cards, count, mutex=asked.idle_only)
                (why if refusal.helps else never).update(dict.fromkeys(refused, text))
            lacking = self._lacking(asked, admitted, found.names)
            why |= {node: refusal_text(short, len(admitted.uneven[node])) for node, short in lacking.items()}
            fits = [node for node in found.names if node not in lacking] if lacking else found.names
            if comes:
                self._refused.clear()
                self._refused[asked.uid] = why
                self._note(asked, admitted, found, placed=bool(fits), why=why, never=never)
            if self._offered_nodes and not lacking and not prefers_nodes(args.pod):
                fits = found.best_names(self._offered_nodes)
            return args.result(fits, why, never)

    def _filter_aligned(self, args: ExtenderArgs, names: list[str]) -> FilterResult:
        """Return the nodes that fit a pod without cards by zones."""
        request = self._aligned.read(args.pod)
        if request is None:
            return args.result(names, {}, {})
        self._refresh()
        comes = not (args.simulated or self._unconfirmed.is_gone(request.uid))
        with with_templates(args, self._term.mirror.machines, self._cluster):
            found = self._aligned.offers(request, names, expected=comes)
        why: dict[str, str] = {}
        never: dict[str, str] = {}
        for refusal, refused in found.refused:
            (why if refusal.helps else never).update(dict.fromkeys(refused, refusal_sentence(refusal)))
        return args.result(found.names, why, never)

    def _lacking(self, asked: PodRequest, admitted: Admitted, nodes: Sequence[str]) -> dict[str, tuple[Rejection, ...]]:
        """Return what is missing on which of these nodes, because an uneven binding needs more of some card."""
        if not admitted.uneven:
            return {}
        short = (
            (node, self._cluster.shortages(asked.uid, admitted.uneven[node]))
            for node in nodes
            if node in admitted.uneven
        )
        return {node: lacks for node, lacks in short if lacks}

    def _note(
        self,
        asked: PodRequest,
        admitted: Admitted,
        found: NodeOffers,
        *,
        placed: bool,
        why: Mapping[str, str],
        never: Mapping[str, str],
    ) -> None:
        if self._preemptor is not None and placed:
            self._preemptor.answered(asked.uid, placed=True)
        elif self._preemptor is not None:
            helps = why.keys() - admitted.uneven.keys()  # the shortage there is not in the request
            asked_there = [
                (request, [node for node in nodes if node in helps])
                for request, nodes in (*requests(admitted), *sharing(asked, admitted, list(helps)))
            ]
            self._preemptor.refused([(request, nodes) for request, nodes in asked_there if nodes])
        if placed:
            self._explained.forget(asked.uid)
            return
        reasons = {**why, **never}
        self._record_event(
            _unplaced(asked, reasons, admitted.permit.short, lambda texts: self._explain(asked, admitted, found, texts))
        )

    def _explain(self, asked: PodRequest, admitted: Admitted, found: NodeOffers, texts: str) -> str:
        """Return a sentence that explains why the pod fits on no node."""

        def explain() -> str:
            return why_nowhere(self._cluster, asked, admitted, found)

        return self._explained.of(asked.uid, texts, explain) if found.refused else explain()

    def examine(self, pod: Document, asked: PodRequest, nodes: Sequence[str]) -> Examined:
        """Return what these nodes offer to a pod now. Nothing is reserved, and no event is written."""
        self._refresh()
        admitted = self._admit(pod, asked, nodes)
        found = self._offers.of(asked, admitted, expected=False)
        lacking = self._lacking(asked, admitted, found.names)
        scores = zip(found.names, found.scores.tolist(), strict=True)
        return Examined(admitted, found, {node: score for node, score in scores if node not in lacking})

    def prioritize(self, args: ExtenderArgs) -> dict[str, int]:
        """Return the score of each node, from 0 to 10. Only the best nodes have 10."""
        names = args.offered()
        asked = self._read_pod(args.pod)
        request = self._aligned.read(args.pod) if asked is None else None
        if asked is None and request is None:
            return dict.fromkeys(names, 0)
        self._refresh()
        with with_templates(args, self._term.mirror.machines, self._cluster):
            if asked is not None:
                scores = ranked(self._offers.of(asked, self._admit(args.pod, asked, names), expected=False))
            elif request is not None:
                scores = ranked(self._aligned.offers(request, names, expected=False))
        return scores if len(scores) == len(names) else dict.fromkeys(names, 0) | scores

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the fewest victims on each node; no victims if the pod already has or is about to get a place.

        A few nodes are searched at a time, and other questions are answered in between.
        """
        asked = self._read_pod(args.pod)
        candidates = {node: victims.uids for node, victims in args.victims.items()}
        broken = {node: victims.violations for node, victims in args.victims.items()}
        if asked is None:
            return PreemptionResult.of({node: (uids, broken[node]) for node, uids in candidates.items() if uids})
        self._refresh()
        if self._cluster.held(asked.uid) is not None or self._comes_free(asked, args):
            return PreemptionResult()
        found: dict[str, Preemption] = {}
        held = {each.id: each for each in self._cluster.holders.on(candidates)}
        budgets = budgets_of(self._budgets.objects.values(), held.values())
        admitted = self._admit(args.pod, asked, list(candidates))
        for request, nodes in [*requests(admitted), *sharing(asked, admitted, list(candidates))]:
            for start in range(0, len(nodes), NODES_AT_ONCE):
                few = {node: candidates[node] for node in nodes[start : start + NODES_AT_ONCE]}
                there = self._cluster.victims(request, few, budgets)
                found |= {node: each for node, each in there.items() if _is_less(each, found.get(node))}
                await asyncio.sleep(0)
                self._refresh()
        if self._cluster.held(asked.uid) is not None:  # it got a place meanwhile
            return PreemptionResult()

        def beyond(uids: Iterable[str]) -> int:
            return budgets.broken(held[uid] for uid in uids if uid in held).total()

        if self._preemptor is not None and any(victims.uids for victims in found.values()):
            self._preemptor.answered(asked.uid, placed=False)
        leave = {node: dict.fromkeys((*candidates[node], *victims.uids)) for node, victims in found.items()}
        self._named[asked.uid] = {node: [uid for uid in uids if uid in held] for node, uids in leave.items()}
        return PreemptionResult.of(
            {
                node: (uids, broken[node] + beyond(uids) - beyond(candidates[node]))
                for node, uids in leave.items()
                if uids
            }
        )

    def _comes_free(self, asked: PodRequest, args: PreemptionArgs) -> bool:
        """Return whether a node with victims of this pod was refused only because the victims were still there.

        The scheduler may learn of their deletion before us, or we may have learned of it since the refusal. The request
        may also carry a pod from before its nomination. Then the nodes are those where victims proposed for it are
        leaving.
        """
        nodes = [args.nominated] if args.nominated else self._left_for(asked.uid)
        return any(self._comes_free_on(node, asked, args) for node in nodes)

    def _left_for(self, uid: str) -> list[str]:
        """Return the nodes that victims proposed for a pod are leaving or have left."""
        named = self._named.get(uid, {})
        return [node for node, uids in named.items() if any(map(self._cluster.holders.is_leaving, uids))]

    def _comes_free_on(self, node: str, asked: PodRequest, args: PreemptionArgs) -> bool:
        """Do the same for one node. A node that we did not refuse does not count: the scheduler has its own reasons."""
        if node not in self._refused.get(asked.uid, ()) or not self._cluster.holders.is_schedulable(node):
            return False
        if self._cluster.holders.any_leaves(node, below=asked.request.claim.priority):
            return True
        return bool(self._offers.of(asked, self._admit(args.pod, asked, [node]), expected=False).names)

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
        epoch = self._ready()
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
        asked = self._read_pod(pod.document)
        if asked is None:
            await self._bind_without_cards(epoch, args, pod)
            return
        ask = self._plugins.asked(asked, args.node)
        async with self._plugins.node_lock(epoch, pod, args.node, ask.family.lock) if ask else nullcontext():
            await self._bind_with_cards(epoch, args, pod, asked, ask=ask)

    async def _bind_without_cards(self, epoch: int, args: BindArgs, pod: Pod) -> None:
        written = {f"{self._domain}/gpu-ids": ""}  # else later annotations would look like those of now
        request = self._aligned.read(pod.document)
        if request is None:
            await self._write(epoch, args, pod, written)
            return
        self._refresh()
        written |= self._aligned.place(request, args.node)
        with self._reserving(pod):
            await self._write(epoch, args, pod, written)

    async def _bind_with_cards(
        self, epoch: int, args: BindArgs, pod: Pod, asked: PodRequest, *, ask: FamilyRequest | None
    ) -> None:
        claimed = () if self._claims is None else await self._claims.claimed(pod)
        self._refresh()
        admitted = self._admit(pod.document, asked, [args.node])
        asked = _as_claimed(admitted.on(args.node), claimed)
        admitted.check_claimed(args.node, claimed)
        asked, allocation = self._offers.reserve(asked, admitted, args.node)
        if isinstance(allocation, Refusal):
            raise Conflict(f"{args.node} has no room for the pod any more: {allocation.code}", code="bind-no-room")
        with self._reserving(pod):
            written = bind_annotations(
                allocation,
                self._domain,
                capacities=self._cluster.capacities(allocation),
                container_gpu_counts=asked.container_gpu_counts,
            )
            bindings = admitted.bindings(args.node, allocation.gpus)
            if ask is not None:
                written |= self._plugins.annotations(
                    asked.devices or ask, allocation, self._cluster.cards(allocation), bound=bool(bindings)
                )
            if self._binding_filter is not None:
                written |= self._binding_filter.hold(pod, args.node, bindings, allocation.gpus)
            await self._write(epoch, args, pod, written)

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
        asked, before = self._read_pod(one.document), self._read_pod(other.document)
        if asked is None and before is None:
            now, then = self._aligned.read(one.document), self._aligned.read(other.document)
            return (now and now.requirement) == (then and then.requirement)
        if asked is None or before is None:
            return False
        return asked.requirement == before.requirement

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

    def _admit(self, pod: Document, asked: PodRequest, nodes: Sequence[str], *, note: bool = False) -> Admitted:
        """Return what the pod requests on which nodes: its own request, what bindings allow it, or linked cards."""
        found = (
            Admitted([(asked, nodes)])
            if self._binding_filter is None
            else self._binding_filter.admit(pod, asked, nodes, note=note)
        )
        return self._sets.narrow(pod, asked, found)

    def _ready(self) -> int:
        """Return the term in which questions can be answered.

        Raises:
            Unavailable: there is none now.

        """
        epoch = self._term.check()
        if self._binding_filter is not None and self._binding_filter.unready:
            raise Unavailable(self._binding_filter.unready, code="not-ready")
        return epoch

    def _refresh(self) -> None:
        """Bring the books up to date.

        Raises:
            Unavailable: not enough is known to decide.

        """
        self._ready()
        self._term.mirror.settle()


def _is_less(one: Preemption, other: Preemption | None) -> bool:
    """Return whether `one` has fewer victims than `other` on the same node."""
    return other is None or len(one.uids) < len(other.uids)


def _unplaced(
    asked: PodRequest, why: Mapping[str, str], short: BindingRejection | None, explain: Callable[[str], str]
) -> PodEvent:
    """Return the event that no node fits: a sentence, then the number of nodes for each reason, most frequent first."""
    if short is not None:
        cure = f"bind {counted(short.needed - short.had, 'more card')} by GPUBindings, or ask for less"
        text = f"requested={short.needed}, bound={short.had}; {cure}"
        return PodEvent.of(asked.claim, Reason.INSUFFICIENT_GPU, text)
    counts = Counter(why.values())
    text = "; ".join(f"{count} of {counted(len(why), 'node')}: {text}" for text, count in counts.most_common())
    sentence = explain(text) if text else ""
    text = f"{sentence}; {text}" if sentence else text
    return PodEvent.of(asked.claim, Reason.FILTERING_FAILED, text or "no node was offered")


def _as_claimed(asked: PodRequest, cards: tuple[str, ...]) -> PodRequest:
    """Return the request of a pod, restricted to exactly the cards that were claimed for it."""
    if cards:
        asked = replace(asked, together=())
    if len(cards) != asked.requirement.gpu_count:
        return asked
    selector = replace(asked.requirement.cards, uuids=cards)
    return replace(asked, requirement=replace(asked.requirement, cards=selector))
