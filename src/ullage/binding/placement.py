"""Automatic choice of cards for an application: its limit before its requirement, exclusive before shared cards."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple

from ullage.binding.limits import too_full
from ullage.binding.quotas import beyond_quota
from ullage.binding.room import MODE_ORDER
from ullage.binding.rows import rows_of
from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.card_figures import names_model
from ullage.model.compute import AppKey, AvailabilityScope, ComputeCard, ComputeNode, ComputeRequirement, Pick
from ullage.model.compute_result import FitLevel

Picks = tuple[Pick, ...]


class Opening(NamedTuple):
    card: ComputeCard
    free: int

    @property
    def rank(self) -> int:
        """The position of its share mode in `MODE_ORDER`."""
        return MODE_ORDER[self.card.share]


def place(view: BindingView, asked: ComputeRequirement, nodes: Iterable[ComputeNode]) -> Picks | None:
    """Return the cards for an application on these nodes; None if they have not enough.

    Among cards that fit equally well, the one with the least memory left is chosen, then the first by node and id.
    Several cards are on one node if one has enough, else on as few as needed. On a node, all have the same share mode,
    because a pod cannot use others together.
    """
    there = [group for node in nodes for group in _openings(view, node, asked.accelerator)]
    for amount in dict.fromkeys((asked.limit_bytes, asked.gpu_bytes)):
        found = _one(there, amount)
        if found is None and asked.scope is not AvailabilityScope.CARD:
            found = _on_one_node(there, amount)
        if found is None and asked.scope is AvailabilityScope.NODES:
            found = _over_nodes(there, amount)
        if found is not None:
            return found
    return None


def place_in_quotas(
    view: BindingView, app: AppKey, asked: ComputeRequirement, nodes: Iterable[ComputeNode]
) -> Picks | None:
    """Return the cards as `place`, without models of which a quota has no more for the application.

    If only such cards are left they are returned, and their validation names the quota.
    """
    nodes = list(nodes)
    first = found = place(view, asked, nodes)
    while found is not None:
        over = beyond_quota(view, app, rows_of(view, app, asked, found))
        if over is None or not over.scope.model:
            return found
        model = over.scope.model
        nodes = [
            replace(node, cards=tuple(card for card in node.cards if not names_model(model, card.model)))
            for node in nodes
        ]
        found = place(view, asked, nodes)
    return first


def roomy(view: BindingView, asked: ComputeRequirement, *, install: bool = False) -> list[ComputeNode]:
    """Return the nodes with the accelerator that would not come under pressure, by name."""
    added = asked.room(install=install)
    return [node for node in view.of_type(asked.accelerator) if not too_full(node, added)]


def fit(view: BindingView, card: ComputeCard, asked: ComputeRequirement) -> FitLevel | None:
    """Return how well a single card fits; None if it does not."""
    if not view.usable(card) or card.accelerator != asked.accelerator:
        return None
    opening = Opening(card, view.free_bytes(card))
    if _fits(opening, asked.limit_bytes):
        return FitLevel.LIMIT
    return FitLevel.REQUIRED if _fits(opening, asked.gpu_bytes) else None


def _openings(view: BindingView, node: ComputeNode, accelerator: str) -> list[list[Opening]]:
    """Return the cards of a node with free memory, grouped by share mode."""
    if not node.ready:
        return []
    cards = (each for each in node.cards if each.accelerator == accelerator and each.healthy and not each.cordoned)
    free = [Opening(card, free) for card in cards if (free := view.free_bytes(card)) > 0]
    return [[each for each in free if each.rank == rank] for rank in sorted({each.rank for each in free})]


def _fits(opening: Opening, amount: int) -> bool:
    """Return whether a card has that much. From sliced memory, some must be requested."""
    card, free = opening
    return 0 < free >= amount and (amount > 0 or card.share is not ShareMode.MEMORY_SLICE)


def _one(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    fitting = [opening for openings in there for opening in openings if _fits(opening, amount)]
    best = min(fitting, key=lambda each: (each.rank, each.free, each.card.node, each.card.id), default=None)
    return None if best is None else _shared([best], amount)


def _on_one_node(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    """Return cards of the best node: by share mode, then the fewest cards, then the least memory left."""
    found = []
    for openings in there:
        chosen, left = _take(openings, amount)
        if chosen and not left:
            first = chosen[0]
            found.append(((first.rank, len(chosen), _total(chosen) - amount, first.card.node), chosen))
    return _shared(min(found)[1], amount) if found else None


def _over_nodes(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    """Return cards of several nodes, those with the most free memory first, and of each node its largest group."""
    chosen: list[Opening] = []
    left = amount
    largest: dict[str, Sequence[Opening]] = {}
    for group in sorted(there, key=lambda group: (-_total(group), group[0].rank)):
        largest.setdefault(group[0].card.node, group)
    for name in sorted(largest, key=lambda name: (-_total(largest[name]), name)):
        more, left = _take(largest[name], left)
        chosen += more
        if not left:
            break
    return _shared(chosen, amount) if chosen and not left else None


def _take(openings: Iterable[Opening], amount: int) -> tuple[list[Opening], int]:
    """Return cards that reach the amount, and what is missing if they do not.

    Large cards come first. The last one is the smallest that suffices.
    """
    pool = sorted(openings, key=lambda each: (-each.free, each.card.id))
    chosen: list[Opening] = []
    while pool and amount > 0:
        enough = [each for each in pool if each.free >= amount]
        taken = min(enough or pool[:1], key=lambda each: (each.free, each.card.id))
        pool.remove(taken)
        chosen.append(taken)
        amount -= min(amount, taken.free)
    return chosen, amount


def _shared(chosen: Iterable[Opening], amount: int) -> Picks:
    """Return the amount distributed over these cards. Only cards whose memory is sliced have an amount."""
    picks = []
    for card, free in chosen:
        given = min(amount, free)
        picks.append(Pick(card.node, card.id, given if card.share is ShareMode.MEMORY_SLICE else 0))
        amount -= given
    return tuple(picks)


def _total(openings: Iterable[Opening]) -> int:
    return sum(each.free for each in openings)
