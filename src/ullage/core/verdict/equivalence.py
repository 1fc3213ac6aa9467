"""Equivalence classes of cards: a rule judges one card of each class, and its answer holds for all of them.

The answer of a rule depends on few facts of a card. Cards that agree in these form a class. Rejections are expanded
to one per card, with its name, only when they are read; they show the inventory as it was when the rule answered.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Container, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeVar, overload

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel import columns as at
from ullage.core.kernel.row_classes import number_classes
from ullage.core.verdict.mismatch import of_node
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

T = TypeVar("T")

MANY = 64
"""Up to so many cards are judged one by one."""

Check = Callable[[int], tuple[Rejection, ...]]
"""Return the rejections of a card by one rule."""


class DependsOn(Enum):
    """The facts on which the answer of a rule depends."""

    KIND = "kind"
    CARD = "card"
    NODE = "node"
    MACHINE = "machine"
    """Its node, and what the zones of that node hold."""
    AFFINITY = "affinity"
    """Whether the request's terms allow the node."""
    COUNT = "count"
    """How many cards of its node are left."""
    ITSELF = "itself"
    """More than the above: each card is a class."""


class Cards(Protocol):
    """Candidate cards, ascending."""

    @property
    def positions(self) -> Column:
        """Their positions in the books."""

    @property
    def names(self) -> Sequence[str]:
        """Their uuids."""

    def __len__(self) -> int: ...

    def split(self, by: DependsOn, check: Check) -> tuple[Cards, Sequence[Rejection], Cards]:
        """Return the cards that pass a rule, the rejections of the others, and those that freed capacity could cure."""

    def joined(self, others: Iterable[Cards]) -> Cards:
        """Return these and others, ascending."""


def cards_of(fleet: Fleet, asked: ResourceRequirement, cards: Iterable[int] | None) -> Cards:
    """Return these cards of the books, or all, as candidates of a request."""
    chosen = np.arange(len(fleet.cards)) if cards is None else np.array(sorted(set(cards)), dtype=np.int64)
    if len(chosen) <= MANY:
        return EachCard(fleet, chosen.tolist())
    return OnePerClass(_Classes(fleet, asked), chosen)


def curable(against: Iterable[Rejection]) -> bool:
    """Return whether freed capacity or a change of quota could cure all of these."""
    return all(rejection.cure in (Cure.CAPACITY, Cure.QUOTA) for rejection in against)


# --- one by one ---


class EachCard:
    """Candidates that are judged one by one."""

    def __init__(self, fleet: Fleet, cards: list[int]) -> None:
        self._fleet = fleet
        self._cards = cards

    def __len__(self) -> int:
        return len(self._cards)

    @property
    def positions(self) -> Column:
        """Their positions in the books."""
        return np.array(self._cards, dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """Their uuids."""
        return self._fleet.uuids(self._cards)

    def split(self, by: DependsOn, check: Check) -> tuple[EachCard, tuple[Rejection, ...], EachCard]:  # noqa: ARG002 - each
        """See `Cards`."""
        answers = [(card, check(card)) for card in self._cards]
        went = [(card, against) for card, against in answers if against]
        return (
            EachCard(self._fleet, [card for card, against in answers if not against]),
            tuple([rejection for _, against in went for rejection in against]),
            EachCard(self._fleet, [card for card, against in went if curable(against)]),
        )

    def joined(self, others: Iterable[Cards]) -> EachCard:
        """See `Cards`."""
        return EachCard(
            self._fleet, sorted([*self._cards, *(card for each in others for card in each.positions.tolist())])
        )


# --- one card of each class ---


class _Classes:
    """The class number of each card, per fact that rules depend on; computed on demand."""

    def __init__(self, fleet: Fleet, asked: ResourceRequirement) -> None:
        self.fleet = fleet
        self.asked = asked
        self._made: dict[DependsOn, Column] = {}

    def of(self, by: DependsOn, left: Column) -> Column:
        """Return the class of each card of `left`."""
        if by is DependsOn.ITSELF:
            return left
        if by is DependsOn.MACHINE:
            rows: Column = self.fleet.card_row[left]
            return rows
        if by is DependsOn.COUNT:
            rows = self.fleet.card_row[left]
            return np.bincount(rows)[rows]
        numbers = self._made.get(by)
        if numbers is None:
            numbers = self._made[by] = self._number(by)
        return numbers[left]

    def _number(self, by: DependsOn) -> Column:
        fleet, asked = self.fleet, self.asked
        if by is DependsOn.KIND:
            return fleet.card_rows[:, at.KIND]
        if by is DependsOn.NODE:
            return _numbers(fleet.node_rows[:, _OF_NODE], _state(fleet))[fleet.card_row]
        if by is DependsOn.AFFINITY:
            return fleet.exclusion.allowed(asked.nodes).astype(np.int64)[fleet.card_row]
        cards, each = fleet.card_rows, np.arange(len(fleet.cards))
        # Where users of a card differ in isolation, the reason depends on who came first; with slices, on their places.
        modes = cards[:, at.MODES]
        own = np.where((modes & (modes - 1)) != 0, each, -1)
        if asked.cards.isolation is Isolation.PARTITIONED:
            own = each
        return _numbers(cards[:, _OF_CARD], own, cards[:, at.INDEX] if asked.cards.indices else own)


_OF_NODE = [at.CPU_TOTAL, at.CPU_FREE, at.MEMORY_TOTAL, at.MEMORY_FREE, at.SLOTS_TOTAL, at.SLOTS_FREE]
_OF_CARD = [at.KIND, at.COMPUTE_FREE, at.VRAM_FREE, at.MODES, at.USERS]


def _state(fleet: Fleet) -> Column:
    """Return per node why it takes no work: 0 it does, 1 not ready, 2 cordoned."""
    state = (~fleet.schedulable).astype(np.int64)
    for row in state.nonzero()[0].tolist():
        state[row] += fleet.nodes[row].cordoned
    return state


def _numbers(columns: at.Rows, *more: Column) -> Column:
    numbers, _ = number_classes(np.ascontiguousarray(np.column_stack([columns, *more])))
    return numbers


def node_classes(fleet: Fleet, asked: ResourceRequirement, rows: Column, *, zoned: bool) -> Column:
    """Return the class number of each node: all rules but those of zones answer the same for nodes of one class.

    Nodes of one class have as many cards, and these agree pairwise, in any order, in all facts that rules depend on.
    Where zones matter (`zoned`) their layouts agree too: a layout decides whether the request fits on an empty node.
    """
    classes = _Classes(fleet, asked)
    first, counts = fleet.gpu_start[rows], np.diff(fleet.gpu_start)[rows]
    table = np.full((len(rows), counts.max(initial=0) + 3), -1)
    table[:, 0] = _numbers(fleet.node_rows[:, _OF_NODE], _state(fleet))[rows]
    table[:, 1] = fleet.exclusion.allowed(asked.nodes)[rows]
    cards = classes.of(DependsOn.CARD, np.arange(len(fleet.cards)))
    if zoned:
        table[:, 2] = fleet.board.layout_of[rows]
        cards = _numbers(fleet.card_rows[:, [at.ZONES]], cards)
    for k in range(table.shape[1] - 3):
        has = counts > k
        table[has, 3 + k] = cards[first[has] + k]
    table[:, 3:].sort(axis=1)
    return _numbers(table)


NodeClass = tuple[bytes, int, bool, int, bytes]
"""The facts of a node on which all rules but those of zones depend."""


def class_of_node(fleet: Fleet, asked: ResourceRequirement, row: int, *, zoned: bool) -> NodeClass | None:
    """Return the class of one node, as `node_classes` distinguishes them; None if no other node can be of it."""
    cards = fleet.card_rows[fleet.cards_on(row).start : fleet.cards_on(row).stop]
    modes = cards[:, at.MODES]
    if asked.cards.isolation is Isolation.PARTITIONED or (modes & (modes - 1)).any():
        return None
    each = cards[:, [*_OF_CARD, *([at.INDEX] if asked.cards.indices else []), *([at.ZONES] if zoned else [])]]
    node, state = fleet.nodes[row], int(not fleet.schedulable[row])
    return (
        fleet.node_rows[row, _OF_NODE].tobytes(),
        state + (state and node.cordoned),
        bool(fleet.exclusion.allowed(asked.nodes)[row]),
        fleet.board.layout_of.item(row) if zoned else -1,
        each[np.lexsort(each.T)].tobytes(),
    )


class OnePerClass:
    """Candidates of which one of each class is judged."""

    def __init__(self, classes: _Classes, positions: Column) -> None:
        self._classes = classes
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def names(self) -> Names:
        """Their uuids."""
        return Names(self._classes.fleet, self.positions)

    def split(self, by: DependsOn, check: Check) -> tuple[OnePerClass, Rejections | tuple[()], OnePerClass]:
        """See `Cards`."""
        left = self.positions
        if not len(left):
            return self, (), self
        numbers = self._classes.of(by, left)
        first = np.full(numbers.max() + 1, -1)
        first[numbers[::-1]] = left[::-1]
        answers = [check(card) if card >= 0 else () for card in first.tolist()]
        goes = np.array([bool(against) for against in answers])[numbers]
        if not goes.any():
            return self, (), OnePerClass(self._classes, left[:0])
        helps = goes & np.array([curable(against) for against in answers])[numbers]
        rejected = Rejections(self._classes.fleet, self._classes.asked, left[goes], numbers[goes], answers)
        return OnePerClass(self._classes, left[~goes]), rejected, OnePerClass(self._classes, left[helps])

    def joined(self, others: Iterable[Cards]) -> OnePerClass:
        """See `Cards`."""
        return OnePerClass(
            self._classes, np.sort(np.concatenate([self.positions, *(each.positions for each in others)]))
        )


class _OnDemand(Sequence[T]):
    """A sequence that is computed when more than its first element is read."""

    @abstractmethod
    def _first(self) -> T: ...

    @abstractmethod
    def _made(self) -> Iterable[T]: ...

    @cached_property
    def _all(self) -> tuple[T, ...]:
        return tuple(self._made())

    @overload
    def __getitem__(self, at_: int) -> T: ...
    @overload
    def __getitem__(self, at_: slice) -> tuple[T, ...]: ...
    def __getitem__(self, at_: int | slice) -> T | tuple[T, ...]:
        return self._first() if at_ == 0 else self._all[at_]

    def __eq__(self, other: object) -> bool:
        return self._all == (other._all if isinstance(other, _OnDemand) else other)

    def __hash__(self) -> int:
        return hash(self._all)

    def __repr__(self) -> str:
        return repr(self._all)


class Names(_OnDemand[str]):
    """The uuids of cards."""

    def __init__(self, fleet: Fleet, positions: Column) -> None:
        self._cards = fleet.cards
        self._positions = positions

    def __len__(self) -> int:
        return len(self._positions)

    def _first(self) -> str:
        return self._cards[int(self._positions[0])].uuid

    def _made(self) -> list[str]:
        return [self._cards[card].uuid for card in self._positions.tolist()]


class Rejections(_OnDemand[Rejection]):
    """The rejections of cards, expanded from those of their classes. Most callers read the first only."""

    def __init__(
        self,
        fleet: Fleet,
        asked: ResourceRequirement,
        positions: Column,
        numbers: Column,
        answers: list[tuple[Rejection, ...]],
    ) -> None:
        self._inventory = fleet.nodes, fleet.cards, fleet.card_row
        self._asked = asked
        self._positions = positions
        self._numbers = numbers
        self._answers = answers

    @property
    def kinds(self) -> list[Rejection]:
        """Those of the classes, which name no card; they differ from those of the cards in nothing else."""
        return [rejection for against in self._answers for rejection in against]

    def nodes(self, codes: Container[Code]) -> set[str]:
        """Return the nodes of the cards that were rejected with one of these codes."""
        nodes, _, row = self._inventory
        meant = np.array([any(each.code in codes for each in against) for against in self._answers], dtype=np.bool_)
        return {nodes[at_].name for at_ in np.unique(row[self._positions[meant[self._numbers]]]).tolist()}

    def __len__(self) -> int:
        return int(np.array([len(against) for against in self._answers])[self._numbers].sum())

    def _first(self) -> Rejection:
        return self._of(int(self._positions[0]), int(self._numbers[0]))[0]

    def _made(self) -> list[Rejection]:
        pairs = zip(self._positions.tolist(), self._numbers.tolist(), strict=True)
        return [each for card, number in pairs for each in self._of(card, number)]

    def _of(self, card: int, number: int) -> list[Rejection]:
        nodes, cards, row = self._inventory
        node, gpu = nodes[row.item(card)], cards[card].uuid
        answers = [replace(rejection, node=node.name, gpu=gpu) for rejection in self._answers[number]]
        return [of_node(each, node, self._asked) if each.code is Code.NODE_AFFINITY else each for each in answers]
