"""`preempt`: the fewest pods on each node without which a pod fits there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from ullage.core.evicting.preemption import Preemption
from ullage.core.evicting.victims import Budgets
from ullage.kube.context import KubeContext
from ullage.kube.evicting.disruption import budgets_of
from ullage.kube.evicting.preemption import NODES_AT_ONCE, Preemptor
from ullage.kube.extender.card_offers import of_all_families, requests, sharing
from ullage.kube.extender.filtering import NodeFilter
from ullage.kube.extender.leader_books import LeaderBooks
from ullage.kube.recent import Recent
from ullage.model.family_ids import uid_of
from ullage.wire.document import Document
from ullage.wire.extender import PreemptionArgs, PreemptionResult
from ullage.wire.pod import PodRequest

_NAMED = 256
"""Maximum number of pods whose proposed victims are remembered."""


class VictimProposals:
    """The victims that kube-scheduler may evict for a pod; `refusals` knows what its filter refused."""

    def __init__(
        self, context: KubeContext, books: LeaderBooks, refusals: NodeFilter, preemptor: Preemptor | None
    ) -> None:
        self._cluster, self._budgets = context.cluster, context.followed.budgets
        self._books, self._refusals, self._preemptor = books, refusals, preemptor
        self._named: Recent[str, Mapping[str, Iterable[str]]] = Recent(_NAMED)
        """By pod uid, for the last `_NAMED` pods: the victims that were proposed on each node."""

    async def preempt(self, args: PreemptionArgs) -> PreemptionResult:
        """Return the fewest victims on each node; no victims if the pod already has or is about to get a place.

        A few nodes are searched at a time, and other questions are answered in between.
        """
        asked = self._books.read_pod(args.pod)
        candidates = {node: victims.uids for node, victims in args.victims.items()}
        broken = {node: victims.violations for node, victims in args.victims.items()}
        if asked is None:
            return PreemptionResult.of({node: (uids, broken[node]) for node, uids in candidates.items() if uids})
        self._books.refresh()
        if self._cluster.held(asked.uid) is not None or self._comes_free(asked, args):
            return PreemptionResult()
        held = {each.id: each for each in self._cluster.holders.on(candidates)}
        budgets = budgets_of(self._budgets.objects.values(), held.values())
        found: dict[str, Sequence[str]] = dict.fromkeys(candidates, ())
        for each in asked.by_family:
            named = {node: (*candidates[node], *victims) for node, victims in found.items()}
            there = await self._victims(args.pod, each, named, budgets)
            found = {node: (*found[node], *map(uid_of, victims.uids)) for node, victims in there.items()}
        if self._cluster.held(asked.uid) is not None:  # it got a place meanwhile
            return PreemptionResult()

        def beyond(uids: Iterable[str]) -> int:
            return budgets.broken(held[uid] for uid in uids if uid in held).total()

        if self._preemptor is not None and any(found.values()):
            self._preemptor.answered(asked.uid, placed=False)
        leave = {node: dict.fromkeys((*candidates[node], *victims)) for node, victims in found.items()}
        self._named[asked.uid] = {node: [uid for uid in uids if uid in held] for node, uids in leave.items()}
        return PreemptionResult.of(
            {
                node: (uids, broken[node] + beyond(uids) - beyond(candidates[node]))
                for node, uids in leave.items()
                if uids
            }
        )

    async def _victims(
        self, pod: Document, asked: PodRequest, candidates: Mapping[str, Sequence[str]], budgets: Budgets
    ) -> dict[str, Preemption]:
        """Return the fewest victims on each node for the cards of one family."""
        found: dict[str, Preemption] = {}
        admitted = self._books.admit(pod, asked, list(candidates))
        for request, nodes in [*requests(admitted), *sharing(asked, admitted, list(candidates))]:
            for start in range(0, len(nodes), NODES_AT_ONCE):
                few = {node: candidates[node] for node in nodes[start : start + NODES_AT_ONCE]}
                there = self._cluster.victims(request, few, budgets)
                found |= {node: each for node, each in there.items() if _is_less(each, found.get(node))}
                await asyncio.sleep(0)
                self._books.refresh()
        return found

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
        if not self._refusals.has_refused(asked.uid, node) or not self._cluster.holders.is_schedulable(node):
            return False
        if self._cluster.holders.any_leaves(node, below=asked.request.claim.priority):
            return True
        return bool(of_all_families(self._books.offered(args.pod, asked, [node], comes=False)).names)


def _is_less(one: Preemption, other: Preemption | None) -> bool:
    """Return whether `one` has fewer victims than `other` on the same node."""
    return other is None or len(one.uids) < len(other.uids)
