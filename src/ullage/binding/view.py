"""A snapshot of nodes, cards and rows, on which bindings are decided."""

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
    nodes: tuple[ComputeNode, ...] = ()

    @cached_property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, sorted."""
        return {node.name: node for node in sorted(self.nodes, key=lambda node: node.name)}

    @cached_property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by key, sorted by node and id."""
        return {
            card.key: card for node in self.by_name.values() for card in sorted(node.cards, key=lambda card: card.id)
        }

    @cached_property
    def by_device(self) -> dict[str, ComputeCard]:
        """All cards by id. If two have the same id, that of the first node by name counts."""
        return {card.id: card for card in reversed(self.cards.values())}

    @cached_property
    def of_type(self) -> dict[str, tuple[str, ...]]:
        """The sorted names of nodes by the type of their cards."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.by_name.values():
            for accelerator in node.accelerators:
                found[accelerator].append(node.name)
        return {accelerator: tuple(names) for accelerator, names in found.items()}

    def shared(self, shares: Mapping[CardKey, ShareMode]) -> BindingInventory:
        """Return a copy with the switched share modes, as far as the types of the cards support them."""
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
    """A snapshot of cards and rows. `quotas` are by owner; that of `EVERY_OWNER` applies to all other owners.

    `tenants` is the maximum number of applications that time-slice a card. `owner_use` has the requests of the pods of
    each owner, `added` the usage that was planned on each node since the snapshot.
    """

    inventory: BindingInventory = BindingInventory()
    rows: tuple[BoundCard, ...] = ()
    tenants: int = TENANTS
    quotas: Mapping[str, OwnerQuota] = field(default_factory=dict)
    owner_use: Mapping[str, HostRoom] = field(default_factory=dict)
    added: Mapping[str, HostRoom] = field(default_factory=dict)

    @property
    def cards(self) -> dict[CardKey, ComputeCard]:
        return self.inventory.cards

    @property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, sorted, without planned usage."""
        return self.inventory.by_name

    @cached_property
    def bound(self) -> Mapping[CardKey, tuple[BoundCard, ...]]:
        """Rows by card, including draining ones."""
        found: defaultdict[CardKey, list[BoundCard]] = defaultdict(list)
        for row in self.rows:
            found[row.card].append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    @cached_property
    def _free_bytes(self) -> dict[CardKey, int]:
        cards = (self.cards[key] for key in self.bound if key in self.cards)
        return {card.key: self.room(card).free_bytes for card in cards}

    def on(self, card: ComputeCard) -> tuple[BoundCard, ...]:
        return self.bound.get(card.key, ())

    def usable(self, card: ComputeCard) -> bool:
        return card.healthy and not card.cordoned and self.by_name[card.node].ready

    def room(self, card: ComputeCard) -> CardTenants:
        room = CardTenants(card, self.tenants)
        for row in self.on(card):
            room.add(row.app, row.share, row.memory_bytes)
        return room

    def free_bytes(self, card: ComputeCard) -> int:
        """Return the memory of a card that another application could get."""
        return self._free_bytes.get(card.key, card.memory_bytes)

    def node(self, name: str) -> ComputeNode:
        """Return a node with its planned usage."""
        node, added = self.by_name[name], self.added.get(name)
        return node if added is None else replace(node, used=node.used + added, requested=node.requested + added)

    def every(self) -> list[ComputeNode]:
        return [self.node(name) for name in self.by_name]

    def of_type(self, accelerator: str) -> list[ComputeNode]:
        return [self.node(name) for name in self.inventory.of_type.get(accelerator, ())]

    def without(self, app: AppKey) -> BindingView:
        rows = tuple(row for row in self.rows if row.app != app)
        return self if len(rows) == len(self.rows) else replace(self, rows=rows)

    def with_rows(self, rows: Iterable[BoundCard]) -> BindingView:
        return replace(self, rows=(*self.rows, *rows))

    def with_use(self, names: Iterable[str], added: HostRoom) -> BindingView:
        """Return a copy with further planned usage on each of these nodes."""
        more = {name: self.added.get(name, HostRoom()) + added for name in names}
        return replace(self, added={**self.added, **more})
