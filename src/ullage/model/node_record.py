"""The record of one node from an outside source, in any form of document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ullage.model.gpu import Gpu
from ullage.model.holding import Use, ZoneAmounts, card_ids
from ullage.model.resources import Resources
from ullage.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Stock:
    """How many CPUs or devices of a resource a node has, and the ids of those that are free, ascending."""

    total: int
    free: tuple[int, ...] = ()


def stock_of_cards(cards: Iterable[Gpu], use: Use) -> Stock:
    """Return the stock of a node's cards; a card is free if it is healthy and no container holds any of it.

    Cards are found by uuid. For each id that matches no card, one more card counts as held.
    """
    known = tuple(cards)
    held = _held(use)
    free = sorted(card.index for card in known if card.healthy and card.uuid not in held)
    return Stock(len(known), tuple(free[len(unknown_cards(known, use)) :]))


def unknown_cards(cards: Iterable[Gpu], use: Use | None) -> tuple[str, ...]:
    """Return the ids, sorted, under which containers hold cards that are not among `cards`."""
    return tuple(sorted(_held(use) - {card.uuid for card in cards}))


def _held(use: Use | None) -> set[str]:
    return {id_ for pod in (use.pods if use else ()) for id_ in card_ids(pod.containers)}


@dataclass(frozen=True, slots=True)
class IncludedPods:
    """The pods whose holdings are included in a source's amounts, as a fingerprint; "" if it does not say.

    With `exclusive_only` pods without exclusive CPUs, memory or devices are not in the fingerprint.
    """

    fingerprint: str = ""
    exclusive_only: bool = False


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as one source describes it: its machine, its cards in the order of their index, and its holdings.

    A card has the uuid "" if the source does not know it; then it is identified by its index. `stock` is by resource
    (`gpu` for cards, which the cluster calls `card_resource`); its free ids are the source's, which are older than the
    ledger. `use` is None if the source names no holdings. A source that does not name pods has `held` instead: what all
    `included` pods hold of each zone.
    """

    node: str
    topology: Topology
    cards: tuple[Gpu, ...] = ()
    card_resource: str = ""
    stock: Mapping[str, Stock] = field(default_factory=dict)
    reserved: Resources = Resources()
    use: Use | None = None
    held: ZoneAmounts = ()
    included: IncludedPods = IncludedPods()
