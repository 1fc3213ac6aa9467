"""What a strategy is: three to six small functions over the columns of the books.

    node(nodes, cards, row, shape, units, state, note) -> float       how good a node with room is
    card(cards, card, shape, state) -> float                          how good one card is
    pick(nodes, cards, row, shape, units, state, out)                 writes the flat positions of the cards to take
    select(nodes, cards, shape, space, said, tree, state) -> int      which node, -1: none; if not given the first best
    follow(nodes, cards, row, state)                                  a node may have changed; nothing if not given
    terms(nodes, cards, row, shape, units, state) -> dict             for people: what decides about a node, by name

`nodes`, `cards` and `shape` have the columns of `core/kernel/columns.py`; `units` says of each card of the
node, the first card first, whether it can take a share of the request: above 0, or 0. As many as are asked
for can. `space`, `said` and `tree` are a table's (`core/kernel/table.py`). `note` has room
for `notes` numbers that `select` finds again in `said`. `state` is a tuple of the strategy's own: arrays that
stay the same ones. A strategy that follows is of one fleet: its state sees every change of it, before `select`
and before the node is scored. Higher is better.

The functions are plain ones marked with `inlined`; they are compiled into the loops of the kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np

from ullage.core.books.fleet import Fleet
from ullage.core.kernel.columns import Rows
from ullage.core.kernel.compiling.digests import digest_of
from ullage.core.kernel.draft import Drafts, drafts_over
from ullage.core.kernel.table import Loops, equal_cards, first_best, heedless, loops_over
from ullage.core.kernel.victims import evictions_over
from ullage.core.verdict.shape import Shape

__all__ = ["Strategy", "equal_cards"]


class Strategy:
    """Scores nodes that have room, and picks cards among those that passed the filters.

    `name` is in kebab-case; `state` is what the functions read besides the books. `closeness` is what a hundredth of
    the zones' closeness adds to a node's score where no alignment is asked for. Where none is, a strategy picks
    whole cards by itself; with `near` they are those that are joined best and lie in the fewest zones.
    """

    def __init__(
        self,
        name: str,
        node: Callable[..., Any],
        card: Callable[..., Any],
        pick: Callable[..., None],
        state: tuple[Any, ...] = (),
        select: Callable[..., int] = first_best,
        follow: Callable[..., None] = heedless,
        notes: int = 0,
        terms: Callable[..., dict[str, float]] | None = None,
        closeness: float = 0.0,
        near: bool = False,
    ) -> None:
        self.name = name
        self.state = state
        self.notes = notes
        self.closeness = closeness
        self.near = near
        self._node, self._card, self._pick, self._select, self._follow = node, card, pick, select, follow
        self._terms = terms

    @cached_property
    def digest(self) -> str:
        """Another one after any change of what it does."""
        code = digest_of(self._node, self._card, self._pick, self._select, self._follow)
        return sha256(code + repr(self.state).encode()).hexdigest()

    def on(self, fleet: Fleet) -> Strategy:
        """Return the strategy as it decides on these books: itself, unless it is made for each."""
        return self

    @cached_property
    def loops(self) -> Loops:
        """The loops of the kernel over this strategy; compiled when they are first called."""
        return loops_over(self._node, self._pick, self._select, self._follow)

    @property
    def stateless(self) -> bool:
        """Whether a node's score depends on the node alone, and the first best is taken."""
        return self._select is first_best and self._follow is heedless

    @cached_property
    def drafts(self) -> Drafts:
        """The loops over several units at once, for a strategy that is stateless."""
        assert self.stateless, "what a strategy follows cannot be taken back"
        return drafts_over(self._node, self._pick)

    @cached_property
    def evict(self) -> Callable[..., int]:
        """The loop that clears nodes for units of a request, whose cards it picks."""
        return evictions_over(self._pick)

    def node(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> float:
        """Return how good a node with room is; `eligible` are its cards that could take the request."""
        units = self.units(fleet, row, eligible)
        note = np.zeros(self.notes, np.int64)
        return float(self._node(fleet.node_rows, fleet.card_rows, row, shape.rows, units, self.state, note))

    def card(self, fleet: Fleet, card: int, shape: Shape) -> float:
        """Return how good one card is."""
        return float(self._card(fleet.card_rows, card, shape.rows, self.state))

    def terms(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> dict[str, float]:
        """Return what decides about a node, by name, where that is more than its score; in the strategy's own unit."""
        if self._terms is None:
            return {}
        units = self.units(fleet, row, eligible)
        return self._terms(fleet.node_rows, fleet.card_rows, row, shape.rows, units, self.state)

    def pick(self, fleet: Fleet, row: int, shape: Shape, eligible: Sequence[int]) -> list[int]:
        """Return the cards for one unit out of `eligible`, of which there are enough."""
        out = np.zeros(shape.asked.gpu_count, np.int64)
        units = self.units(fleet, row, eligible)
        self._pick(fleet.node_rows, fleet.card_rows, row, shape.rows, units, self.state, out)
        chosen: list[int] = out.tolist()
        return chosen

    @staticmethod
    def units(fleet: Fleet, row: int, eligible: Sequence[int]) -> Rows:
        """Return cards of a node as functions take them: 1 for each that is `eligible`, else 0."""
        cards = fleet.cards_on(row)
        units = np.zeros(len(cards), np.int64)
        units[[card - cards.start for card in eligible]] = 1
        return units
