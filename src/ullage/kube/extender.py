"""The scheduler extender: kube-scheduler asks which nodes will do and how good they are, and has us bind.

Nothing is held for good until bind, and bind is one write: it tells the pod its node and, on the pod itself, its
cards. Whether a write that got no answer was carried out is read back from the API, never guessed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from ullage.core.preemption import Preemption
from ullage.core.selection import Refusal
from ullage.kube.api import KubeApi
from ullage.kube.changes import Bind
from ullage.kube.errors import Unreachable, VersionConflict
from ullage.kube.events import PodEvent, Reason, Tell
from ullage.kube.gate import Admitted, Gate
from ullage.kube.kinds import PODS
from ullage.kube.lease import Candidate
from ullage.kube.mirror import Mirror
from ullage.kube.objects import Pod
from ullage.model.claim import Request
from ullage.model.error import Conflict, NotFound, UllageError, Unavailable
from ullage.service.cluster import Cluster, NodeOffers
from ullage.wire.document import Document
from ullage.wire.extender import BEST_SCORE, BindArgs, ExtenderArgs, FilterResult, PreemptionArgs, PreemptionResult
from ullage.wire.hami.refusals import refusal_text
from ullage.wire.pod import DOMAIN, PodRequest, ReadPod, bind_annotations


@dataclass(frozen=True, slots=True)
class Extender:
    """What kube-scheduler may ask for. Every call raises `UllageError` if it cannot be answered."""

    cluster: Cluster
    mirror: Mirror
    api: KubeApi
    candidate: Candidate
    read_pod: ReadPod
    domain: str = DOMAIN
    tell: Tell = lambda _event: None
    gate: Gate | None = None

    @property
    def unready(self) -> str:
        """Why questions cannot be answered now; "" if they can."""
        if not self.mirror.ready:
            return "what the cluster holds has not been read yet"
        epoch = self.candidate.epoch
        if epoch is None:
            return f"this process does not lead; {self.candidate.holder or 'nobody'} does"
        if self.mirror.term != epoch:
            return "what was bound before this process led has not been read yet"
        return "" if self.gate is None else self.gate.unready

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """The nodes that will do, and why each other one will not."""
        names = args.offered()
        asked = self.read_pod(args.pod)
        if asked is None:
            return args.kept(names, {}, {})
        self._check_ready()
        admitted = self._admit(args.pod, asked, names)
        found = self.cluster.offers_of(_requests(admitted), expected=not args.simulated)
        why, never = dict(admitted.refused), dict(admitted.never)
        for refusal, refused in found.refused:
            text = refusal_text(refusal.rejections, refusal.cards, asked.requirement.gpu_count)
            (why if refusal.helps else never).update(dict.fromkeys(refused, text))
        if not found.names and not args.simulated:
            self.tell(_unplaced(asked, {**why, **never}, admitted.short))
        return args.kept(found.names, why, never)

    def prioritize(self, args: ExtenderArgs) -> dict[str, int]:
        """How good each node is, from 0 to 10; the best alone has 10."""
        names = args.offered()
        asked = self.read_pod(args.pod)
        if asked is None:
            return dict.fromkeys(names, 0)
        self._check_ready()
        admitted = self._admit(args.pod, asked, names)
        return dict.fromkeys(names, 0) | ranked(self.cluster.offers_of(_requests(admitted), expected=False))

    def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Who would have to leave each node, so that as few as possible do."""
        asked = self.read_pod(args.pod)
        candidates = {node: victims.uids for node, victims in args.victims.items()}
        broken = {node: victims.violations for node, victims in args.victims.items()}
        if asked is None:
            return PreemptionResult.of({node: (uids, broken[node]) for node, uids in candidates.items() if uids})
        self._check_ready()
        found: dict[str, Preemption] = {}
        for request, nodes in _requests(self._admit(args.pod, asked, list(candidates))):
            found |= self.cluster.victims(request, {node: candidates[node] for node in nodes})
        return PreemptionResult.of(
            {
                node: (dict.fromkeys((*candidates[node], *victims.uids)), broken[node])
                for node, victims in found.items()
                if candidates[node] or victims.uids
            }
        )

    async def bind(self, args: BindArgs) -> None:
        """Send a pod to a node, with the best cards there; a repeat finds it there.

        Raises:
            Conflict: it is elsewhere, it is another pod of that name, or its cards are taken by now.
            NotFound: there is no such pod. NotLeading: another process decides.

        """
        try:
            await self._bind(args)
        except UllageError as error:
            self._tell_bind(args, Reason.BINDING_FAILED, f"{error.code}: {error.message}")
            raise
        self._tell_bind(args, Reason.BINDING_SUCCEED, f"bound to {args.node}")

    def _tell_bind(self, args: BindArgs, reason: Reason, message: str) -> None:
        self.tell(PodEvent(args.pod_namespace, args.pod_name, args.pod_uid, reason, message))

    async def _bind(self, args: BindArgs) -> None:
        epoch = self._leading()
        pod = await self.api.get(PODS, args.pod_name, args.pod_namespace)
        if _is_there(pod, args):
            return
        asked = self.read_pod(pod.document)
        if asked is None:
            await self.candidate.write(epoch, Bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node))
            return
        self._check_ready()
        admitted = self._admit(pod.document, asked, [args.node])
        asked = admitted.on(args.node)
        allocation = self.cluster.reserve(asked.request, args.node)
        if isinstance(allocation, Refusal):
            raise Conflict(f"{args.node} has no room for it by now: {allocation.code}", code="bind-no-room")
        written = bind_annotations(
            allocation,
            self.domain,
            capacities=self.cluster.capacities(allocation),
            container_gpu_counts=asked.container_gpu_counts,
        )
        try:
            if self.gate is not None:
                written |= self.gate.hold(args.pod_uid, admitted.bindings(args.node, allocation.gpus))
            await self._write(epoch, Bind(args.pod_namespace, args.pod_name, args.pod_uid, args.node, written), args)
        except Unreachable:
            raise  # it may have been carried out: the place stays reserved until the API tells
        except UllageError:
            self.cluster.undo(args.pod_uid)
            if self.gate is not None:
                self.gate.undo(args.pod_uid)
            raise
        self.cluster.confirm(args.pod_uid)

    async def _write(self, epoch: int, bind: Bind, args: BindArgs) -> None:
        try:
            await self.candidate.write(epoch, bind)
        except VersionConflict:
            if not _is_there(await self.api.get(PODS, args.pod_name, args.pod_namespace), args):
                raise

    def _admit(self, pod: Document, asked: PodRequest, nodes: Sequence[str]) -> Admitted:
        """What it asks where: as it says, or as bindings allow it."""
        return Admitted([(asked, nodes)]) if self.gate is None else self.gate.admit(pod, asked, nodes)

    def _leading(self) -> int:
        epoch = self.candidate.epoch
        if epoch is None:
            raise Unavailable(
                f"this process does not lead; {self.candidate.holder or 'nobody'} does", code="not-leading"
            )
        return epoch

    def _check_ready(self) -> None:
        if not self.mirror.ready:
            raise Unavailable("what the cluster holds has not been read yet", code="not-ready")
        self.mirror.settle()


def _requests(admitted: Admitted) -> list[tuple[Request, Sequence[str]]]:
    return [(asked.request, nodes) for asked, nodes in admitted.asked]


def _unplaced(asked: PodRequest, why: Mapping[str, str], short: tuple[int, int] | None) -> PodEvent:
    """That no node will do, and how many of them for which reason: the most frequent first."""
    if short is not None:
        claim, (requested, bound) = asked.claim, short
        told = f"requested={requested}, bound={bound}"
        return PodEvent(claim.namespace, claim.pod, claim.pod_uid, Reason.INSUFFICIENT_GPU, told)
    counts = Counter(why.values())
    told = "; ".join(f"{count} of {len(why)} nodes: {text}" for text, count in counts.most_common())
    claim = asked.claim
    return PodEvent(claim.namespace, claim.pod, claim.pod_uid, Reason.FILTERING_FAILED, told or "no node was offered")


def ranked(offers: NodeOffers) -> dict[str, int]:
    """Scores as kube-scheduler takes them: the best has `BEST_SCORE`, who is not the best has less."""
    scores = offers.scores
    if not offers.names:
        return {}
    best, worst = scores.max(), scores.min()
    scale = (BEST_SCORE - 1) / (best - worst) if best > worst else 0.0
    whole = np.where(scores == best, BEST_SCORE, ((scores - worst) * scale).astype(np.int64))
    return dict(zip(offers.names, whole.tolist(), strict=True))


def _is_there(pod: Pod, args: BindArgs) -> bool:
    """Whether it is on its node already.

    Raises:
        NotFound: it is another pod by now. Conflict: it is on another node.

    """
    if pod.metadata.uid != args.pod_uid:
        raise NotFound(f"pod {args.pod_namespace}/{args.pod_name} is another one by now", code="pod-replaced")
    if pod.spec.node_name and pod.spec.node_name != args.node:
        raise Conflict(f"pod {args.pod_namespace}/{args.pod_name} is on {pod.spec.node_name}", code="bound-elsewhere")
    return bool(pod.spec.node_name)
