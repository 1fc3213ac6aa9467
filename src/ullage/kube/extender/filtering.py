"""`filter` and `prioritize`: which nodes fit a pod, how good each is, and why the others do not fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from ullage.binding.room import BindingRejection
from ullage.kube.aligned_pods import refusal_sentence
from ullage.kube.bindings.filter import Admitted
from ullage.kube.context import KubeContext
from ullage.kube.events import PodEvent, Reason
from ullage.kube.evicting.preemption import Preemptor
from ullage.kube.extender.card_offers import FamilyOffers, of_all_families, ranked, requests, sharing
from ullage.kube.extender.explained import Explained, why_nowhere
from ullage.kube.extender.leader_books import LeaderBooks
from ullage.kube.leader.unconfirmed import UnconfirmedBinds
from ullage.model.counted import counted
from ullage.model.rejection import Rejection
from ullage.wire.document import Document
from ullage.wire.extender import ExtenderArgs, FilterResult
from ullage.wire.hami.refusals import refusal_text
from ullage.wire.pod import PodRequest
from ullage.wire.pod.affinity import prefers_nodes

OFFERED_NODES = 64
"""The most nodes that `filter` returns: the fewer, the less kube-scheduler has to score and to ask again."""


class Examined(NamedTuple):
    """The offers of the examined nodes for each family that a pod requests, and the score of each node that fits."""

    by_family: Sequence[FamilyOffers]
    scores: dict[str, float]


class NodeReasons(NamedTuple):
    """Why nodes do not fit: `never` has those where no eviction helps."""

    why: dict[str, str]
    never: dict[str, str]


class NodeFilter:
    """`filter` returns the best `offered_nodes`, or with 0 all, of the nodes that fit."""

    def __init__(
        self,
        context: KubeContext,
        books: LeaderBooks,
        unconfirmed: UnconfirmedBinds,
        *,
        preemptor: Preemptor | None,
        offered_nodes: int,
    ) -> None:
        self._cluster, self._record_event = context.cluster, context.record_event
        self._books, self._unconfirmed, self._preemptor = books, unconfirmed, preemptor
        self._offered_nodes = offered_nodes
        self._explained = Explained()
        self._refused: dict[str, Mapping[str, str]] = {}
        """By uid, for the last pod asked about: nodes refused where evictions may help, and the reasons."""

    def has_refused(self, uid: str, node: str) -> bool:
        """Return whether the last answer for a pod refused a node where evictions may help."""
        return node in self._refused.get(uid, ())

    def filter(self, args: ExtenderArgs) -> FilterResult:
        """Return the best nodes that fit the pod, and for each node that does not fit the reason.

        A pod with preferences that kube-scheduler scores is offered all nodes that fit.
        """
        names = args.offered()
        asked = self._books.read_pod(args.pod)
        if asked is None:
            return self._filter_aligned(args, names)
        self._books.refresh()
        with self._books.with_templates(args):
            comes = not (args.simulated or self._unconfirmed.is_gone(asked.uid))
            by_family = self._books.offered(args.pod, asked, names, comes=comes)
            found, (why, never) = of_all_families(by_family), _reasons(by_family)
            (_, admitted, _), *_ = by_family
            lacking = self._lacking(asked, admitted, found.names)
            why |= {node: refusal_text(short, len(admitted.uneven[node])) for node, short in lacking.items()}
            fits = [node for node in found.names if node not in lacking] if lacking else found.names
            if comes:
                self._refused.clear()
                self._refused[asked.uid] = why
                self._note(by_family, placed=bool(fits), why=why, never=never)
            if self._offered_nodes and not lacking and not prefers_nodes(args.pod):
                fits = found.best_names(self._offered_nodes)
            return args.result(fits, why, never)

    def _filter_aligned(self, args: ExtenderArgs, names: list[str]) -> FilterResult:
        """Return the nodes that fit a pod without cards by zones."""
        request = self._books.aligned.read(args.pod)
        if request is None:
            return args.result(names, {}, {})
        self._books.refresh()
        comes = not (args.simulated or self._unconfirmed.is_gone(request.uid))
        with self._books.with_templates(args):
            found = self._books.aligned.offers(request, names, expected=comes)
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
        self, found: Sequence[FamilyOffers], *, placed: bool, why: Mapping[str, str], never: Mapping[str, str]
    ) -> None:
        (asked, admitted, _), *_ = found
        if self._preemptor is not None and placed:
            self._preemptor.answered(asked.uid, placed=True)
        elif self._preemptor is not None:
            helps = why.keys() - admitted.uneven.keys()  # the shortage there is not in the request
            wanted = [
                [
                    (request, there)
                    for request, nodes in (*requests(each.admitted), *sharing(each.asked, each.admitted, list(helps)))
                    if (there := [node for node in nodes if node in helps])
                ]
                for each in found
            ]
            self._preemptor.refused(*wanted)
        if placed:
            self._explained.forget(asked.uid)
            return
        reasons = {**why, **never}
        self._record_event(_unplaced(asked, reasons, admitted.permit.short, lambda texts: self._explain(found, texts)))

    def _explain(self, found: Sequence[FamilyOffers], texts: str) -> str:
        """Return a sentence that explains why the pod fits on no node."""

        def explain() -> str:
            return why_nowhere(self._cluster, found)

        (asked, _, _), *_ = found
        refused = any(each.offers.refused for each in found)
        return self._explained.of(asked.uid, texts, explain) if refused else explain()

    def examine(self, pod: Document, asked: PodRequest, nodes: Sequence[str]) -> Examined:
        """Return what these nodes offer to a pod now. Nothing is reserved, and no event is written."""
        self._books.refresh()
        by_family = self._books.offered(pod, asked, nodes, comes=False)
        found = of_all_families(by_family)
        (_, admitted, _), *_ = by_family
        lacking = self._lacking(asked, admitted, found.names)
        scores = zip(found.names, found.scores.tolist(), strict=True)
        return Examined(by_family, {node: score for node, score in scores if node not in lacking})

    def prioritize(self, args: ExtenderArgs) -> dict[str, int]:
        """Return the score of each node, from 0 to 10. Only the best nodes have 10."""
        names = args.offered()
        asked = self._books.read_pod(args.pod)
        request = self._books.aligned.read(args.pod) if asked is None else None
        if asked is None and request is None:
            return dict.fromkeys(names, 0)
        self._books.refresh()
        with self._books.with_templates(args):
            if asked is not None:
                scores = ranked(of_all_families(self._books.offered(args.pod, asked, names, comes=False)))
            elif request is not None:
                scores = ranked(self._books.aligned.offers(request, names, expected=False))
        return scores if len(scores) == len(names) else dict.fromkeys(names, 0) | scores


def _reasons(found: Sequence[FamilyOffers]) -> NodeReasons:
    """Return why nodes do not fit; of a pod with cards of several families for each of which they lack some."""
    first, *further = found
    if not further:
        return _reasons_of(first)
    why, never = NodeReasons({}, {})
    for each in found:
        for texts, own in zip((why, never), _reasons_of(each), strict=True):
            for node, text in own.items():
                of_family = f"{each.asked.family}: {text}"
                texts[node] = f"{texts[node]}; {of_family}" if node in texts else of_family
    never |= {node: f"{why.pop(node)}; {never[node]}" for node in never.keys() & why.keys()}
    return NodeReasons(why, never)


def _reasons_of(found: FamilyOffers) -> NodeReasons:
    asked, admitted, offers = found
    why, never = admitted.refused(helps=True), admitted.refused(helps=False)
    for refusal, refused in offers.refused:
        count = min(each.gpu_count for each in (asked.requirement, *asked.together))
        text = refusal_text(refusal.rejections, refusal.cards, count, mutex=asked.idle_only)
        (why if refusal.helps else never).update(dict.fromkeys(refused, text))
    return NodeReasons(why, never)


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
