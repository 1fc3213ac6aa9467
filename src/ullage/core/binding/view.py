"""What is known when a decision about bindings is made: nodes, cards and rows, and what cards have free."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

from ullage.model.binding import ShareMode
from ullage.model.compute import AppKey, BoundCard, CardKey, ComputeCard, ComputeNode, Room

TENANTS = 10
"""Applications that may take turns on a card unless it is said otherwise."""


@dataclass(frozen=True)
class View:
    """Nodes and rows at one moment. `quotas` are the most that the applications of an owner may use together.

    `tenants` is how many applications may take turns on a card. `owner_use` is what owners use of their quotas.
    """

    nodes: tuple[ComputeNode, ...] = ()
    rows: tuple[BoundCard, ...] = ()
    tenants: int = TENANTS
    quotas: Mapping[str, Room] = field(default_factory=dict)
    owner_use: Mapping[str, Room] = field(default_factory=dict)

    @cached_property
    def cards(self) -> dict[CardKey, ComputeCard]:
        """All cards by their keys, by node and id."""
        return {card.key: card for node in sorted(self.nodes, key=_name) for card in sorted(node.cards, key=_id)}

    @cached_property
    def by_name(self) -> dict[str, ComputeNode]:
        """Nodes by name, in its order."""
        return {node.name: node for node in sorted(self.nodes, key=_name)}

    @cached_property
    def bound(self) -> Mapping[CardKey, tuple[BoundCard, ...]]:
        """Rows by card, draining ones included."""
        found: defaultdict[CardKey, list[BoundCard]] = defaultdict(list)
        for row in self.rows:
            found[row.card].append(row)
        return {key: tuple(rows) for key, rows in found.items()}

    def on(self, card: ComputeCard) -> tuple[BoundCard, ...]:
        """The rows of a card."""
        return self.bound.get(card.key, ())

    def usable(self, card: ComputeCard) -> bool:
        """Whether new work may come to a card at all."""
        return card.healthy and not card.cordoned and self.by_name[card.node].ready

    def free_bytes(self, card: ComputeCard) -> int:
        """The memory of a card that one more application could be given.

        What is alone on a card has all of it; shared memory is counted; who takes turns sees all of it, up to a
        number of tenants. While anybody drains that came under another mode, there is none.
        """
        rows = self.on(card)
        if any(row.share is not card.share for row in rows):
            return 0
        if card.share is ShareMode.MEMORY_SLICE:
            return max(0, card.memory_bytes - shared_out(rows))
        most = 1 if card.share is ShareMode.EXCLUSIVE else self.tenants
        return card.memory_bytes if len({row.app for row in rows}) < most else 0

    def without(self, app: AppKey) -> View:
        """The same without the rows of an application, for it to be placed again."""
        return replace(self, rows=tuple(row for row in self.rows if row.app != app))

    def with_rows(self, rows: Iterable[BoundCard]) -> View:
        """The same with more rows."""
        return replace(self, rows=(*self.rows, *rows))

    def with_use(self, names: Iterable[str], added: Room) -> View:
        """The same with more in use, and asked, on each of these nodes."""
        busy = set(names)
        nodes = (
            replace(node, used=node.used + added, requested=node.requested + added) if node.name in busy else node
            for node in self.nodes
        )
        return replace(self, nodes=tuple(nodes))

    def of_type(self, accelerator: str) -> Iterator[ComputeNode]:
        """The nodes with cards of a type, by name."""
        return (node for node in self.by_name.values() if accelerator in node.accelerators)


def shared_out(rows: Iterable[BoundCard]) -> int:
    """Bytes of a card that applications were given. One that drains and is back on the same card has the larger."""
    largest: dict[AppKey, int] = {}
    for row in rows:
        largest[row.app] = max(largest.get(row.app, 0), row.memory_bytes)
    return sum(largest.values())


def _name(node: ComputeNode) -> str:
    return node.name


def _id(card: ComputeCard) -> str:
    return card.id
