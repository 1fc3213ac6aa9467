"""Cards chosen for an application: all that it would use before what it requires, whole cards before shared ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from ullage.binding.limits import too_full
from ullage.binding.view import BindingView
from ullage.model.binding import ShareMode
from ullage.model.compute import AvailabilityScope, ComputeCard, ComputeNode, ComputeRequirement, Pick
from ullage.model.compute_answer import FitLevel

_RANK = {ShareMode.EXCLUSIVE: 0, ShareMode.MEMORY_SLICE: 1, ShareMode.TIME_SLICE: 2}

Picks = tuple[Pick, ...]


class Opening(NamedTuple):
    """A card that has anything, and how much."""

    card: ComputeCard
    free: int

    @property
    def rank(self) -> int:
        """How shared it is."""
        return _RANK[self.card.share]


def place(view: BindingView, asked: ComputeRequirement, nodes: Iterable[ComputeNode]) -> Picks | None:
    """Return the cards for an application on some of these nodes; None where they have not enough.

    Of what fits equally well the card with the least left over is taken, then the first by node and id. Several
    cards are of one node where one has enough, else of as many as are needed. Cards of one node are shared in one way:
    a pod takes only such cards together.
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


def roomy(view: BindingView, asked: ComputeRequirement, *, install: bool = False) -> list[ComputeNode]:
    """Return the nodes of the type, by name, that would not become too full."""
    added = asked.room(install=install)
    return [node for node in view.of_type(asked.accelerator) if not too_full(node, added)]


def fit(view: BindingView, card: ComputeCard, asked: ComputeRequirement) -> FitLevel | None:
    """Return how well a card alone fits; None for not at all."""
    if not view.usable(card) or card.accelerator != asked.accelerator:
        return None
    opening = Opening(card, view.free_bytes(card))
    if _fits(opening, asked.limit_bytes):
        return FitLevel.LIMIT
    return FitLevel.REQUIRED if _fits(opening, asked.gpu_bytes) else None


def _openings(view: BindingView, node: ComputeNode, accelerator: str) -> list[list[Opening]]:
    """Return the cards of a node that have anything free, in groups that are shared in one way."""
    if not node.ready:
        return []
    cards = (each for each in node.cards if each.accelerator == accelerator and each.healthy and not each.cordoned)
    free = [Opening(card, free) for card in cards if (free := view.free_bytes(card)) > 0]
    return [[each for each in free if each.rank == rank] for rank in sorted({each.rank for each in free})]


def _fits(opening: Opening, amount: int) -> bool:
    """Return whether a card has so much; of shared memory some must be asked."""
    card, free = opening
    return 0 < free >= amount and (amount > 0 or card.share is not ShareMode.MEMORY_SLICE)


def _one(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    fitting = [opening for openings in there for opening in openings if _fits(opening, amount)]
    best = min(fitting, key=lambda each: (each.rank, each.free, each.card.node, each.card.id), default=None)
    return None if best is None else _shared([best], amount)


def _on_one_node(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    """Return the node that gives it with the wholest, the fewest and the fullest cards."""
    found = []
    for openings in there:
        chosen, left = _take(openings, amount)
        if chosen and not left:
            first = chosen[0]
            found.append(((first.rank, len(chosen), _total(chosen) - amount, first.card.node), chosen))
    return _shared(min(found)[1], amount) if found else None


def _over_nodes(there: Iterable[Sequence[Opening]], amount: int) -> Picks | None:
    """Node after node, those with the most first; of each node its largest group."""
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
    """Return cards of a node until the amount is reached, and what is missing of it.

    Large cards come first; the last one is the smallest that is enough.
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
    """Return the amount over these cards, each giving what it can; whole cards have no amount."""
    picks = []
    for card, free in chosen:
        given = min(amount, free)
        picks.append(Pick(card.node, card.id, given if card.share is ShareMode.MEMORY_SLICE else 0))
        amount -= given
    return tuple(picks)


def _total(openings: Iterable[Opening]) -> int:
    return sum(each.free for each in openings)
