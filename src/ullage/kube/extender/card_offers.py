"""Node offers for pods whose containers may share cards, and the amounts reserved on each card."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from ullage.core.placing.decision import Refusal
from ullage.core.placing.offers import NodeRefusal
from ullage.kube.bindings.filter import Admitted
from ullage.model.allocation import Allocation
from ullage.model.claim import Request
from ullage.model.part import Isolation
from ullage.service.cluster import Cluster
from ullage.service.node_offers import NodeOffers
from ullage.wire.extender import BEST_SCORE
from ullage.wire.hami.sharing import parts_by_card
from ullage.wire.pod import Dialect, PodRequest


def requests(admitted: Admitted) -> list[tuple[Request, Sequence[str]]]:
    """Return what a pod requests on which nodes, with a separate card for each container."""
    return [(asked.request, nodes) for asked, nodes in admitted.asked]


def sharing(asked: PodRequest, admitted: Admitted, nodes: Sequence[str]) -> list[tuple[Request, Sequence[str]]]:
    """Return what a pod requests on these nodes if its containers share cards; empty if they cannot share."""
    return [] if admitted.places else [(shared.request, nodes) for shared in asked.shared]


class FamilyOffers(NamedTuple):
    """What a pod requests of one family, what it may have of that on which nodes, and what they offer."""

    asked: PodRequest
    admitted: Admitted
    offers: NodeOffers


def of_all_families(found: Sequence[FamilyOffers]) -> NodeOffers:
    """Return what nodes offer to a pod: those that have room for the cards of each of its families."""
    first, *further = (each.offers for each in found)
    for more in further:
        scores = dict(zip(more.names, more.scores.tolist(), strict=True))
        kept = [at for at, name in enumerate(first.names) if name in scores]
        names = [first.names[at] for at in kept]
        both = first.scores[kept] + np.array([scores[name] for name in names])
        first = NodeOffers(names, both, [*first.refused, *more.refused])
    return first


@dataclass(frozen=True, slots=True)
class CardOffers:
    """Try a separate card for each container first, then shared cards, as few of them as needed."""

    cluster: Cluster

    def of(self, asked: PodRequest, admitted: Admitted, *, expected: bool) -> NodeOffers:
        """Return what nodes offer. Nodes without a separate card for each container rank after all others."""
        found = self.cluster.offers_of(requests(admitted), expected=expected)
        for shared in () if admitted.places else asked.shared:
            refused = [name for _, names in found.refused for name in names]
            if not refused:
                break
            more = self.cluster.offers_of([(shared.request, refused)], expected=expected and not found.names)
            found = _followed(found, more) if more.names else found
            found = _curable(found, more)
        return found

    def reserve(self, asked: PodRequest, admitted: Admitted, node: str) -> tuple[PodRequest, Allocation | Refusal]:
        """Reserve cards on a node. Return the request that fits these cards, and the allocation.

        Each card is charged with the requests of the containers that use it, or with the amount of its binding.

        Raises:
            UllageError: as `Cluster.reserve`.

        """
        first = self.cluster.reserve(asked.request, node)
        if isinstance(first, Allocation):
            return asked, self._charged(asked, admitted, first)
        for shared in () if admitted.places else asked.shared:
            found = self.cluster.reserve(shared.request, node)
            if isinstance(found, Allocation):
                return shared, self._charged(shared, admitted, found)
        return asked, first

    def _charged(self, asked: PodRequest, admitted: Admitted, allocation: Allocation) -> Allocation | Refusal:
        uid, bound = asked.request.uid, admitted.uneven.get(allocation.node)
        if bound:
            return self.cluster.charge_unevenly(uid, bound)
        shares = asked.requirement.cards.isolation in (Isolation.SOFT, Isolation.HARD)
        if asked.devices is None or asked.dialect is not Dialect.HAMI or not shares or admitted.places:
            return allocation
        totals = {card.uuid: card.vram_bytes for card in self.cluster.cards(allocation)}
        parts = parts_by_card(asked.devices.containers, allocation.gpus, totals)
        most = 0 if asked.requirement.part is None else asked.requirement.part.compute_ppm
        compute = {card: part.compute_ppm for card, part in parts.items() if part.compute_ppm < most}
        charged = {card: charge.vram for card, charge in zip(allocation.gpus, allocation.charges, strict=False)}
        vram = {card: part.vram_bytes for card, part in parts.items() if part.vram_bytes < charged.get(card, 0)}
        return self.cluster.charge_unevenly(uid, vram, compute) if vram or compute else allocation


def ranked(offers: NodeOffers) -> dict[str, int]:
    """Return scores in kube-scheduler's range: the best nodes have `BEST_SCORE`, all others have less."""
    scores = offers.scores
    if not offers.names:
        return {}
    best, worst = scores.max(), scores.min()
    scale = (BEST_SCORE - 1) / (best - worst) if best > worst else 0.0
    whole = np.where(scores == best, BEST_SCORE, ((scores - worst) * scale).astype(np.int64))
    return dict(zip(offers.names, whole.tolist(), strict=True))


def _curable(found: NodeOffers, more: NodeOffers) -> NodeOffers:
    """Return offers in which nodes that take the pod after evictions, though only with shared cards, say so."""
    helped = {name: why for why, names in more.refused if why.helps for name in names}
    if not helped:
        return found
    kept: list[tuple[NodeRefusal, list[str]]] = []
    moved: dict[int, tuple[NodeRefusal, list[str]]] = {}
    for why, names in found.refused:
        kept.append((why, [name for name in names if why.helps or name not in helped]))
        for name in () if why.helps else (name for name in names if name in helped):
            moved.setdefault(id(helped[name]), (helped[name], []))[1].append(name)
    refused = [(why, names) for why, names in (*kept, *moved.values()) if names]
    return NodeOffers(found.names, found.scores, refused)


def _followed(first: NodeOffers, more: NodeOffers) -> NodeOffers:
    least = first.scores.min() - 1 if first.names else 0.0
    scores = np.concatenate([first.scores, more.scores - more.scores.max() + least])
    fits = set(more.names)
    left = [(why, [name for name in names if name not in fits]) for why, names in first.refused]
    return NodeOffers([*first.names, *more.names], scores, [(why, names) for why, names in left if names])
