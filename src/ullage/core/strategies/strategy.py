"""What a strategy is: three to six small functions over the columns of the books.

    node(nodes, cards, row, shape, fits_per_card, state, notes) -> float   score a node with room
    card(cards, card, shape, state) -> float                               score a card
    pick(nodes, cards, row, shape, fits_per_card, state, out)              write the flat positions of the cards
    select(nodes, cards, shape, scratch, node_state, tree, state) -> int   select a node, -1: none; default: the best
    follow(nodes, cards, row, state)                                       update the state for a node; default: nothing
    terms(nodes, cards, row, shape, fits_per_card, state) -> dict          explain the score of a node by named parts

`nodes`, `cards` and `shape` have the columns of `core/kernel/columns.py`. `fits_per_card` is above 0 for each card of
the node, the first card first, that can take a share of the request, else 0; enough cards can. `scratch`,
`node_state` and `tree` belong to a table (`core/kernel/table.py`). `notes` has space for as many numbers as the option
`notes` says, which `select` finds again in `node_state`. `state` is a tuple of the strategy: arrays that stay the same
objects. A strategy that follows belongs to one fleet: it sees every change of a node before `select`, and before the
node is scored. Higher scores are better.

The functions are plain ones with the decorator `inlined`; they are compiled into the loops of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any, TypedDict, Unpack

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiling.digests import digest_of
from ullage.core.kernel.draft import Drafts, drafts_over
from ullage.core.kernel.table import Loops, equal_cards, first_best, follow_nothing, loops_over
from ullage.core.kernel.victims import evictions_over
from ullage.core.verdict.shape import Shape

__all__ = ["Strategy", "equal_cards"]


class Options(TypedDict, total=False):
    """What a strategy may have besides a score and a choice of cards.

    `closeness` is what a hundredth of the zones' closeness adds to a node's score where no alignment is requested.
    Where none is, a strategy picks whole cards by itself; with `near` they are the cards that are joined best and lie
    in the fewest zones.
    """

    select: Callable[..., int]
    follow: Callable[..., None]
    terms: Callable[..., dict[str, float]] | None
    notes: int
    closeness: float
    near: bool


class Strategy:
    """Scores nodes that have room, and picks cards among those that passed the filters.

    `name` is in kebab-case. `state` is what the functions read besides the books.
    """

    def __init__(
        self,
        name: str,
        node: Callable[..., Any],
        card: Callable[..., Any],
        pick: Callable[..., None],
        state: tuple[Any, ...] = (),
        **options: Unpack[Options],
    ) -> None:
        self.name = name
        self.state = state
        self.notes = options.get("notes", 0)
        self.closeness = options.get("closeness", 0.0)
        self.near = options.get("near", False)
        self._node, self._card, self._pick = node, card, pick
        self._select, self._follow = options.get("select", first_best), options.get("follow", follow_nothing)
        self._terms = options.get("terms")

    @cached_property
    def digest(self) -> str:
        """A digest that changes with anything the strategy does."""
        code = digest_of(self._node, self._card, self._pick, self._select, self._follow)
        return sha256(code + repr(self.state).encode()).hexdigest()

    def on(self, fleet: Fleet) -> Strategy:
        """Return the strategy for these books: itself, unless each of them has its own."""
        return self

    @cached_property
    def loops(self) -> Loops:
        """The loops of the kernel over this strategy, compiled at their first call."""
        return loops_over(self._node, self._pick, self._select, self._follow)

    @property
    def stateless(self) -> bool:
        """Whether a node's score depends on the node alone, and the first best is taken."""
        return self._select is first_best and self._follow is follow_nothing

    @cached_property
    def drafts(self) -> Drafts:
        """The loop over several units at once, for a strategy that is stateless."""
        assert self.stateless, "what a strategy follows cannot be undone"
        return drafts_over(self._node, self._pick)

    @cached_property
    def evict(self) -> Callable[..., int]:
        """The loop that clears nodes for units of a request, whose cards it picks."""
        return evictions_over(self._pick)

    def node(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> float:
        """Return how good a node with room is; `eligible` are its cards that could take the request."""
        fits = self.units(fleet, row, eligible)
        notes = np.zeros(self.notes, np.int64)
        return float(self._node(fleet.node_rows, fleet.card_rows, row, shape.rows, fits, self.state, notes))

    def card(self, fleet: Fleet, card: int, shape: Shape) -> float:
        """Return how good one card is."""
        return float(self._card(fleet.card_rows, card, shape.rows, self.state))

    def terms(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> dict[str, float]:
        """Return what decides about a node, by name, in the strategy's own unit; nothing if that is the score alone."""
        if self._terms is None:
            return {}
        fits = self.units(fleet, row, eligible)
        return self._terms(fleet.node_rows, fleet.card_rows, row, shape.rows, fits, self.state)

    def pick(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> list[int]:
        """Return the cards for one unit out of `eligible`; there are enough."""
        out = np.zeros(shape.asked.gpu_count, np.int64)
        fits = self.units(fleet, row, eligible)
        self._pick(fleet.node_rows, fleet.card_rows, row, shape.rows, fits, self.state, out)
        chosen: list[int] = out.tolist()
        return chosen

    @staticmethod
    def units(fleet: Fleet, row: int, eligible: Sequence[int]) -> Rows:
        """Return `fits_per_card` of a node: 1 for each card that is `eligible`, else 0."""
        cards = fleet.cards_on(row)
        units = np.zeros(len(cards), np.int64)
        units[[card - cards.start for card in eligible]] = 1
        return units
