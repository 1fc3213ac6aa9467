"""Cards chosen for an application: all that it would use before what it requires, whole cards before shared ones."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ullage.core.binding.pressure import pressure
from ullage.core.binding.view import View
from ullage.model.binding import ShareMode
from ullage.model.compute import ComputeCard, ComputeNode, ComputeRequirement, Pick, Scope
from ullage.model.compute_answer import FitLevel

_RANK = {ShareMode.EXCLUSIVE: 0, ShareMode.MEMORY_SLICE: 1, ShareMode.TIME_SLICE: 2}

Picks = tuple[Pick, ...]


def place(view: View, asked: ComputeRequirement, nodes: Iterable[ComputeNode]) -> Picks | None:
    """The cards for an application on some of these nodes; None where they have not enough.

    Of what fits equally well the card with the least left over is taken, then the first by node and id. Several
    cards are of one node where one has enough, else of as many as are needed.
    """
    there = {node.name: usable for node in nodes if (usable := _usable(view, node, asked.accelerator))}
    for amount in dict.fromkeys((asked.limit_bytes, asked.gpu_bytes)):
        found = _one(view, there.values(), amount)
        if found is None and asked.scope is not Scope.CARD:
            found = _on_one_node(view, there, amount)
        if found is None and asked.scope is Scope.NODES:
            found = _over_nodes(view, there, amount)
        if found is not None:
            return found
    return None


def roomy(view: View, asked: ComputeRequirement, *, install: bool = False) -> list[ComputeNode]:
    """The nodes of the type, by name, that would not become too full."""
    added = asked.room(install=install)
    return [node for node in view.of_type(asked.accelerator) if not pressure(node, added).pressured]


def fit(view: View, card: ComputeCard, asked: ComputeRequirement) -> FitLevel | None:
    """How well a card alone fits; None for not at all."""
    if not view.usable(card) or card.accelerator != asked.accelerator:
        return None
    if _fits(view, card, asked.limit_bytes):
        return FitLevel.LIMIT
    return FitLevel.REQUIRED if _fits(view, card, asked.gpu_bytes) else None


def _usable(view: View, node: ComputeNode, accelerator: str) -> list[ComputeCard]:
    """The cards of a node that have anything."""
    return [
        card
        for card in node.cards
        if card.accelerator == accelerator and view.usable(card) and view.free_bytes(card) > 0
    ]


def _fits(view: View, card: ComputeCard, amount: int) -> bool:
    """Whether a card has so much; of shared memory some must be asked."""
    return 0 < view.free_bytes(card) >= amount and (amount > 0 or card.share is not ShareMode.MEMORY_SLICE)


def _one(view: View, there: Iterable[Sequence[ComputeCard]], amount: int) -> Picks | None:
    fitting = [card for cards in there for card in cards if _fits(view, card, amount)]
    best = min(fitting, key=lambda card: (_RANK[card.share], view.free_bytes(card), card.key), default=None)
    return None if best is None else (_pick(best, amount),)


def _on_one_node(view: View, there: dict[str, list[ComputeCard]], amount: int) -> Picks | None:
    """The node that gives it with the wholest, the fewest and the fullest cards."""
    found = []
    for name, cards in there.items():
        chosen, left = _take(view, cards, amount)
        if chosen and not left:
            spare = sum(map(view.free_bytes, chosen)) - amount
            found.append(((max(_RANK[card.share] for card in chosen), len(chosen), spare, name), chosen))
    return _shared(view, min(found)[1], amount) if found else None


def _over_nodes(view: View, there: dict[str, list[ComputeCard]], amount: int) -> Picks | None:
    """Node after node, those with the most first."""
    chosen: list[ComputeCard] = []
    left = amount
    for name in sorted(there, key=lambda name: (-sum(map(view.free_bytes, there[name])), name)):
        more, left = _take(view, there[name], left)
        chosen += more
        if not left:
            break
    return _shared(view, chosen, amount) if chosen and not left else None


def _take(view: View, cards: Iterable[ComputeCard], amount: int) -> tuple[list[ComputeCard], int]:
    """Cards of a node until the amount is reached, and what is missing of it.

    Large cards come first; the last one is the smallest that is enough.
    """
    pool = sorted(cards, key=lambda card: (_RANK[card.share], -view.free_bytes(card), card.id))
    chosen: list[ComputeCard] = []
    while pool and amount > 0:
        alike = [card for card in pool if card.share is pool[0].share]
        enough = [card for card in alike if view.free_bytes(card) >= amount]
        card = min(enough, key=lambda card: (view.free_bytes(card), card.id)) if enough else pool[0]
        pool.remove(card)
        chosen.append(card)
        amount -= min(amount, view.free_bytes(card))
    return chosen, amount


def _shared(view: View, chosen: Iterable[ComputeCard], amount: int) -> Picks:
    """The amount over these cards, each giving what it can."""
    picks = []
    for card in chosen:
        given = min(amount, view.free_bytes(card))
        picks.append(_pick(card, given))
        amount -= given
    return tuple(picks)


def _pick(card: ComputeCard, amount: int) -> Pick:
    return Pick(card.node, card.id, amount if card.share is ShareMode.MEMORY_SLICE else 0)
