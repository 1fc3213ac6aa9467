"""What an outside source says of one node, whatever the form of its document."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from ullage.model.gpu import Gpu
from ullage.model.holding import Use
from ullage.model.resources import Resources
from ullage.model.topology import Topology


@dataclass(frozen=True, slots=True)
class Stock:
    """How many CPUs or devices of a resource a node has, and the ids of those that are free, ascending."""

    total: int
    free: tuple[int, ...] = ()


def stock_of_cards(cards: Iterable[Gpu], use: Use) -> Stock:
    """The stock of a node's cards; those are free that are healthy and of which no container holds anything.

    Cards are found by uuid. The id of a part of a card begins with the uuid of the card (`GPU-1::2`).
    """
    held = {
        id_.partition("::")[0]
        for pod in use.pods
        for container in pod.containers
        for _, ids in container.devices
        for id_ in ids
    }
    known = tuple(cards)
    return Stock(len(known), tuple(sorted(card.index for card in known if card.healthy and card.uuid not in held)))


@dataclass(frozen=True, slots=True)
class NodeRecord:
    """A node as one source describes it: its machine, its cards in the order of their index, and what is held.

    A card has the uuid "" if the source does not know it; then it goes by its index. `stock` is by resource
    (`gpu` for cards, which the cluster calls `card_resource`); its free ids are the source's word, which is
    older than the ledger. `use` is None if the source does not say who holds what.
    """

    node: str
    topology: Topology
    cards: tuple[Gpu, ...] = ()
    card_resource: str = ""
    stock: Mapping[str, Stock] = field(default_factory=dict)
    reserved: Resources = Resources()
    use: Use | None = None
