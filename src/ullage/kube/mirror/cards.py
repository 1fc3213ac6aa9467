"""The cards of a node, as HAMi's agents register them in its annotations, or as drivers publish them."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace

from ullage.kube.client.objects import KubeNode as NodeObject
from ullage.model.error import InvalidRequest
from ullage.model.gpu import Gpu
from ullage.model.topology import Link
from ullage.service.devices import Devices
from ullage.wire.hami.node import CORDON, cordoned, read_cordon, read_handshake
from ullage.wire.vendors.family import Family
from ullage.wire.vendors.registers import NodeText, registered_cards, registered_links
from ullage.wire.vendors.shipped import NVIDIA


def node_facts(node: NodeObject) -> NodeText:
    """Return what a node says of the cards of any family."""
    amounts = node.status.allocatable or node.status.capacity or {}
    return NodeText(node.metadata.name, node.metadata.annotations or {}, amounts)


def register_readers(families: Iterable[Family], now: Callable[[], float] = time.time) -> list[RegisteredCards]:
    """Return a reader for each family whose cards are in an annotation of their node."""
    return [RegisteredCards(family, now) for family in families if family.register.annotation]


@dataclass(frozen=True, slots=True)
class RegisteredCards:
    """A reader of the card register of one family. `now` returns seconds since 1970.

    The cards are gone if the agent is silent and the kubelet offers no cards either. If the list of cordoned cards
    cannot be parsed, all cards of the node are cordoned.
    """

    family: Family = NVIDIA
    now: Callable[[], float] = time.time

    @property
    def vendor(self) -> str:
        """The only vendor whose cards the register lists."""
        return self.family.name

    def names_cards_on(self, node: NodeObject) -> bool:
        """Return whether a device plugin there hands out the cards that a scheduler names."""
        registered = self.family.register.annotation in (node.metadata.annotations or {})
        return registered and bool(self.family.results.to_allocate)

    def links(self, node: NodeObject) -> tuple[Link, ...]:
        """Return the links between the cards of a node that the agent registers; none if it registers none.

        Raises:
            InvalidRequest: they cannot be read.

        """
        return registered_links(self.family, node_facts(node))

    def __call__(self, node: NodeObject) -> Sequence[Gpu] | None:
        """Return the cards of a node; None where no agent has registered any.

        Raises:
            InvalidRequest: the register cannot be read.

        """
        annotations = node.metadata.annotations or {}
        rule = self.family.register
        if rule.annotation not in annotations:
            return None
        offered = (node.status.allocatable or {}).get(self.family.resources.count, "0")
        if offered == "0" and read_handshake(annotations.get(rule.handshake, "")).overdue(self.now()):
            return ()
        cards = tuple(card.gpu for card in registered_cards(self.family, node_facts(node)) or ())
        try:
            return cordoned(cards, read_cordon(annotations.get(CORDON, "")))
        except InvalidRequest:
            return tuple(replace(card, cordoned=True) for card in cards)


@dataclass(frozen=True, slots=True)
class PublishedCards:
    """A reader of the cards that drivers publish for claims, which name the cards that a pod gets."""

    devices: Devices
    behind_record: bool = True
    """Whether its links come after those of an exporter: attributes say less of them."""

    def links(self, node: NodeObject) -> tuple[Link, ...]:
        """Return the links between the cards of a node that follow from their attributes."""
        return self.devices.links_on(node.metadata.name)

    def names_cards_on(self, node: NodeObject) -> bool:
        """Return whether drivers publish cards there: a claim names those that its pod gets."""
        return self.devices.cards_on(node.metadata.name) is not None

    def __call__(self, node: NodeObject) -> Sequence[Gpu] | None:
        """Return the cards of a node; None where no driver publishes any."""
        return self.devices.cards_on(node.metadata.name)
