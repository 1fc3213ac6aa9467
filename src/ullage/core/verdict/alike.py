"""Cards that are looked at together: one by one, or of many that are alike only one.

What a rule says of a card follows from few of its facts. Cards that agree in these are of one class, the rule
is asked about one of them, and its answer counts for all, with the card's own name. What went is told card by
card only when somebody reads it; it is told as it was then, for it is made of the answers and of the inventory.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from enum import Enum
from functools import cached_property
from typing import Protocol, TypeVar, overload

import numpy as np

from ullage.core.books.fleet import Column, Fleet
from ullage.core.kernel import columns as at
from ullage.core.kernel.alike import number_alike
from ullage.core.verdict.mismatch import of_node
from ullage.model.part import Isolation
from ullage.model.rejection import Code, Cure, Rejection
from ullage.model.request import ResourceRequirement

T = TypeVar("T")

MANY = 64
"""So many cards and fewer are looked at one by one."""

Check = Callable[[int], tuple[Rejection, ...]]
"""All that a rule has against a card."""


class By(Enum):
    """What a rule's answer follows from: the kind of the card, all that the books say of it, or its node."""

    KIND = "kind"
    CARD = "card"
    NODE = "node"
    MACHINE = "machine"
    """Its node, and what lies in the zones of that one."""
    AFFINITY = "affinity"
    """Whether the request's terms allow the node."""
    COUNT = "count"
    """How many cards of its node are left."""
    ITSELF = "itself"
    """More than that."""


class Cards(Protocol):
    """Cards that are left, ascending; `curable` of those that went were kept from it by capacity or quota alone."""

    @property
    def positions(self) -> Column:
        """Where they lie in the books."""

    @property
    def names(self) -> Sequence[str]:
        """Their uuids."""

    def __len__(self) -> int: ...

    def split(self, by: By, check: Check) -> tuple[Cards, Sequence[Rejection], Cards]:
        """Those that the rule keeps, what it says of the others, and which of them freed capacity could help."""

    def joined(self, others: Iterable[Cards]) -> Cards:
        """These and others, ascending."""


def cards_of(fleet: Fleet, asked: ResourceRequirement, cards: Iterable[int] | None) -> Cards:
    """These cards of the books, or all, as a request looks at them."""
    chosen = np.arange(len(fleet.cards)) if cards is None else np.array(sorted(set(cards)), dtype=np.int64)
    if len(chosen) <= MANY:
        return OneByOne(fleet, chosen.tolist())
    return Alike(_Classes(fleet, asked), chosen)


def curable(against: Iterable[Rejection]) -> bool:
    """Whether freed capacity, or a change of quota, could help against all of these."""
    return all(rejection.cure in (Cure.CAPACITY, Cure.QUOTA) for rejection in against)


# --- one by one ---


class OneByOne:
    """Each card is asked about."""

    def __init__(self, fleet: Fleet, cards: list[int]) -> None:
        self._fleet = fleet
        self._cards = cards

    def __len__(self) -> int:
        return len(self._cards)

    @property
    def positions(self) -> Column:
        """Where they lie in the books."""
        return np.array(self._cards, dtype=np.int64)

    @property
    def names(self) -> tuple[str, ...]:
        """Their uuids."""
        return self._fleet.uuids(self._cards)

    def split(self, by: By, check: Check) -> tuple[OneByOne, tuple[Rejection, ...], OneByOne]:  # noqa: ARG002 - each
        """See `Cards`."""
        answers = [(card, check(card)) for card in self._cards]
        went = [(card, against) for card, against in answers if against]
        return (
            OneByOne(self._fleet, [card for card, against in answers if not against]),
            tuple([rejection for _, against in went for rejection in against]),
            OneByOne(self._fleet, [card for card, against in went if curable(against)]),
        )

    def joined(self, others: Iterable[Cards]) -> OneByOne:
        """See `Cards`."""
        return OneByOne(
            self._fleet, sorted([*self._cards, *(card for each in others for card in each.positions.tolist())])
        )


# --- one of those that are alike ---


class _Classes:
    """The number of each card's class, for everything that rules go by; made when first asked for."""

    def __init__(self, fleet: Fleet, asked: ResourceRequirement) -> None:
        self.fleet = fleet
        self.asked = asked
        self._made: dict[By, Column] = {}

    def of(self, by: By, left: Column) -> Column:
        """Per card of `left`."""
        if by is By.ITSELF:
            return left
        if by is By.MACHINE:
            rows: Column = self.fleet.card_row[left]
            return rows
        if by is By.COUNT:
            rows = self.fleet.card_row[left]
            return np.bincount(rows)[rows]
        numbers = self._made.get(by)
        if numbers is None:
            numbers = self._made[by] = self._number(by)
        return numbers[left]

    def _number(self, by: By) -> Column:
        fleet, asked = self.fleet, self.asked
        if by is By.KIND:
            return fleet.card_rows[:, at.KIND]
        if by is By.NODE:
            return _numbers(fleet.node_rows[:, _OF_NODE], _state(fleet))[fleet.card_row]
        if by is By.AFFINITY:
            return fleet.exclusion.allowed(asked.nodes).astype(np.int64)[fleet.card_row]
        cards, each = fleet.card_rows, np.arange(len(fleet.cards))
        # What is told of users that hold a card in different ways depends on who came first; slices, on where they lie.
        modes = cards[:, at.MODES]
        own = np.where((modes & (modes - 1)) != 0, each, -1)
        if asked.cards.isolation is Isolation.PARTITIONED:
            own = each
        return _numbers(cards[:, _OF_CARD], own, cards[:, at.INDEX] if asked.cards.indices else own)


_OF_NODE = [at.CPU_TOTAL, at.CPU_FREE, at.MEMORY_TOTAL, at.MEMORY_FREE, at.SLOTS_TOTAL, at.SLOTS_FREE]
_OF_CARD = [at.KIND, at.COMPUTE_FREE, at.VRAM_FREE, at.MODES, at.USERS]


def _state(fleet: Fleet) -> Column:
    """Per node, in what way it takes no work."""
    state = (~fleet.schedulable).astype(np.int64)
    for row in state.nonzero()[0].tolist():
        state[row] += fleet.nodes[row].cordoned
    return state


def _numbers(columns: at.Rows, *more: Column) -> Column:
    numbers, _ = number_alike(np.ascontiguousarray(np.column_stack([columns, *more])))
    return numbers


def nodes_alike(fleet: Fleet, asked: ResourceRequirement, rows: Column, *, zoned: bool) -> Column:
    """Per node, the number of its kind: all rules but those of zones say the same of nodes of one kind.

    They have as many cards, and these agree pairwise, in whatever order, in all that rules go by; where zones
    matter (`zoned`) in their layouts too, which say whether the request would fit if all others left.
    """
    classes = _Classes(fleet, asked)
    first, counts = fleet.gpu_start[rows], np.diff(fleet.gpu_start)[rows]
    table = np.full((len(rows), counts.max(initial=0) + 3), -1)
    table[:, 0] = _numbers(fleet.node_rows[:, _OF_NODE], _state(fleet))[rows]
    table[:, 1] = fleet.exclusion.allowed(asked.nodes)[rows]
    cards = classes.of(By.CARD, np.arange(len(fleet.cards)))
    if zoned:
        table[:, 2] = fleet.board.layout_of[rows]
        cards = _numbers(fleet.card_rows[:, [at.ZONES]], cards)
    for k in range(table.shape[1] - 3):
        has = counts > k
        table[has, 3 + k] = cards[first[has] + k]
    table[:, 3:].sort(axis=1)
    return _numbers(table)


Kind = tuple[bytes, int, bool, int, bytes]
"""All that rules but those of zones go by on a node."""


def kind_of(fleet: Fleet, asked: ResourceRequirement, row: int, *, zoned: bool) -> Kind | None:
    """The kind of one node, as `nodes_alike` tells them apart; None if no other can be of it."""
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


class Alike:
    """One card of each class is asked about."""

    def __init__(self, classes: _Classes, positions: Column) -> None:
        self._classes = classes
        self.positions = positions

    def __len__(self) -> int:
        return len(self.positions)

    @property
    def names(self) -> Names:
        """Their uuids."""
        return Names(self._classes.fleet, self.positions)

    def split(self, by: By, check: Check) -> tuple[Alike, Told | tuple[()], Alike]:
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
            return self, (), Alike(self._classes, left[:0])
        helps = goes & np.array([curable(against) for against in answers])[numbers]
        told = Told(self._classes.fleet, self._classes.asked, left[goes], numbers[goes], answers)
        return Alike(self._classes, left[~goes]), told, Alike(self._classes, left[helps])

    def joined(self, others: Iterable[Cards]) -> Alike:
        """See `Cards`."""
        return Alike(self._classes, np.sort(np.concatenate([self.positions, *(each.positions for each in others)])))


class _OnDemand(Sequence[T]):
    """Made when somebody reads more of it than the first."""

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


class Told(_OnDemand[Rejection]):
    """What was said of cards, made of the answers for their classes; the first decides, and most look at it alone."""

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

    def __len__(self) -> int:
        return int(np.array([len(against) for against in self._answers])[self._numbers].sum())

    def _first(self) -> Rejection:
        return self._of(int(self._positions[0]), int(self._numbers[0]))[0]

    def _made(self) -> list[Rejection]:
        pairs = zip(self._positions.tolist(), self._numbers.tolist(), strict=True)
        return [told for card, number in pairs for told in self._of(card, number)]

    def _of(self, card: int, number: int) -> list[Rejection]:
        nodes, cards, row = self._inventory
        node, gpu = nodes[row.item(card)], cards[card].uuid
        answers = [replace(rejection, node=node.name, gpu=gpu) for rejection in self._answers[number]]
        return [of_node(each, node, self._asked) if each.code is Code.NODE_AFFINITY else each for each in answers]
