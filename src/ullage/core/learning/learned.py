"""The strategy `leftover` with a learned workload: arrivals are counted, and each new estimate rebuilds it.

The first unit that arrives is estimate enough. Until the strategy is made ready for it, and while it is made
ready for a new one, `leftover` is best fit, or what the estimate before made of it. That costs a look at every
node for every shape in use, so whoever must answer meanwhile gives `later`, which does it beside: on a copy of
the books, from which nothing is read but what new decisions start with. Where nothing goes by `leftover`
nothing is made ready, until something does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ullage.core.books.fleet import Fleet
from ullage.core.placing.placement import drop_tables, shapes_under, table_of
from ullage.core.strategies import strategy_named
from ullage.core.strategies.leftover import NAME, leftover
from ullage.core.strategies.strategy import Strategy
from ullage.core.strategies.workload import LiveWorkload, Workload
from ullage.model.request import ResourceRequirement

Later = Callable[[Callable[[], Any], Callable[[Any], None]], None]
"""Does the first wherever it likes, then the second with its result where decisions are made."""

_SHAPES = 128
"""Shapes, of those in use, that a new strategy is made ready for."""

_ENOUGH = 50
"""Units after which the estimate is a likely workload; placing is better off with any."""


def at_once(work: Callable[[], Any], take: Callable[[Any], None]) -> None:
    """Now, before anything else."""
    take(work())


class Learning:
    """What is learned for one set of books at a time, that of the last `follow`."""

    def __init__(self, later: Later = at_once) -> None:
        self._later = later
        self._live = LiveWorkload()
        self._fleet: Fleet | None = None
        self._busy = self._outdated = self._spared = False
        self.seen = 0
        """Units that arrived."""
        self.workload: Workload | None = None
        """What `leftover` goes by now, or would if anything went by it; None while it is best fit."""

    @property
    def missing(self) -> int:
        """Units that must arrive before the estimate says which tasks are likely."""
        return max(0, _ENOUGH - self.seen)

    def see(self, asked: ResourceRequirement) -> None:
        """Count a unit that arrived, placed or not."""
        self.seen += 1
        if self._live.see(asked) or (self._spared and _in_use(self._fleet)):
            self._make_ready()

    def follow(self, fleet: Fleet) -> None:
        """From now on decisions are made on these books, by what they were made by before."""
        if _in_use(self._fleet):
            strategy_named(NAME).on(fleet)
        self._fleet, self.workload = fleet, None
        self._make_ready()

    def _make_ready(self) -> None:
        """Have the strategy made for the books and the estimate of now; one at a time, and the last counts."""
        fleet, estimate = self._fleet, self._live.estimate
        if fleet is None or estimate is None or not fleet.cards:
            return
        self._spared = not _in_use(fleet)
        if self._spared:
            self.workload = estimate
            return
        self._outdated = self._busy
        if self._busy:
            return
        self._busy = True
        copy, shapes = fleet.copy(), shapes_under(fleet, NAME)[-_SHAPES:]

        def take(strategy: Strategy) -> None:
            self._busy = False
            if fleet is self._fleet:
                self._take(fleet, estimate, strategy)
            if self._outdated:
                self._make_ready()

        self._later(lambda: _made(copy, estimate, shapes), take)

    def _take(self, fleet: Fleet, estimate: Workload, strategy: Strategy) -> None:
        drop_tables(fleet, fleet.strategies[NAME])
        fleet.strategies[NAME] = strategy
        self.workload = estimate


def _in_use(fleet: Fleet | None) -> bool:
    """Return whether anything goes by `leftover` on these books."""
    return fleet is not None and NAME in fleet.strategies


def _made(copy: Fleet, estimate: Workload, shapes: list[ResourceRequirement]) -> Strategy:
    """Return the strategy, which knows the states of the nodes; the rows of the copy are as of the same changes."""
    strategy = leftover(copy, estimate, live=True)
    for asked in shapes:
        table_of(copy, asked, strategy)
    return strategy
