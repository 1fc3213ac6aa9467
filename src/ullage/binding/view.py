"""What decisions about bindings follow from: nodes, cards and rows at one moment."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ullage.binding.room import TENANTS, CardTenants
from ullage.model.binding import ShareMode, supported_modes
from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeNode, HostRoom, OwnerQuota


@dataclass(frozen=True)
class BindingInventory:
    """Nodes with their cards, indexed."""

    nodes: tuple[ComputeNode, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, in its order."""
        return {node.name: node for node in sorted(self.nodes, key=lambda node: node.name)}

    @cached_property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by their keys, in order of node and id."""
        return {
            card.key: card for node in self.by_name.values() for card in sorted(node.cards, key=lambda card: card.id)
        }

    @cached_property
    def by_device(self) -> dict[str, ComputeCard]:
        """All cards by id. If two have one id, that of the first node by name counts."""
        return {card.id: card for card in reversed(self.cards.values())}

    @cached_property
    def of_type(self) -> dict[str, tuple[str, ...]]:
        """Names of the nodes with cards of each type, in order."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.by_name.values():
            for accelerator in node.accelerators:
                found[accelerator].append(node.name)
        return {accelerator: tuple(names) for accelerator, names in found.items()}

    def shared(self, shares: Mapping[CardKey, ShareMode]) -> BindingInventory:
        """Return the same with cards in the modes to which they were switched, as far as their types support these."""
        if not shares:
            return self
        names = {key.node for key in shares}

        def switched(card: ComputeCard) -> ComputeCard:
            share = shares.get(card.key)
            return replace(card, share=share) if share in supported_modes(card.accelerator) else card

        return BindingInventory(
            tuple(
                replace(node, cards=tuple(map(switched, node.cards))) if node.name in names else node
                for node in self.nodes
            )
        )


@dataclass(frozen=True)
class BindingView:
    """Cards and rows at one moment. `quotas` are those of owners by name, and of `EVERYBODY` else.

    `tenants` is how many applications may take turns on a card, `owner_use` what pods of owners request of nodes,
    `added` what came to nodes since they were looked at.
    """

    inventory: BindingInventory = BindingInventory()
    rows: tuple[BoundCard, ...] = ()
    tenants: int = TENANTS
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
    owner_use: Mapping[str, HostRoom] = field(default_factory=dict)
    added: Mapping[str, HostRoom] = field(default_factory=dict)

    @property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by their keys, in order of node and id."""
        return self.inventory.cards

    @property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, in its order, without what was added."""
        return self.inventory.by_name

    @cached_property
    def bound(self) -> Mapping[CardKey, tuple[BoundCard, ...]]:
        """Rows by card, draining ones included."""
        found: defaultdict[CardKey, list[BoundCard]] = defaultdict(list)
        for row in self.rows:
            found[row.card].append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    @cached_property
    def _free_bytes(self) -> dict[CardKey, int]:
        cards = (self.cards[key] for key in self.bound if key in self.cards)
        return {card.key: self.room(card).free_bytes for card in cards}

    def on(self, card: ComputeCard) -> tuple[BoundCard, ...]:
        """Return the rows of a card."""
        return self.bound.get(card.key, ())

    def usable(self, card: ComputeCard) -> bool:
        """Return whether new work may come to a card at all."""
        return card.healthy and not card.cordoned and self.by_name[card.node].ready

    def room(self, card: ComputeCard) -> CardTenants:
        """Return the room that rows leave of a card."""
        room = CardTenants(card, self.tenants)
        for row in self.on(card):
            room.add(row.app, row.share, row.memory_bytes)
        return room

    def free_bytes(self, card: ComputeCard) -> int:
        """Return the memory of a card that one more application could be given."""
        return self._free_bytes.get(card.key, card.memory_bytes)

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
        """Return the same with more in use, and requested, on each of these nodes."""
        more = {name: self.added.get(name, HostRoom()) + added for name in names}
        return replace(self, added={**self.added, **more})
