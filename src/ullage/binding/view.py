"""What is known when a decision about bindings is made: nodes, cards and rows, and what cards have free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ullage.model.binding import ShareMode
from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeNode, HostRoom, OwnerQuota

TENANTS = 10
"""Applications that may take turns on a card unless it is said otherwise."""


@dataclass(frozen=True)
class Inventory:
    """Nodes with their cards, by name and id, and what is looked up of them again and again."""

    nodes: tuple[ComputeNode, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, in its order."""
        return {node.name: node for node in sorted(self.nodes, key=lambda node: node.name)}

    @cached_property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by their keys, by node and id."""
        return {
            card.key: card for node in self.by_name.values() for card in sorted(node.cards, key=lambda card: card.id)
        }

    @cached_property
    def of_type(self) -> dict[str, tuple[str, ...]]:
        """Names of the nodes with cards of each type, in their order."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.by_name.values():
            for accelerator in node.accelerators:
                found[accelerator].append(node.name)
        return {accelerator: tuple(names) for accelerator, names in found.items()}


@dataclass(frozen=True)
class BindingView:
    """Cards and rows at one moment. `quotas` are those of owners by name, and of `EVERYBODY` else.

    `tenants` is how many applications may take turns on a card, `owner_use` what pods of owners ask of nodes,
    `added` what came to nodes since they were looked at.
    """

    inventory: Inventory = Inventory()
    rows: tuple[BoundCard, ...] = ()
    tenants: int = TENANTS
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
    owner_use: Mapping[str, HostRoom] = field(default_factory=dict)
    added: Mapping[str, HostRoom] = field(default_factory=dict)

    @property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by their keys, by node and id."""
        return self.inventory.cards

    @property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, in its order; what was added is not in them."""
        return self.inventory.by_name

    @cached_property
    def bound(self) -> Mapping[CardKey, tuple[BoundCard, ...]]:
        """Rows by card, draining ones included."""
        found: defaultdict[CardKey, list[BoundCard]] = defaultdict(list)
        for row in self.rows:
            found[row.card].append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    @cached_property
    def _taken(self) -> dict[CardKey, int]:
        """What cards with rows have left."""
        cards = ((self.cards.get(key), rows) for key, rows in self.bound.items())
        return {card.key: _left(card, rows, self.tenants) for card, rows in cards if card is not None}

    def on(self, card: ComputeCard) -> tuple[BoundCard, ...]:
        """Return the rows of a card."""
        return self.bound.get(card.key, ())

    def usable(self, card: ComputeCard) -> bool:
        """Return whether new work may come to a card at all."""
        return card.healthy and not card.cordoned and self.by_name[card.node].ready

    def free_bytes(self, card: ComputeCard) -> int:
        """Return the memory of a card that one more application could be given.

        What is alone on a card has all of it; shared memory is counted; who takes turns sees all of it, up to a
        number of tenants. While anybody drains that came under another mode, there is none.
        """
        return self._taken.get(card.key, card.memory_bytes)

    def node(self, name: str) -> ComputeNode:
        """Return a node with what was added to it."""
        node, added = self.by_name[name], self.added.get(name)
        return node if added is None else replace(node, used=node.used + added, requested=node.requested + added)

    def every(self) -> list[ComputeNode]:
        """Return all nodes by name, with what was added to them."""
        return [self.node(name) for name in self.by_name]

    def of_type(self, accelerator: str) -> list[ComputeNode]:
        """Return the nodes with cards of a type, by name, with what was added to them."""
        return [self.node(name) for name in self.inventory.of_type.get(accelerator, ())]

    def without(self, app: AppKey) -> BindingView:
        """Return the same without the rows of an application, for it to be placed again."""
        rows = tuple(row for row in self.rows if row.app != app)
        return self if len(rows) == len(self.rows) else replace(self, rows=rows)

    def with_rows(self, rows: Iterable[BoundCard]) -> BindingView:
        """Return the same with more rows."""
        return replace(self, rows=(*self.rows, *rows))

    def with_use(self, names: Iterable[str], added: HostRoom) -> BindingView:
        """Return the same with more in use, and asked, on each of these nodes."""
        more = {name: self.added.get(name, HostRoom()) + added for name in names}
        return replace(self, added={**self.added, **more})


def _left(card: ComputeCard, rows: tuple[BoundCard, ...], tenants: int) -> int:
    """Return what a card with these rows could give to one more application."""
    if any(row.share is not card.share for row in rows):
        return 0
    if card.share is ShareMode.MEMORY_SLICE:
        return max(0, card.memory_bytes - _shared_out(rows))
    most = 1 if card.share is ShareMode.EXCLUSIVE else tenants
    return card.memory_bytes if len({row.app for row in rows}) < most else 0


def _shared_out(rows: Iterable[BoundCard]) -> int:
    """Bytes of a card that applications were given. One that drains and is back on the same card has the larger."""
    largest: dict[AppKey, int] = {}
    for row in rows:
        largest[row.app] = max(largest.get(row.app, 0), row.memory_bytes)
    return sum(largest.values())
